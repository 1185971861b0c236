"""The declaration of a case, and helpers of the models."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro

CASES: dict[str, "Case"] = {}


@dataclass(frozen=True)
class Case:
    """A model with its data.

    Attributes:
        about: what it is, in a table's words.
        make: ``(rng, N) -> (model, data)``; the model takes ``batch``, the size of a mini-batch, too.
        rows: data rows, one count for each problem.
        refused: what the message of ``fit`` must say, where it must refuse the model.
        told: what a note of ``fit`` must say.
        plate: whether the data have a plate that can be subsampled; without one, SVI takes all rows too.
        truth: whether NUTS can sample the posterior in some seconds, with all rows.
        alike: whether parts of the latent variables can be exchanged (factors, hidden units, components).
    """

    about: str
    make: Callable[[np.random.Generator, int], tuple[Callable, dict[str, Any]]]
    rows: tuple[int, ...] = (500,)
    refused: str = ""
    told: str = ""
    plate: bool = True
    truth: bool = True
    alike: bool = False


def case(about: str, **settings):
    """Registers the decorated ``make`` under its name."""

    def add(make):
        CASES[make.__name__] = Case(about, make, **settings)
        return make

    return add


def rows(N, batch=None, name="data"):
    """The data plate."""
    return numpyro.plate(name, N, subsample_size=batch)


def as_data(**arrays):
    """Arrays as a user's data: float32 and int32."""
    return {key: jnp.asarray(value) for key, value in arrays.items()}
