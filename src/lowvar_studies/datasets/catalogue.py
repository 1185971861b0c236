"""The list of datasets: official URL, sha256, bytes, licence and citation of every raw file."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from lowvar.errors import check_known
from lowvar_studies.datasets import bundled, readers
from lowvar_studies.datasets import tennis as atp
from lowvar_studies.datasets.readers import Table


@dataclass(frozen=True)
class RawFile:
    """A raw file as its publisher serves it.

    Attributes:
        name: path below ``data/raw`` and below a mirror, e.g. ``"uci/sonar.all-data"``.
        url: the publisher's address.
        sha256: the file's SHA-256, in hexadecimal.
        bytes: the file's length.
        licence: short name of the licence.
        citation: the citation that the publisher requests.
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
        title: one line for lists, with the meaning of a row and of the label.
        files: the raw files; none if an installed package, lowvar itself perhaps, contains the data.
        read: raw folder -> `Table` of arrays, with the names of the features.
        licence: licence of the dataset.
        citation: citation of the dataset.
        outputs: names of the k columns of y (N, k) float64; empty if y (N,) int64 holds classes.
        scalings: the scalings that it supports, of `lowvar_studies.datasets.prepare.SCALINGS`.
        image: channels, height and width, if a row of x holds the bytes of an image.
    """

    name: str
    title: str
    files: tuple[RawFile, ...]
    read: Callable[[Path], Table]
    licence: str
    citation: str
    outputs: tuple[str, ...] = ()
    scalings: tuple[str, ...] = ("minmax", "standard", "none")
    image: tuple[int, int, int] | None = None


_UCI = "https://archive.ics.uci.edu/ml/machine-learning-databases"
_CC_BY = "CC BY 4.0"


def _text(name: str, title: str, file: RawFile, **layout: Any) -> Dataset:
    """A dataset in one text file; ``layout`` is that of ``readers.table``."""
    read = partial(readers.table, name=file.name, **layout)
    return Dataset(name, title, (file,), read, file.licence, file.citation, layout.get("outputs", ()))


def _uci(path: str, sha256: str, size: int, citation: str) -> RawFile:
    """A file of the UCI Machine Learning Repository."""
    return RawFile(f"uci/{Path(path).name}", f"{_UCI}/{path}", sha256, size, _CC_BY, citation)


def _wisconsin() -> Dataset:
    file = _uci(
        "breast-cancer-wisconsin/breast-cancer-wisconsin.data",
        "402c585309c399237740f635ef9919dc512cca12cbeb20de5e563a4593f22b64",
        19889,
        "Wolberg, W. (1992). Breast Cancer Wisconsin (Original). UCI Machine Learning Repository. "
        "https://doi.org/10.24432/C5HP4Z",
    )
    inputs = ("clump thickness", "uniformity of size", "uniformity of shape", "marginal adhesion",
              "epithelial size", "bare nuclei", "bland chromatin", "normal nucleoli", "mitoses")  # fmt: skip
    return Dataset(
        "breast_cancer_original",
        "Breast cancer Wisconsin (original): 683 complete samples, 9 features of 1 to 10; malignant 1, benign 0",
        (file,),
        partial(readers.wisconsin, name=file.name, inputs=inputs, rows=699, complete=683),
        file.licence,
        file.citation,
    )


_OF_IMAGES = ("unit", "standard", "none", "lenet")


def _idx_images(
    name: str,
    title: str,
    *,
    folder: str,
    url: str,
    images_: tuple[str, int],
    labels: tuple[str, int],
    licence: str,
    citation: str,
) -> Dataset:
    """The training images of a dataset in MNIST's format; ``images_`` and ``labels`` are sha256 and bytes of a file."""
    files = tuple(
        RawFile(f"{folder}/{file}", f"{url}/{file}", sha256, size, licence, citation)
        for file, (sha256, size) in (("train-images-idx3-ubyte.gz", images_), ("train-labels-idx1-ubyte.gz", labels))
    )
    read = partial(readers.idx, images=files[0].name, labels=files[1].name)
    return Dataset(name, title, files, read, licence, citation, scalings=_OF_IMAGES, image=(1, 28, 28))


def _movielens() -> Dataset:
    licence = "MovieLens 100K terms of use: research, no commercial use, no redistribution"
    citation = (
        "Harper, F. M. and Konstan, J. A. (2015). The MovieLens Datasets: History and Context. ACM Transactions on "
        "Interactive Intelligent Systems 5(4), 19. https://doi.org/10.1145/2827872"
    )
    files = tuple(
        RawFile(f"ml-100k/{file}", f"https://files.grouplens.org/datasets/movielens/ml-100k/{file}", sha256, size,
                licence, citation)
        for file, sha256, size in (
            ("u.data", "06416e597f82b7342361e41163890c81036900f418ad91315590814211dca490", 1979173),
            ("u.item", "553841ebc7de3a0fd0d6b62a204ea30c1e651aacfb2814c7a6584ac52f2c5701", 236344),
            ("u.genre", "9757e0d3e6b298159a80dd48eaf938114690e911e39af97a76949ef1663610bb", 202),
        )
    )  # fmt: skip
    read = partial(readers.movielens, data=files[0].name, items=files[1].name, genres=files[2].name)
    return Dataset(
        "movielens",
        "MovieLens 100K: 100000 ratings by 943 users of 1682 movies with 18 genres; 1 to 5 stars are classes 0 to 4",
        files,
        read,
        licence,
        citation,
        scalings=("none",),
    )


def _tennis() -> Dataset:
    licence = "CC BY-NC-SA 4.0"
    citation = (
        "Tennis databases, files, and algorithms by Jeff Sackmann / Tennis Abstract. https://www.tennisabstract.com"
    )
    url = f"https://raw.githubusercontent.com/JeffSackmann/tennis_atp/{atp.COMMIT}"
    files = tuple(
        RawFile(season.name, f"{url}/{Path(season.name).name}", season.sha256, season.bytes, licence, citation)
        for season in atp.SEASONS
    )
    read = partial(atp.tennis, seasons=atp.SEASONS)
    title = "ATP singles on the main tour, 1968 to March 2023: 169405 matches of 5524 players; winner and loser"
    return Dataset("tennis", title, files, read, licence, citation, scalings=("none",))


_WINE = (
    "fixed acidity", "volatile acidity", "citric acid", "residual sugar", "chlorides", "free sulfur dioxide",
    "total sulfur dioxide", "density", "pH", "sulphates", "alcohol",
)  # fmt: skip

_ENTRIES = (
    Dataset(
        name="breast_cancer",
        title="Breast cancer Wisconsin (diagnostic): 569 cell samples, 30 features; benign 1, malignant 0",
        files=(),
        read=bundled.breast_cancer,
        licence=_CC_BY,
        citation=(
            "Wolberg, W., Mangasarian, O., Street, N. and Street, W. (1993). Breast Cancer Wisconsin "
            "(Diagnostic). UCI Machine Learning Repository. https://doi.org/10.24432/C5DW2B"
        ),
    ),
    _wisconsin(),
    _text(
        "sonar",
        "Sonar: 208 returns, energy in 60 bands; mine (metal cylinder) 1, rock 0",
        _uci(
            "undocumented/connectionist-bench/sonar/sonar.all-data",
            "e90434cdbf00fcf93ffa911fe447ae25606979658e60f1d32e155c3b5240234d",
            87776,
            "Sejnowski, T. and Gorman, R. (1988). Connectionist Bench (Sonar, Mines vs. Rocks). "
            "UCI Machine Learning Repository. https://doi.org/10.24432/C5T01Q",
        ),
        separator=",",
        inputs=tuple(f"band_{i}" for i in range(1, 61)),
        labels={"M": 1, "R": 0},
        rows=208,
    ),
    _text(
        "australian",
        "Statlog Australian credit approval: 690 applications, 14 anonymous features; + 1, - 0",
        _uci(
            "statlog/australian/australian.dat",
            "3abe5af151afa50b999a9ba21cbc884e80d80a4050b716cf88b34a2e6ecb731c",
            28735,
            "Quinlan, R. (1987). Statlog (Australian Credit Approval). "
            "UCI Machine Learning Repository. https://doi.org/10.24432/C59012",
        ),
        separator=" ",
        inputs=tuple(f"A{i}" for i in range(1, 15)),
        labels={"0": 0, "1": 1},
        rows=690,
    ),
    _text(
        "hudson_bay",
        "Hudson Bay: pelts of lynx and snowshoe hare, 1900 to 1920, in thousands; 21 years",
        RawFile(
            "hudson_bay/hudson-bay-lynx-hare.csv",
            "https://raw.githubusercontent.com/stan-dev/example-models/master/knitr/lotka-volterra/hudson-bay-lynx-hare.csv",
            "66d3b24d30221a5654ab48cc461ea1d3f725f8f5719016f702cfb56610b4ee63",
            470,
            "BSD-3-Clause",
            "Hewitt, C. G. (1921). The Conservation of the Wild Life of Canada. Charles Scribner's Sons. The file is "
            "that of Carpenter, B. (2018). Predator-Prey Population Dynamics: the Lotka-Volterra model in Stan.",
        ),
        separator=",",
        inputs=("year",),
        outputs=("lynx", "hare"),
        rows=21,
        skip=3,
    ),
    Dataset(
        name="van_der_pol",
        title="van der Pol oscillator: 11 noisy observations of the first coordinate at times 0 to 10",
        files=(),
        read=bundled.van_der_pol,
        licence="none stated: eleven numbers, listed in lowvar",
        citation=(
            "Oates, C. J., Girolami, M. and Chopin, N. (2017). Control functionals for Monte Carlo integration. "
            "JRSS B 79(3). The values are those of TI_Example/data.mat in "
            "github.com/jz-fun/Vector-valued-Control-Variates-Code."
        ),
        outputs=("u1",),
    ),
    _text(
        "wine_quality_red",
        "Wine quality, red: 1599 vinhos verdes, 11 measurements; quality as tasters score it, 3 to 8",
        _uci(
            "wine-quality/winequality-red.csv",
            "4a402cf041b025d4566d954c3b9ba8635a3a8a01e039005d97d6a710278cf05e",
            84199,
            "Cortez, P., Cerdeira, A., Almeida, F., Matos, T. and Reis, J. (2009). Wine Quality. UCI Machine Learning "
            "Repository. https://doi.org/10.24432/C56S3T",
        ),
        separator=";",
        inputs=_WINE,
        outputs=("quality",),
        rows=1599,
        skip=1,
    ),
    *(
        Dataset(
            name=name,
            title=f"Hierarchical linear regression, drawn with seed 0: 100 rows, 10 features{note}; 25 rows to predict",
            files=(),
            read=partial(bundled.hlr, seed=0, rows=100, test_rows=25, features=10, intercepts=intercepts),
            licence="none needed: drawn by lowvar",
            citation=(
                "Fujisawa, M. and Sato, I. (2021). Multilevel Monte Carlo Variational Inference. Journal of Machine "
                "Learning Research 22(278), Appendix F.1: the model that it is drawn from."
            ),
            outputs=("y",),
            scalings=("none",),
        )
        for name, intercepts, note in (
            ("hlr", "variance", ""),
            ("hlr_sd", "sd", ", sigma' read as a standard deviation"),
        )
    ),
    _idx_images(
        "mnist",
        "MNIST: 60000 handwritten digits of 28 x 28 pixels; the digit",
        folder="mnist",
        url="https://ossci-datasets.s3.amazonaws.com/mnist",
        images_=("440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609", 9912422),
        labels=("3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c", 28881),
        licence="CC BY-SA 3.0 as stated by Keras and TensorFlow",
        citation=(
            "LeCun, Y., Bottou, L., Bengio, Y. and Haffner, P. (1998). Gradient-based learning applied to document "
            "recognition. Proceedings of the IEEE 86(11), 2278-2324. https://doi.org/10.1109/5.726791"
        ),
    ),
    _idx_images(
        "fashion_mnist",
        "Fashion-MNIST: 60000 articles of clothing of 28 x 28 pixels; 10 kinds",
        folder="fashion-mnist",
        url="http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",
        images_=("3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84", 26421880),
        labels=("a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845", 29515),
        licence="MIT",
        citation=(
            "Xiao, H., Rasul, K. and Vollgraf, R. (2017). Fashion-MNIST: a Novel Image Dataset for Benchmarking "
            "Machine Learning Algorithms. https://arxiv.org/abs/1708.07747"
        ),
    ),
    _movielens(),
    _tennis(),
)

DATASETS = MappingProxyType({entry.name: entry for entry in _ENTRIES})


def get(name: "str | Dataset") -> Dataset:
    """The dataset called ``name``; a `Dataset` is returned unchanged.

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
    check_known("dataset", name, DATASETS)
    return DATASETS[name]
