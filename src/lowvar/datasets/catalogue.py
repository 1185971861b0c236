"""The list of datasets: official URL, sha256, bytes, licence and citation of every raw file."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType

from lowvar.datasets import readers
from lowvar.datasets.readers import Table
from lowvar.errors import unknown_name


@dataclass(frozen=True)
class RawFile:
    """One file as its publisher serves it.

    Attributes:
        name: path below ``data/raw`` and below a mirror, e.g. ``"uci/sonar.all-data"``.
        url: the publisher's own address; empty where the file has none, and can only come from a mirror.
        sha256: the file's SHA-256, in hexadecimal.
        bytes: the file's length.
        licence: short name of the licence.
        citation: how the publisher asks to be cited.
    """

    name: str
    url: str
    sha256: str
    bytes: int
    licence: str
    citation: str


@dataclass(frozen=True)
class Dataset:
    """A dataset: its raw files, and the function that reads them.

    Attributes:
        name: the key in `DATASETS`.
        title: one line for a list: what a row is, what the label means.
        files: the raw files; none where an installed package brings the data.
        read: raw folder -> `Table` of x (N, d) float64, y and d feature names.
        licence: licence of the whole.
        citation: citation of the whole.
        outputs: names of the k columns of y (N, k) float64; empty where y (N,) int64 holds classes.
    """

    name: str
    title: str
    files: tuple[RawFile, ...]
    read: Callable[[Path], Table]
    licence: str
    citation: str
    outputs: tuple[str, ...] = ()


_UCI = "https://archive.ics.uci.edu/ml/machine-learning-databases"
_CC_BY = "CC BY 4.0"


def _uci_table(
    name: str, title: str, *, path: str, sha256: str, size: int, citation: str, read: Callable[..., Table]
) -> Dataset:
    """A dataset that is one UCI file; ``read`` is called as ``read(raw_folder, file_name)``."""
    file = RawFile(f"uci/{Path(path).name}", f"{_UCI}/{path}", sha256, size, _CC_BY, citation)
    return Dataset(name, title, (file,), partial(read, name=file.name), _CC_BY, citation)


def _series(
    name: str, title: str, *, file: RawFile, header: str, separator: str, inputs, outputs, rows: int, comments: int = 0
) -> Dataset:
    """A dataset that is one file of measurements under a header."""
    read = partial(
        readers.series,
        name=file.name,
        header=header,
        separator=separator,
        inputs=inputs,
        outputs=outputs,
        rows=rows,
        comments=comments,
    )
    return Dataset(name, title, (file,), read, file.licence, file.citation, outputs)


_ENTRIES = (
    Dataset(
        name="breast_cancer",
        title="Breast cancer Wisconsin (diagnostic): 569 cell samples, 30 features; benign 1, malignant 0",
        files=(),
        read=readers.breast_cancer,
        licence=_CC_BY,
        citation=(
            "Wolberg, W., Mangasarian, O., Street, N. and Street, W. (1993). Breast Cancer Wisconsin "
            "(Diagnostic). UCI Machine Learning Repository. https://doi.org/10.24432/C5DW2B"
        ),
    ),
    _uci_table(
        "sonar",
        "Sonar: 208 returns, energy in 60 bands; mine (metal cylinder) 1, rock 0",
        path="undocumented/connectionist-bench/sonar/sonar.all-data",
        sha256="e90434cdbf00fcf93ffa911fe447ae25606979658e60f1d32e155c3b5240234d",
        size=87776,
        citation=(
            "Sejnowski, T. and Gorman, R. (1988). Connectionist Bench (Sonar, Mines vs. Rocks). "
            "UCI Machine Learning Repository. https://doi.org/10.24432/C5T01Q"
        ),
        read=partial(
            readers.table,
            separator=",",
            columns=tuple(f"band_{i}" for i in range(1, 61)),
            labels={"M": 1, "R": 0},
            rows=208,
        ),
    ),
    _uci_table(
        "australian",
        "Statlog Australian credit approval: 690 applications, 14 anonymous features; + 1, - 0",
        path="statlog/australian/australian.dat",
        sha256="3abe5af151afa50b999a9ba21cbc884e80d80a4050b716cf88b34a2e6ecb731c",
        size=28735,
        citation=(
            "Quinlan, R. (1987). Statlog (Australian Credit Approval). "
            "UCI Machine Learning Repository. https://doi.org/10.24432/C59012"
        ),
        read=partial(
            readers.table,
            separator=" ",
            columns=tuple(f"A{i}" for i in range(1, 15)),
            labels={"0": 0, "1": 1},
            rows=690,
        ),
    ),
    _series(
        "hudson_bay",
        "Hudson Bay: pelts of lynx and snowshoe hare, 1900 to 1920, in thousands; 21 years",
        file=RawFile(
            "hudson_bay/hudson-bay-lynx-hare.csv",
            "https://raw.githubusercontent.com/stan-dev/example-models/master/knitr/lotka-volterra/hudson-bay-lynx-hare.csv",
            "66d3b24d30221a5654ab48cc461ea1d3f725f8f5719016f702cfb56610b4ee63",
            470,
            "BSD-3-Clause",
            "Hewitt, C. G. (1921). The Conservation of the Wild Life of Canada. Charles Scribner's Sons. The file is "
            "that of Carpenter, B. (2018). Predator-Prey Population Dynamics: the Lotka-Volterra model in Stan.",
        ),
        header="Year, Lynx, Hare",
        separator=", ",
        inputs=("year",),
        outputs=("lynx", "hare"),
        rows=21,
        comments=2,
    ),
    _series(
        "van_der_pol",
        "van der Pol oscillator: 11 noisy observations of the first coordinate at times 0 to 10",
        file=RawFile(
            "van_der_pol/observations.csv",
            "",
            "a30a2c1153b282f52a3f22657c1a88311fa02930950731c8e7c04da4450da805",
            246,
            "none stated",
            "Oates, C. J., Girolami, M. and Chopin, N. (2017). Control functionals for Monte Carlo integration. "
            "JRSS B 79(3). The values are those of data.mat in github.com/jz-fun/Vector-valued-Control-Variates-Code.",
        ),
        header="time,u1",
        separator=",",
        inputs=("time",),
        outputs=("u1",),
        rows=11,
    ),
)

DATASETS = MappingProxyType({entry.name: entry for entry in _ENTRIES})


def get(name: "str | Dataset") -> Dataset:
    """The dataset of that name; a `Dataset` is given back as it is.

    Raises:
        UserError: no dataset has that name.

    >>> get("sonar").files[0].name
    'uci/sonar.all-data'
    >>> get("sonnar")
    Traceback (most recent call last):
    lowvar.errors.UserError: unknown dataset 'sonnar': did you mean 'sonar'? (known: australian, ...
    """
    if isinstance(name, Dataset):
        return name
    if name not in DATASETS:
        raise unknown_name("dataset", name, DATASETS)
    return DATASETS[name]
