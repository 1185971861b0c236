"""How every picture looks: colours, markers, labels, fonts and widths, in one place."""

import functools
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import ParamSpec, TypeVar

from lowvar.errors import UserError

WIDTH = 7.2  # inches: a report's column at full size, and still legible at half of it
FONT = 10.5  # points at that width; nothing is set smaller than SMALL
SMALL = 9.5
INK, FAINT = "#222222", "#767676"
BAND = 0.18  # opacity of an interval


@dataclass(frozen=True)
class Estimator:
    """How one estimator is named and drawn."""

    label: str
    colour: str
    marker: str
    width: float = 1.8  # those often hidden by another are wider, and show as a rim

    @property
    def size(self) -> float:
        """Of its marker, in points."""
        return 3.0 + 1.2 * self.width


@dataclass(frozen=True)
class Source:
    """How one source of noise is named and drawn; ``ink`` is the colour of text upon it."""

    label: str
    colour: str
    ink: str


# Okabe and Ito's colours, told apart by every common kind of colour vision.
ESTIMATORS = {
    "naive": Estimator("naive", "#000000", "o", 2.9),
    "stl": Estimator("sticking the landing", "#CC79A7", "v", 1.6),
    "cv": Estimator("cv", "#E69F00", "s"),
    "joint": Estimator("joint (SAGA)", "#0072B2", "D", 2.5),
    "joint_svrg": Estimator("joint (SVRG)", "#56B4E9", "^", 1.5),
}
_SPARE_COLOURS = ("#009E73", "#D55E00", "#8C8C8C", "#7A4B2A", "#999933")
_SPARE_MARKERS = ("P", "X", "<", ">", "p", "h", "*")  # 5 and 7 have no common factor: 35 different pairs

# Three of Tol's muted colours, of different lightness, none of them an estimator's.
SOURCES = {
    "subsampling": Source("subsampling", "#332288", "#FFFFFF"),
    "monte_carlo": Source("Monte Carlo", "#44AA99", "#000000"),
    "interaction": Source("interaction", "#DDCC77", "#000000"),
}
BLOCKS = {"all": "all parameters", "mu": "mean part (mu)", "log_sigma": "scale part (log sigma)"}

_RC = {
    "font.size": FONT,
    "axes.titlesize": FONT,
    "axes.labelsize": FONT,
    "xtick.labelsize": SMALL,
    "ytick.labelsize": SMALL,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "grid.color": "#E4E4E4",
    "grid.linewidth": 0.8,
    "axes.axisbelow": True,
    "svg.hashsalt": "lowvar",
    "svg.fonttype": "path",
}

P = ParamSpec("P")
T = TypeVar("T")


def styled(draw: Callable[P, T]) -> Callable[P, T]:
    """Runs ``draw`` under this style alone; the user's own matplotlib settings stay as they are.

    Args:
        draw: any function that makes or writes a figure.

    Returns:
        The same function; it raises UserError where matplotlib is not installed.
    """

    @functools.wraps(draw)
    def inside(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            import matplotlib
        except ImportError as error:
            raise UserError("figures need matplotlib: pip install 'lowvar[workflow]'") from error
        with matplotlib.rc_context():
            matplotlib.rcdefaults()
            matplotlib.rcParams.update(_RC)  # pyright: ignore
            return draw(*args, **kwargs)

    return inside


def estimators(names: Iterable[str]) -> dict[str, Estimator]:
    """The look of each estimator, in the order in which a figure lists them.

    Known names always look the same. An unknown one gets a colour and marker from its own name, and the next
    free pair where another name in this figure has taken that one.

    Args:
        names: the methods of a table; repeated names count once.

    >>> list(estimators(["mine", "joint", "naive"]))
    ['naive', 'joint', 'mine']
    >>> estimators(["mine"])["mine"] == estimators(["mine", "joint"])["mine"]
    True
    """
    names = set(names)
    looks = {name: look for name, look in ESTIMATORS.items() if name in names}
    taken = set()
    pairs = len(_SPARE_COLOURS) * len(_SPARE_MARKERS)
    for name in sorted(names - set(ESTIMATORS)):
        slot = zlib.crc32(name.encode()) % len(_SPARE_COLOURS)
        while slot in taken and len(taken) < pairs:
            slot = (slot + 1) % pairs
        taken.add(slot)
        colour, marker = (
            _SPARE_COLOURS[slot % len(_SPARE_COLOURS)],
            _SPARE_MARKERS[slot % len(_SPARE_MARKERS)],
        )
        looks[name] = Estimator(name.replace("_", " "), colour, marker)
    return looks


def block_label(block: str) -> str:
    """A parameter block in words: ``"mu:beta"`` is the mean of site beta."""
    part, _, site = block.partition(":")
    return f"{BLOCKS.get(part, part)}, {site}" if site else BLOCKS.get(part, part)
