"""The style of all figures: colours, markers, labels, fonts and widths."""

import re
import zlib
from collections.abc import Container, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Estimator:
    """Label and style of an estimator."""

    label: str
    colour: str
    marker: str
    width: float = 1.8  # lines often hidden by another are wider, and show as a rim
    dash: Any = "-"
    variant: str = ""  # of a known method: the end of the label, which distinguishes it

    @property
    def size(self) -> float:
        """Size of the marker, points."""
        return 3.0 + 1.2 * self.width


_DASH, _DOTS, _DASH_DOT = (0, (4, 1.5)), (0, (1, 1.2)), (0, (4, 1.2, 1, 1.2))
# Colours of Okabe and Ito and of Tol, distinguishable with common colour vision deficiencies.
ESTIMATORS = {
    "naive": Estimator("naive", "#000000", "o", 2.9),
    "stl": Estimator("sticking the landing", "#CC79A7", "v", 1.6),
    "cv": Estimator("cv", "#E69F00", "s"),
    "inc": Estimator("inc", "#009E73", "v", 1.6),
    "ensemble": Estimator("ensemble", "#117733", "o", 1.5, _DASH),
    "smiso": Estimator("SMISO", "#7F7F7F", "s", 1.6, _DASH),
    "joint": Estimator("joint (SAGA)", "#0072B2", "D", 2.5),
    "joint_svrg": Estimator("joint (SVRG)", "#56B4E9", "^", 1.5),
    "joint_adaptive": Estimator("joint, adaptive", "#661100", "P", 2.0),
    "joint_current": Estimator("joint, current sigma", "#7B6FD0", "v", 1.4, _DASH),
    "joint_glm": Estimator("joint GLM", "#D55E00", "o", 1.6, _DASH),
    "joint_glm_sigma": Estimator("joint GLM, sigma too", "#882255", "s", 1.8),
    "full_naive": Estimator("naive, full batch", "#000000", "s", 1.4, _DOTS),
    "full_cv": Estimator("cv, full batch", "#E69F00", "D", 1.4, _DOTS),
    # the same in fixed batches, in independent rows, after three naive epochs, or with Adam beside SGD
    "joint_fixed": Estimator("joint (SAGA), fixed batches", "#0072B2", "X", 2.0),
    "joint_3": Estimator("joint (SAGA), 3 naive epochs", "#0072B2", "<", 1.6, _DASH),
    "naive_iid": Estimator("naive, independent rows", "#000000", "v", 1.4, _DASH),
    "joint_svrg_iid": Estimator("joint (SVRG), independent rows", "#56B4E9", "d", 1.4, _DASH),
    "naive_adam": Estimator("naive, Adam", "#000000", "p", 1.4, _DOTS),
    "cv_adam": Estimator("cv, Adam", "#E69F00", "p", 1.4, _DOTS),
    "joint_adam": Estimator("joint (SAGA), Adam", "#0072B2", "p", 1.8, _DOTS),
    # Multilevel Monte Carlo: plain averages are black and green, MLMC and its variants warm, STORM blue.
    "mc": Estimator("MC", "#000000", "D", 2.4),
    "rqmc": Estimator("RQMC", "#009E73", "^", 2.2),
    "mlmc": Estimator("MLMC", "#D55E00", "s", 2.4),
    "mc_10": Estimator("MC, 10 particles", "#000000", "x", 1.4, _DOTS),
    "rqmc_10": Estimator("RQMC, 10 particles", "#009E73", "x", 1.4, _DOTS),
    "mlmc_10": Estimator("MLMC, 10 particles", "#D55E00", "x", 1.4, _DOTS),
    "mlmc_time": Estimator("MLMC, time schedule", "#D55E00", "v", 1.5, _DASH),
    "mlmc_exponential": Estimator("MLMC, exponential schedule", "#D55E00", "p", 1.5, _DOTS),
    "mc_time": Estimator("MC, time schedule", "#000000", "<", 1.4, _DASH),
    "mc_exponential": Estimator("MC, exponential schedule", "#000000", ">", 1.4, _DOTS),
    "mlmc_rqmc": Estimator("MLMC, RQMC", "#E69F00", "P", 1.6),
    "mlmc_cv": Estimator("MLMC, cv", "#CC79A7", "X", 1.6),
    "mlmc_prox": Estimator("MLMC, proximal", "#882255", "<", 1.5, _DASH),
    "mlmc_restart": Estimator("MLMC, restarts", "#AA4499", ">", 1.6),
    "mlmc_optimal": Estimator("MLMC, N by Theorem 1", "#CC79A7", "o", 2.2),
    "mlmc_adaptive": Estimator("MLMC, N online", "#7B6FD0", "*", 1.8),
    "mlmc_adam": Estimator("MLMC, Adam", "#D55E00", "D", 1.5, _DASH),
    "storm": Estimator("STORM", "#0072B2", "o", 2.2),
    "storm_rqmc": Estimator("STORM, RQMC", "#56B4E9", "v", 1.6),
    "mc_sgd": Estimator("MC, SGD", "#000000", "d", 1.4, _DASH),
    "rqmc_sgd": Estimator("RQMC, SGD", "#009E73", "d", 1.4, _DASH),
    "mc_adam": Estimator("MC, Adam", "#000000", "h", 1.4, _DASH),
    "rqmc_adam": Estimator("RQMC, Adam", "#009E73", "*", 1.4, _DASH),
}
# The INGO family is blue, with paths red; other methods of ours are warm, peers are black, grey or green, and dashed.
SEARCHERS = {
    "fast_ingo": Estimator("Fast-INGO", "#0072B2", "D", 2.6),
    "fast_ingo_adaptive": Estimator("Fast-INGO, adaptive", "#56B4E9", "^", 2.0),
    "ingo": Estimator("INGO", "#332288", "o", 2.3),
    "ingo_step": Estimator("INGOstep", "#7B6FD0", "s", 1.6),
    "ingo_cma": Estimator("INGO, CMA paths", "#AA3377", ">", 2.4),
    "ingo_path": Estimator("INGO, mean path", "#EE6677", "<", 2.0),
    "ingo_first_order": Estimator("INGO, first order", "#0072B2", "o", 2.0),
    "ingo_zeroth_order": Estimator("INGO, zeroth order", "#D55E00", "s", 2.0),
    "ingo_zeroth_order_orthogonal": Estimator("INGO, zeroth order, N = d orthogonal", "#009E73", "v", 2.0),
    "ingo_binary": Estimator("INGO, binary", "#0072B2", "D", 2.6),
    "ingo_categorical": Estimator("INGO, categorical", "#332288", "o", 2.3),
    "igo": Estimator("IGO", "#CC79A7", "v"),
    "es": Estimator("ES", "#E69F00", "P"),
    "reinforce_gd": Estimator("REINFORCE GD", "#D55E00", "X"),
    "reinforce_gd_raw": Estimator("REINFORCE GD, raw values", "#882255", "X"),
    "pycma": Estimator("pycma", "#000000", "o", 1.5, _DASH),
    "cmaes": Estimator("cmaes", "#7F7F7F", "s", 1.5, _DASH),
    "sep_cmaes": Estimator("cmaes, separable", "#7F7F7F", "d", 1.5, _DOTS),
    "evosax_snes": Estimator("evosax SNES", "#009E73", "^", 1.5, _DASH),
    "evosax_xnes": Estimator("evosax xNES", "#117733", "*", 1.8, _DOTS),
    "evosax_open_es": Estimator("evosax Open-ES", "#999933", "p", 1.5, _DASH),
    "pymoo_ga": Estimator("pymoo GA", "#882255", "h", 1.5, _DASH),
}
# Exact kernel methods are blue and red, related ones warm; the paper's stochastic ones are dashed, in similar hues.
INTEGRATORS = {
    "monte_carlo": Estimator("Monte Carlo", "#000000", "o", 2.2),
    "zero_variance": Estimator("zero variance", "#7F7F7F", "v"),
    "control_functional": Estimator("control functional", "#0072B2", "s", 2.2),
    "sparse_control_functional": Estimator("control functional, sparse", "#117733", ">", 1.6),
    "vector_valued": Estimator("vector-valued", "#D55E00", "D", 3.0),
    "alternating": Estimator("alternating", "#E69F00", "^"),
    "convex": Estimator("convex sequence", "#999933", "p"),
    "additive": Estimator("additive", "#009E73", "P"),
    "neural": Estimator("neural", "#CC79A7", "X"),
    "auto": Estimator("automatic choice", "#661100", "*", 2.0),
    "paper_cf": Estimator("paper: CF", "#56B4E9", "s", 1.6, _DASH),
    "paper_cv": Estimator("paper: CV", "#332288", "<", 1.6, _DASH_DOT),
    "paper_vv_fixed": Estimator("paper: vv, fixed B", "#AA4499", "h", 1.6, _DASH_DOT),
    "paper_vv": Estimator("paper: vv, est. B", "#882255", "d", 1.6, _DASH),
    "paper_vv_B_first": Estimator("paper: vv, B first", "#BB7799", "v", 1.6, _DASH),
}
SCHEMES = {
    "iid": Estimator("iid", "#000000", "o"),
    "antithetic": Estimator("antithetic", "#E69F00", "s"),
    "orthogonal": Estimator("orthogonal", "#0072B2", "D"),
    "rqmc": Estimator("randomised QMC", "#009E73", "^"),
}
_SPARE_COLOURS = ("#009E73", "#D55E00", "#8C8C8C", "#7A4B2A", "#999933")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "p", "h", "<", ">", "*", "d")  # of variants, and in place of others
_DASHES = ("-", _DASH, _DASH_DOT, _DOTS)  # of the variants of the first known method with a solid line, ...
_NEAR = 120.0  # distance of colours up to which a reader may take one for the other
_SPARE_MARKERS = ("P", "X", "<", ">", "p", "h", "*")  # 5 and 7 are coprime: 35 different pairs

BLOCKS = {"all": "all parameters", "mu": "mean part (mu)", "log_sigma": "scale part (log sigma)"}


def estimators(names: Iterable[str]) -> dict[str, Estimator]:
    """The style of each estimator, in the order in which a figure lists them.

    Known names have a fixed style. The colour and marker of an unknown one derive from its name. No two methods of a
    figure have the same marker in similar colours: the second takes another marker, see ``distinct``.

    >>> list(estimators(["mine", "joint", "naive"]))
    ['naive', 'joint', 'mine']
    >>> estimators(["mine"])["mine"] == estimators(["mine", "joint"])["mine"]
    True
    """
    names = set(names)
    looks = {name: look for name, look in ESTIMATORS.items() if name in names}
    return distinct(looks | _spare(names - set(looks)), set(looks))


def searchers(names: Iterable[str]) -> dict[str, Estimator]:
    """The style of each search method.

    A name that begins with a known one (``es_1e-2``) is a variant of it, with a shade of its colour and its own marker;
    variants of a second known method with a solid line are dashed.

    >>> list(searchers(["pycma", "mine", "es_1e-2", "ingo"]))
    ['ingo', 'es_1e-2', 'pycma', 'mine']
    >>> searchers(["es_1e-2"])["es_1e-2"].label
    'ES 1e-2'
    """
    return _with_variants(names, SEARCHERS)


def integrators(names: Iterable[str]) -> dict[str, Estimator]:
    """The style of each integrator, with variants as in ``searchers``."""
    return _with_variants(names, INTEGRATORS)


def _with_variants(names: Iterable[str], family: dict[str, Estimator]) -> dict[str, Estimator]:
    names, looks, count, dashes = set(names), {}, 0, iter(_DASHES * len(family))
    variants = {name: max(bases, key=len) for name in names - set(family)
                if (bases := [known for known in family if name.startswith(known + "_")])}  # fmt: skip
    for known, look in family.items():
        if known in names:
            looks[known] = look
        of_it = sorted(name for name, base in variants.items() if base == known)
        shades = np.linspace(-0.55, 0.6, len(of_it)) if len(of_it) > 1 else [0.5 * (known in names)]
        dash = next(dashes) if of_it and look.dash == "-" else look.dash
        for name, shade in zip(of_it, shades, strict=False):
            variant = _variant(name[len(known) + 1 :])
            looks[name] = replace(
                look,
                label=f"{look.label} {variant}",
                colour=_shade(look.colour, float(shade)),
                marker=_MARKERS[count % len(_MARKERS)],
                width=1.6,
                dash=dash,
                variant=variant,
            )
            count += 1
    fixed = names & set(family)
    return distinct(looks | _spare(names - set(looks), {(look.colour, look.marker) for look in family.values()}), fixed)


def distinct(looks: dict[str, Estimator], fixed: Container[str] = ()) -> dict[str, Estimator]:
    """The same styles, with other markers where two methods have the same one in similar colours.

    A method whose marker is taken gets the first marker that no method before it, and none of ``fixed``, has in a
    similar colour; if there is none, the one whose colours are farthest.

    >>> looks = {"a": Estimator("a", "#602A00", "o"), "b": Estimator("b", "#684800", "o")}
    >>> [look.marker for look in distinct(looks).values()]
    ['o', 's']
    """
    out = {name: look for name, look in looks.items() if name in fixed}
    for name, look in looks.items():
        if name not in fixed:
            apart = {
                marker: min((_distance(look.colour, o.colour) for o in out.values() if o.marker == marker), default=1e9)
                for marker in dict.fromkeys((look.marker, *_MARKERS))
            }
            free = [marker for marker, distance in apart.items() if distance > _NEAR]
            out[name] = replace(look, marker=free[0] if free else max(apart, key=lambda marker: apart[marker]))
    return {name: out[name] for name in looks}


def _distance(one: str, other: str) -> float:
    """How different two colours look, about: 0 to 765 (the weights of red, green and blue vary with red).

    >>> round(_distance("#000000", "#FFFFFF")), round(_distance("#602A00", "#684800"))
    (765, 61)
    """
    (r, g, b), (red, green, blue) = ([int(colour[at : at + 2], 16) for at in (1, 3, 5)] for colour in (one, other))
    mean = (r + red) / 2
    return (
        (2 + mean / 256) * (r - red) ** 2 + 4 * (g - green) ** 2 + (2 + (255 - mean) / 256) * (b - blue) ** 2
    ) ** 0.5


def _variant(name: str) -> str:
    """What distinguishes a variant, with numbers as they are written.

    >>> [_variant(name) for name in ("0_01", "1e_6", "binary_fast")]
    ['0.01', '1e-6', 'binary fast']
    """
    return re.sub(r"(?<=\de)_(?=\d)", "-", re.sub(r"(?<=\d)_(?=\d)", ".", name)).replace("_", " ")


def _shade(colour: str, part: float) -> str:
    """A colour mixed with the fraction ``part`` of white, or of black if negative."""
    end = 255 if part > 0 else 0
    channels = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return "#" + "".join(f"{round(channel + abs(part) * (end - channel)):02X}" for channel in channels)


def _spare(names: set[str], used: Iterable[tuple[str, str]] = ()) -> dict[str, Estimator]:
    """Styles for unknown names: the pair of each name's slot, or the next that is neither ``used`` nor taken."""
    pairs = [(_SPARE_COLOURS[n % len(_SPARE_COLOURS)], _SPARE_MARKERS[n % len(_SPARE_MARKERS)])
             for n in range(len(_SPARE_COLOURS) * len(_SPARE_MARKERS))]  # fmt: skip
    looks, taken = {}, {slot for slot, pair in enumerate(pairs) if pair in set(used)}
    for name in sorted(names):
        slot = zlib.crc32(name.encode()) % len(_SPARE_COLOURS)
        while slot in taken and len(taken) < len(pairs):
            slot = (slot + 1) % len(pairs)
        taken.add(slot)
        colour, marker = pairs[slot]
        looks[name] = Estimator(name.replace("_", " "), colour, marker)
    return looks


def block_label(block: str) -> str:
    """The label of a parameter block: ``"mu:beta"`` is the mean of site beta."""
    part, _, site = block.partition(":")
    return f"{BLOCKS.get(part, part)}, {site}" if site else BLOCKS.get(part, part)
