"""Simulation-based calibration of a fit: how often do its intervals hold the parameters that made the data?"""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from numpyro import handlers
from numpyro.distributions import Unit

from lowvar.core.intervals import median_interval, share_interval
from lowvar.core.keys import named_key
from lowvar.errors import UserError, kind_of, whole
from lowvar.vi.fit import bar, fit
from lowvar.vi.numpyro.trace import AllRows, is_latent, jax_arguments, leaves, plain, run_on, sites_of
from lowvar.vi.summary import label

_FEWEST = 20  # simulated data sets, below which an interval of a coverage says nothing
_LEVELS = (50, 90)  # percent
_FALSE = 0.05  # probability that the conclusions name an entry whose coverage is right


@dataclass(frozen=True, repr=False)
class Calibration:
    """The result of ``calibrate``; ``print`` shows its conclusions and its table.

    Attributes:
        table: pandas, a row for each entry ``site[i, j]`` in the unconstrained space. ``cover_50`` and ``cover_90``
            are the shares of the fits whose central intervals held the truth; ``above`` the share of the truths above
            the fit's median, 0.5 where there is no bias; ``widen`` the factor of the standard deviations with which
            half of the truths would lie in the central 50 % intervals. ``_low`` and ``_high`` are the ends of 95 %
            intervals, over the simulated data sets.
        p: the fits' probabilities of a value below the truth, ``(fits, entries)``: uniform if the fit is exact.
        failed: why fits failed, a sentence each; their data sets are left out.
        noted: the first note of each fit that has any, such as that it has not converged; these fits count.
        title: the model, the number of fits and their settings.

    >>> import lowvar, numpy as np, numpyro, numpyro.distributions as dist
    >>> def model(y):
    ...     mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
    ...     with numpyro.plate("rows", len(y)) as i:
    ...         numpyro.sample("y", dist.Normal(mu, 1.0), obs=y[i])
    >>> found = lowvar.calibrate(model, {"y": np.zeros(9)}, fits=20, progress=False)
    >>> found.conclusions()
    ['no coverage and no bias is surely off, in 20 fits of 1 entries']
    >>> found.p.shape, found.failed
    ((20, 1), ())
    """

    table: Any
    p: np.ndarray
    failed: tuple[str, ...]
    noted: tuple[str, ...]
    title: str

    def __repr__(self) -> str:
        return f"Calibration({self.title})"

    def __str__(self) -> str:
        return "\n".join(
            [self.title, *self.conclusions(), "", self.table.to_string(float_format="{:.3g}".format, max_rows=60)]
        )

    def conclusions(self) -> list[str]:
        """Sentences on the entries whose coverage or bias is surely not that of an exact posterior, and on failures."""
        from scipy.special import bdtr, bdtrc

        fits, entries = self.p.shape
        out = []
        for column, wanted, words in (
            ("cover_90", 0.9, "90 % intervals hold the truth of {} in {:.0%} [{:.0%}, {:.0%}] of the fits"),
            ("above", 0.5, "truths of {} are above the fit's median in {:.0%} [{:.0%}, {:.0%}] of the fits"),
        ):
            count = np.rint(self.table[column] * fits)
            tails = np.minimum(bdtr(count, fits, wanted), np.where(count > 0, bdtrc(count - 1, fits, wanted), 1))
            sure = np.flatnonzero(2 * tails < _FALSE / (2 * entries))
            if len(sure):
                worst = sure[np.argmax(np.abs(self.table[column].iloc[sure] - wanted))]
                row = self.table.iloc[worst]
                said = words.format(self.table.index[worst], *(row[column + end] for end in ("", "_low", "_high")))
                more = f"; {len(sure)} of {entries} entries are off" if len(sure) > 1 else ""
                out.append(f"{said} ({wanted:.0%} if they were exact){more}")
        if not out:
            out = [f"no coverage and no bias is surely off, in {fits} fits of {entries} entries"]
        if self.failed:
            out.append(f"{len(self.failed)} fits failed and are left out, the first: {self.failed[0]}")
        if self.noted:
            out.append(f"{len(self.noted)} of {fits} fits have notes, the first: {self.noted[0]}")
        return out


def calibrate(
    model: Any,
    data: Mapping[str, Any],
    *,
    fits: int = 100,
    linear_response: bool = False,
    seed: int = 0,
    progress: bool | None = None,
    **settings: Any,
) -> Calibration:
    """Simulation-based calibration of ``fit`` for a NumPyro model.

    Parameters are drawn from the prior and data from the model, ``fits`` times; each data set is fitted as ``fit``
    would. Were the fits exact posteriors, their central 90 % intervals would hold the parameters in 90 % of the cases,
    averaged over the prior. So this judges a model, a guide and a number of rows, not one data set: where the prior is
    far wider than the posterior, data sets unlike yours count too.

    Args:
        model: a NumPyro model. Its priors must be proper, and it must observe arguments as they are: ``obs=y`` or
            ``obs=y[index]``.
        data: its keyword arguments; those that it observes are replaced by simulated ones of the same shape and type.
        fits: number of data sets, 20 or more; with 100, a coverage of 0.9 has the interval [0.82, 0.95].
        linear_response: whether the standard deviations are those of linear response, see ``Fit.covariance``.
        seed: of parameters, data and fits.
        progress: whether to show a progress bar; by default on a terminal and in a notebook.
        **settings: of ``fit``, such as ``guide`` or ``num_steps``.

    Returns:
        A ``Calibration``.

    Raises:
        UserError: a model that cannot be simulated, no fit that succeeds, or as ``fit``.

    References:
        Yao, Vehtari, Simpson and Gelman, "Yes, but did it work? Evaluating variational inference", 2018, section 4;
        Talts, Betancourt, Simpson, Vehtari and Gelman, "Validating Bayesian inference algorithms with simulation-based
        calibration", 2018.

    >>> import lowvar, numpy as np, numpyro, numpyro.distributions as dist
    >>> def model(y):
    ...     mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
    ...     with numpyro.plate("rows", len(y)) as i:
    ...         numpyro.sample("y", dist.Normal(mu, 1.0), obs=y[i])
    >>> found = lowvar.calibrate(model, {"y": np.zeros(9)}, fits=20, progress=False)
    >>> found.table.index.tolist(), bool(found.table["cover_90"]["mu"] > 0.6)
    (['mu'], True)
    """
    from scipy.special import ndtr

    fits, seed = whole("fits", fits, _FEWEST), whole("seed", seed, 0)
    for name in ("progress", "callback", "init"):
        if name in settings:
            raise UserError(f"calibrate: {name}: a setting of one fit; leave it out")
    if not isinstance(linear_response, bool | np.bool_):
        raise UserError(f"calibrate: linear_response {linear_response!r}: it must be True or False")
    if not callable(model):
        raise UserError(f"calibrate: model: a NumPyro model that simulates its data, not {kind_of(model)}")
    name = str(getattr(model, "__name__", "model"))
    observed = _observed(model, data, name)
    settings = {"khat_samples": 0, **settings}
    found, failed, noted, labels = [], [], [], []
    with bar(progress, name, fits, "fit") as tick:
        for k in range(fits):
            truth, simulated = _simulated(model, data, observed, named_key(seed, f"calibrate {k}"), name)
            if k == 0:
                _check_read_once(model, data, simulated, observed, truth, name)
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    fitted = fit(model, {**data, **simulated}, seed=seed + k, progress=False, **settings)
                    fitted = fitted.with_linear_response() if linear_response else fitted
            except UserError as error:
                failed.append(str(error))
                if not found and len(failed) == 3:  # of such settings, none will succeed
                    raise
            else:
                one, noted = _distances(fitted, truth), [*noted, *fitted.notes[:1]]
                labels = [site + label(place) for site, values in one.items() for place in np.ndindex(values.shape)]
                found.append(np.concatenate([values.ravel() for values in one.values()]))
            tick(1)
    if not found:
        raise UserError(f"calibrate: no fit succeeded, the first because of: {failed[0]}")
    z = np.array(found)
    kind = ", standard deviations by linear response" if linear_response else ""
    given = "".join(f", {key}={value!r}" for key, value in settings.items() if key != "khat_samples")
    title = f"{name}: {len(z)} fits of data simulated from the prior{given}{kind}"
    return Calibration(_table(z, labels), ndtr(z), tuple(failed), tuple(noted), title)


def _observed(model, data, name: str) -> dict[str, str]:
    """The argument that each observed site observes, by site.

    Raises:
        UserError: a site that observes no argument as it is, ``numpyro.factor`` or ``numpyro.param``, or none at all.
    """
    sites = _drawn(handlers.seed(AllRows(plain(model)), jax.random.key(0)), model, data, name)
    arrays = {key: np.asarray(leaf) for key, leaf in leaves(data).items() if np.ndim(leaf) or np.isscalar(leaf)}
    observed = {}
    for site in sites.values():
        if site["type"] == "param":
            raise UserError(f"calibrate: {name}: numpyro.param {site['name']!r} has no prior; give it one")
        if site["type"] != "sample" or not site["is_observed"]:
            continue
        if isinstance(getattr(site["fn"], "base_dist", site["fn"]), Unit):
            raise UserError(
                f"calibrate: {name}: {site['name']!r} is a numpyro.factor, from which no data can be drawn; write its "
                "density as a distribution of observed data"
            )
        value = np.asarray(site["value"])
        same = [
            key for key, array in arrays.items()
            if key in data and array.shape == value.shape
            and np.array_equal(array.astype(value.dtype), value, equal_nan=value.dtype.kind == "f")
        ]  # fmt: skip
        if not same:
            raise UserError(
                f"calibrate: {name}: site {site['name']!r} observes no argument of the model as it is; pass what it "
                f"observes as an argument of its own, and write obs=y or obs=y[index] (arguments: {', '.join(data)})"
            )
        if len(same) > 1 and site["name"] not in same:
            raise UserError(
                f"calibrate: {name}: site {site['name']!r} may observe {' or '.join(map(repr, same))}, which are "
                "equal; give them different values, or the site the argument's name"
            )
        observed[site["name"]] = site["name"] if site["name"] in same else same[0]
    if twice := {one for one in observed.values() if list(observed.values()).count(one) > 1}:
        raise UserError(f"calibrate: {name}: two sites observe {twice.pop()!r}; give each an argument of its own")
    if not observed:
        raise UserError(f"calibrate: {name} observes no data")
    return observed


def _simulated(model, data, observed, key, name: str) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Latent values drawn from the prior, by site; and data drawn given these, by argument."""
    sites = _drawn(handlers.seed(handlers.uncondition(AllRows(plain(model))), key), model, data, name)
    values = {key: site["value"] for key, site in sites.items() if site["type"] == "sample"}
    simulated = {}
    for site, argument in observed.items():
        given, value = np.asarray(data[argument]), np.asarray(values.pop(site))
        cast = value.astype(given.dtype)  # but integers would cut off what a normal draws, and small ones large counts
        simulated[argument] = cast if given.dtype.kind == "f" or np.array_equal(cast, value) else value
    return {key: value for key, value in values.items() if is_latent(sites[key])}, simulated


def _drawn(handled, model, data, name: str) -> dict[str, Any]:
    """The sites of a run that draws values."""
    arguments = jax_arguments(model, data, name)
    with run_on(name, arguments):
        try:
            return sites_of(handled, **arguments)
        except NotImplementedError as error:
            raise UserError(
                f"calibrate: {name}: a distribution cannot be drawn from, such as an improper prior; give a proper one"
            ) from error


def _check_read_once(model, data, simulated, observed, truth, name: str) -> None:
    """Checks that nothing but the observations changes with the data that are replaced, as a prior about their mean."""

    def densities(given):
        values = {**truth, **{site: simulated[argument] for site, argument in observed.items()}}
        fixed = handlers.seed(handlers.substitute(AllRows(plain(model)), data=values), jax.random.key(0))
        sites = _drawn(fixed, model, given, name)
        return {
            key: np.asarray(site["fn"].log_prob(values[key]), float) for key, site in sites.items() if key in values
        }

    before, after = densities(data), densities({**data, **simulated})
    for key, value in before.items():
        if not np.allclose(value, after[key], rtol=1e-4, atol=1e-6, equal_nan=True):
            raise UserError(
                f"calibrate: {name}: the density of {key!r} changes with {' and '.join(map(repr, simulated))}, which "
                "the model reads elsewhere than in obs; pass what it reads there as an argument of its own"
            )


def _distances(fitted, truth: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The truth less the guide's mean, in its standard deviations, by site in its unconstrained shape."""
    problem, backend = fitted.problem, fitted.problem.backend
    params = {block: backend.asarray(value) for block, value in fitted.guide_params.items()}
    mean, sd = (problem.unravel(read(params)) for read in (lambda p: problem.guide.point(p)["mu"], problem.guide.scale))
    free = {site: np.asarray(problem.transforms[site].inv(truth[site]), float) for site in problem.latent}
    return {site: (free[site] - np.asarray(mean[site])) / np.asarray(sd[site]) for site in free}


def _table(z: np.ndarray, labels: list[str]):
    """The columns of ``Calibration.table``, from ``_distances (fits, entries)``."""
    import pandas as pd
    from scipy.special import ndtri

    counts = {f"cover_{level}": (np.abs(z) <= ndtri(0.5 + level / 200)).sum(0) for level in _LEVELS}
    counts["above"] = (z > 0).sum(0)
    table = {}
    for column, count in counts.items():
        table[column] = count / len(z)
        table[f"{column}_low"], table[f"{column}_high"] = share_interval(count, len(z))
    off = np.abs(z) / ndtri(0.75)
    table["widen"] = np.median(off, axis=0)
    table["widen_low"], table["widen_high"] = median_interval(off.T)
    return pd.DataFrame(table, index=labels)
