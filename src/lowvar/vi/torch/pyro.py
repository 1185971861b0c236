"""A Pyro model with one data plate, as a ``TorchModel``.

The model runs with its latent sites set to values from R^d, with the Jacobians of their constraints in the log prior,
and with given rows in place of the plate's random index.
"""

import contextlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyro
import torch
from pyro import poutine
from pyro.distributions.torch_distribution import MaskedDistribution
from pyro.distributions.util import scale_and_mask, sum_rightmost
from pyro.poutine.messenger import Messenger
from pyro.poutine.subsample_messenger import SubsampleMessenger
from pyro.poutine.util import site_is_subsample
from torch.distributions import biject_to, constraints

from lowvar.core.rows import numeric_array
from lowvar.errors import RECODE, UserError, one_line
from lowvar.vi.check import batches, pairing, tensors_of
from lowvar.vi.torch.functions import plain, traceable

_CHUNK = 2**14  # rows whose observations are compared with their supports at a time


class _Free(Messenger):
    """Sets latent sites to the images of unconstrained values, and sums the log determinants of their Jacobians."""

    def __init__(self, free):
        super().__init__()
        self.free, self.jacobian = free, 0.0

    def _pyro_sample(self, msg):
        if msg["name"] in self.free and not msg["is_observed"]:
            transform, z = biject_to(msg["fn"].support), self.free[msg["name"]]
            msg["value"] = transform(z)
            self.jacobian = self.jacobian + transform.log_abs_det_jacobian(z, msg["value"]).sum()


@contextlib.contextmanager
def _plates(rows):
    """Plates whose rows are ``rows(name, size, subsample_size, subsample)``, their own if that is None.

    A plate's own ``subsample_size`` cannot be overridden by a handler.
    """
    own = SubsampleMessenger._subsample

    def subsample(name, size=None, subsample_size=None, subsample=None, use_cuda=None, device=None):
        index = None if size is None else rows(name, size, subsample_size, subsample)
        if index is None:
            return own(name, size, subsample_size, subsample, use_cuda, device)
        return size, len(index), index

    SubsampleMessenger._subsample = staticmethod(subsample)
    try:
        yield
    finally:
        SubsampleMessenger._subsample = staticmethod(own)


@contextlib.contextmanager
def _precision(dtype):
    """Draws and constants of the model in the precision of its data."""
    default = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(default)


def from_pyro(cls, model, data, name):
    """See ``TorchModel.from_pyro``."""
    model = plain(model)
    if not callable(model):
        raise UserError(f"from_pyro: the model must be a function, not {type(model).__name__}")
    name = str(name or getattr(model, "__name__", type(model).__name__))
    if not isinstance(data, Mapping):
        raise UserError(f"{name}: data must be a dict of the model's keyword arguments, not {type(data).__name__}")
    data, sizes, chosen = {key: _tensor(name, key, value) for key, value in data.items()}, {}, set()
    wide = any(isinstance(value, torch.Tensor) and value.dtype is torch.float64 for value in data.values())
    dtype = torch.float64 if wide else torch.get_default_dtype()

    def record(plate, size, subsample_size, subsample):
        sizes[plate] = size, subsample_size if subsample is None else len(subsample)
        if subsample is not None:
            chosen.add(plate)

    try:
        with torch.random.fork_rng(devices=[]), torch.no_grad(), _plates(record), _precision(dtype):
            torch.manual_seed(0)
            trace = poutine.trace(model).get_trace(**data)
    except UserError:
        raise
    except Exception as error:
        raise UserError(
            f"{name}: the model cannot be run on these data ({', '.join(data)}): {one_line(error)}"
        ) from error
    nodes: dict[str, Any] = dict(trace.nodes)
    sites = {key: site for key, site in nodes.items() if site["type"] == "sample" and not site_is_subsample(site)}
    latent = {key: site for key, site in sites.items() if not site["is_observed"]}
    plate = _data_plate(name, sites, sizes)
    N, subsample_size = int(sizes[plate][0]), sizes[plate][1]
    if plate in chosen:
        raise UserError(
            f"{name}: plate {plate!r} has an explicit `subsample`, which mini-batches cannot override; give it a "
            f"subsample_size instead: `with pyro.plate({plate!r}, N, subsample_size=batch_size) as index:`"
        )
    _check(name, nodes, latent, plate)
    outside = [site["name"] for site in _observed(sites) if _frame(site, plate) is None]
    free = {key: biject_to(site["fn"].support).inv(site["value"]) for key, site in latent.items()}
    shapes = {key: tuple(value.shape) for key, value in free.items()}
    lengths = [value.numel() for value in free.values()]

    def run(z, index):
        """The sites at a point, for some rows, and the log determinant of the constraints' Jacobian.

        Without an index, for the rows of the plate itself.
        """
        parts = zip(shapes.items(), torch.split(z, lengths), strict=True)
        values = _Free({key: part.reshape(shape) for (key, shape), part in parts})
        given = _plates(lambda name, *_: index if name == plate else None)
        with traceable(), pyro.validation_enabled(_NOT_ASKED), _precision(dtype), given, values:
            found: dict[str, Any] = dict(poutine.trace(model).get_trace(**data).nodes)
        return [site for key, site in found.items() if key in sites], values.jacobian

    def log_likelihood(z, index):
        rows = len(index)
        if rows == N > 1:  # with N rows, pyro.subsample does not subsample: evaluate in two parts
            return torch.cat([log_likelihood(z, index[: rows // 2]), log_likelihood(z, index[rows // 2 :])])
        total = z.new_zeros(rows)
        for site in run(z, index)[0]:
            if (frame := _frame(site, plate)) is not None:
                total = total + _by_row(_log_prob(site, rows / N), frame.dim, rows)
        return total

    def log_prior(z):  # with observations outside the plate, which count once
        found, jacobian = run(z, torch.zeros(1, dtype=torch.int64))
        return sum((_log_prob(site).sum() for site in found if _frame(site, plate) is None), z.new_zeros(()) + jacobian)

    def observed_outside(z, index):
        return {site["name"]: _log_prob(site).sum() for site in run(z, index)[0] if site["name"] in outside}

    def constrain(z):
        return {site["name"]: site["value"] for site in run(z, torch.zeros(1, dtype=torch.int64))[0]
                if site["name"] in latent}  # fmt: skip

    made = cls(
        log_likelihood, log_prior, N, sum(lengths), name, dtype, shapes, constrain=constrain,
        unconstrain={key: biject_to(site["fn"].support).inv for key, site in latent.items()},
        subsample_size=None if subsample_size == N else subsample_size,
    )  # fmt: skip
    _check_runs(name, made, plate, lambda z: run(z, None)[0])
    for site in _observed({s["name"]: s for s in run(torch.zeros(made.dim, dtype=dtype), torch.arange(2) % N)[0]}):
        if words := pairing(site["name"], site["value"].shape, site["fn"], _log_prob(site).shape):
            raise UserError(f"{name}: in a batch of two rows, {words}")
    _check_supports(name, made, lambda z, index: _observed({s["name"]: s for s in run(z, index)[0]}))
    if outside:
        _check_outside(name, made, plate, observed_outside)
    return made


def _tensor(name, key, value):
    """``value`` as a tensor of the same precision, if it is an array of NumPy; 0-dimensional integers as Python's."""
    if not isinstance(value, np.ndarray):
        return value
    value = np.array(numeric_array(name, key, value), order="C")
    if value.ndim == 0 and value.dtype.kind in "iub":
        return value.item()
    try:
        tensor = torch.from_numpy(value)
    except TypeError as error:
        raise UserError(f"{name}: {key!r} is a NumPy array of {value.dtype}: give a torch tensor") from error
    return tensor.to(torch.get_default_device())


def _observed(sites):
    """The sites with observations, and factors."""
    return [site for site in sites.values() if site["is_observed"] and not site["infer"].get("_deterministic")]


def _data_plate(name, sites, sizes):
    """The plate to subsample: the one around all observations that are in plates, or that with a subsample size."""
    observed = _observed(sites)
    if not observed:
        raise UserError(f"{name}: the model observes nothing; pass its observations in the data too")
    if any(frame.dim is None for site in sites.values() for frame in site["cond_indep_stack"]):
        raise UserError(f"{name}: the model loops over a plate; write `with pyro.plate(...) as index:`")
    stacks = {site["name"]: {frame.name for frame in site["cond_indep_stack"]} for site in observed}
    stacks = {key: stack for key, stack in stacks.items() if stack}
    around = set.intersection(*stacks.values()) if stacks else set()
    subsampled = {plate for plate, (size, subsample) in sizes.items() if subsample is not None and subsample < size}
    chosen = (around & subsampled or around) if subsampled <= around else set()
    if len(chosen) != 1:
        apart = ", ".join(f"{key!r} in {' and '.join(map(repr, sorted(stack)))}" for key, stack in stacks.items())
        none = f"none ({apart})" if apart else "none"
        raise UserError(
            f"{name}: the model needs exactly one data plate around all its observations and has "
            f"{', '.join(map(repr, sorted(around))) or none}; write "
            "`with pyro.plate('data', N, subsample_size=batch_size) as index:` and index the data by it alone"
        )
    (plate,) = chosen
    return plate


def _check(name, nodes, latent, plate):
    """Rejects sites that a global mean-field guide cannot represent."""
    if not latent:
        raise UserError(f"{name}: the model has no latent site to infer")
    if params := [key for key, site in nodes.items() if site["type"] == "param"]:
        raise UserError(
            f"{name}: {params[0]!r} is a pyro.param; a TorchModel has no point estimates: give it a prior, pyro.sample"
        )
    for key, site in latent.items():
        base = key.removesuffix("_unobserved")
        if base != key and {base, f"{base}_observed"} <= nodes.keys():  # the sites that Pyro makes of obs_mask
            raise UserError(
                f"{name}: site {base!r} has an obs_mask, which makes its masked values latent; leave them out: "
                f"`with pyro.poutine.mask(mask=mask[index]): pyro.sample({base!r}, ..., obs=y[index])`"
            )
        if site["fn"].support.is_discrete:
            raise UserError(f"{name}: latent site {key!r} is discrete; marginalise it out of the model")
        if _frame(site, plate) is not None:
            raise UserError(
                f"{name}: latent site {key!r} is inside the data plate {plate!r}; sample all of its values before the "
                "plate (dist.Normal(0, 1).expand([N]).to_event(1)) and index them inside, or marginalise it"
            )


def _check_runs(name, model, plate, sites_at):
    """Checks that the log densities can be computed for the plate's own rows, and for other rows by their numbers."""
    z, where = torch.zeros(model.dim, dtype=model.dtype), ""
    try:
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            for site in sites_at(z):
                where = f"of site {site['name']!r} fails"
                _log_prob(site)
            if model.N > 2:
                where = (
                    f"fails on 2 of the {model.N} rows of plate {plate!r}; index the data by it: `with pyro.plate("
                    f"{plate!r}, N, subsample_size=batch_size) as index:` and x[index], obs=y[index]"
                )
                model.log_likelihood(z, torch.tensor([0, model.N - 1]))
    except Exception as error:
        raise UserError(f"{name}: the log density {where}: {one_line(error)}") from error


# In place of False, as the default of distributions: those that were given ``validate_args=False`` have False itself.
_NOT_ASKED: Any = 0


def _check_supports(name, model, observed_at):
    """Checks that observations lie in their distributions' supports, outside of which some densities are finite.

    Values of distributions with ``validate_args=False`` are meant.
    """
    z = torch.zeros(model.dim, dtype=model.dtype)
    for index in torch.arange(model.N).split(_CHUNK):
        bounded = [
            site for site in observed_at(z, index)
            if _unwrapped(site["fn"])[0]._validate_args is not False and _support(site["fn"])
        ]  # fmt: skip
        if not bounded:
            return
        for site in bounded:
            fn, seen = site["fn"], torch.as_tensor(True if site["mask"] is None else site["mask"])
            if not fn.support.is_discrete:
                seen = seen & torch.isfinite(_log_prob(site))  # others are refused by their rows
            inner, seen = _unwrapped(fn, seen)
            wrong = ~inner.support.check(site["value"]) & seen
            if wrong.any():
                value = site["value"].expand(wrong.shape + inner.event_shape)[wrong][0]
                raise UserError(
                    f"{name}: {site['name']!r} is {value.tolist()} for {int(wrong.sum())} observations or more, "
                    f"outside the support of {type(inner).__name__}, {inner.support}: {RECODE} the data, choose "
                    "another distribution, or set its validate_args=False if the values are meant"
                )


def _support(fn):
    """The support of a distribution; None if it is the real line or unknown, as of a distribution of the user's own."""
    try:
        support = fn.support
    except NotImplementedError:
        return None
    return None if support is constraints.real or constraints.is_dependent(support) else support


def _unwrapped(fn, seen=None):
    """A distribution without those that mask it or sum its axes, and which of its values count."""
    seen = torch.tensor(True) if seen is None else seen
    while isinstance(fn, (torch.distributions.Independent, MaskedDistribution)):
        if isinstance(fn, MaskedDistribution):
            seen = seen & fn._mask
        else:
            seen = seen.reshape(*seen.shape, *[1] * fn.reinterpreted_batch_ndims)
        fn = fn.base_dist
    return fn, seen


def _check_outside(name, model, plate, observed_outside):
    """Checks that what is observed outside the plate is the same for every batch."""
    z = torch.linspace(-0.3, 0.5, model.dim, dtype=model.dtype)
    found = batches(model.N, model.dim, tensors_of(model.log_likelihood))
    values = [observed_outside(z, torch.as_tensor(np.array(rows, np.int64))) for rows in ([0], *found)]
    for key, first in values[0].items():
        if not all(torch.allclose(first, other[key], rtol=1e-5, equal_nan=True) for other in values[1:]):
            raise UserError(
                f"{name}: the log density of {key!r}, outside the plate {plate!r}, changes with the rows of the batch; "
                "move it into the plate, with a value for each row"
            )


def _frame(site, plate):
    """The frame of a plate around a site, or None."""
    return next((frame for frame in site["cond_indep_stack"] if frame.name == plate), None)


def _log_prob(site, share=1.0):
    """The log density of a site's value with its scale times ``share`` and its mask, entry by entry."""
    value = site["fn"].log_prob(site["value"], *site["args"], **site["kwargs"])
    return scale_and_mask(value, site["scale"] * share, site["mask"])


def _by_row(log_prob, dim, rows):
    """Sums a site's log density over everything but the plate's axis ``dim`` (negative)."""
    log_prob = log_prob.expand(torch.broadcast_shapes(log_prob.shape, (rows, *[1] * (-dim - 1))))
    return sum_rightmost(log_prob.movedim(dim, 0), log_prob.ndim - 1)
