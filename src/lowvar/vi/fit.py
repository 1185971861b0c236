"""``lowvar.fit``: Gaussian variational inference of a NumPyro model."""

import contextlib
import inspect
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
import optax

from lowvar.core import loop
from lowvar.core.files import check_folder
from lowvar.core.keys import named_key, numpy_generator
from lowvar.errors import UserError, chosen_names, kind_of, whole
from lowvar.vi import linear_response, saved
from lowvar.vi.devices import divided
from lowvar.vi.estimators import GRADIENT
from lowvar.vi.estimators.base import Estimator
from lowvar.vi.guides.gaussian import with_guide
from lowvar.vi.judgement import (
    LEAST,
    Optimum,
    judge_fit,
    khat,
    khat_limit,
    log_weights,
    noisy_of,
    reliable,
)
from lowvar.vi.run import engine as engines
from lowvar.vi.run import fixed_draws
from lowvar.vi.run.fit_run import ENDED, Evaluation, FitRun, Watch, call_back, interruptible, rule_of
from lowvar.vi.run.fixed_draws import FixedDraws
from lowvar.vi.run.settings import LBFGS, Method
from lowvar.vi.settings import (
    check_arguments,
    check_callback,
    default_estimator,
    depends_on_batch,
    own_objects,
    problem_of,
    settings_of,
    start_of,
    starts,
)
from lowvar.vi.summary import summary as table_of
from lowvar.vi.variational import common_elbo
from lowvar.vi.weighted import doubt, guides, shares

if TYPE_CHECKING:
    from lowvar.vi.guides.amortised import Amortised

_PROPOSALS = 2000  # draws that are weighted, at least
_COSTLY = "each draw is a pass over all rows; set khat_samples to compute it"


class Draws(dict):
    """Resampled draws by site, ``{site: (S, ...)}``: a dict, also as a tree of JAX.

    Attributes:
        khat: of the importance weights.
        effective: the effective number of the draws that were weighted.
    """

    def __init__(self, sites: Mapping[str, np.ndarray], khat: float | None, effective: float | None):
        super().__init__(sites)
        self.khat, self.effective = khat, effective


jax.tree_util.register_pytree_node(
    Draws,
    lambda draws: (tuple(draws.values()), (tuple(draws), draws.khat, draws.effective)),
    lambda about, leaves: Draws(dict(zip(about[0], leaves, strict=True)), *about[1:]),
)


@dataclass(frozen=True, repr=False)
class Fit:
    """The result of ``fit``; its ``repr`` is one line, ``print`` shows its settings and notes too.

    Attributes:
        params: parameters under the names of NumPyro's guide, and ``numpyro.param`` sites under theirs;
            ``numpyro.infer.Predictive`` takes them with ``guide``. The mean-field guide has ``AutoNormal``'s,
            ``{site}_auto_loc`` and ``{site}_auto_scale``, in the site's unconstrained shape; ``low_rank`` those of
            ``AutoLowRankMultivariateNormal``, ``full_rank`` and ``block_diagonal`` of ``AutoMultivariateNormal``.
        elbo: table with columns ``iteration, elbo, elbo_se`` (nats), of the iterates; the last row is of the result.
        problem: the model as a ``VariationalProblem``.
        guide_params: the same parameters as vectors by block, ``{"mu": (dim,), "log_sigma": (dim,)}``; other guides
            than the mean-field one have further blocks.
        khat: the k-hat of Pareto-smoothed importance sampling: above 0.7, the guide is a poor approximation of the
            posterior. Not so where the importance weights are nearly equal, and no note speaks of k-hat: it is the
            shape of their tail, whatever its scale. None if it was not computed. It is computed from draws of the
            guide, so it cannot see a mode that the guide leaves out; see docs/life-of-a-fit.md on the look for these.
        notes: sentences on problems of the fit; also issued as warnings.
        run: settings and memory of a fit by stochastic steps; None for one at fixed draws.
        fixed: how a fit at fixed draws ended, a ``vi.run.fixed_draws.FixedDraws``; None for one by stochastic steps.
        optimum: the estimated distance from the best guide of the family, a ``vi.judgement.Optimum`` by coordinate of
            the unconstrained space; None without k-hat, for guides whose coordinates are tied, and where the fit has
            clearly not converged.

    >>> import lowvar, numpy as np, numpyro, numpyro.distributions as dist
    >>> def model(y):
    ...     mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
    ...     with numpyro.plate("rows", len(y)) as i:
    ...         numpyro.sample("y", dist.Normal(mu, 1.0), obs=y[i])
    >>> fit = lowvar.fit(model, {"y": np.full(9, 2.0)}, progress=False)
    >>> fit
    Fit(model, dim 1: ELBO -... +- ... nats after ... steps, k-hat ...)
    >>> {name: value.shape for name, value in fit.params.items()}
    {'mu_auto_loc': (), 'mu_auto_scale': ()}
    >>> fit.sample(100)["mu"].shape
    (100,)
    """

    params: dict[str, Any]
    elbo: Any
    problem: Any
    guide_params: dict[str, np.ndarray]
    khat: float | None = None
    notes: tuple[str, ...] = ()
    run: FitRun | None = field(default=None, repr=False)
    fixed: FixedDraws | None = field(default=None, repr=False)
    optimum: Optimum | None = field(default=None, repr=False)

    def __repr__(self) -> str:
        last = self.elbo.iloc[-1]
        elbo, error = float(last["elbo"]), float(last["elbo_se"])
        digits = int(np.clip(1 - np.floor(np.log10(error)), 0, 8)) if error > 0 else 4
        reached = f"ELBO {elbo:.{digits}f} +- {error:.{digits}f} nats after {int(last['iteration'])} steps"
        tail = "" if self.khat is None else f", k-hat {self.khat:.2f}"
        return f"Fit({self.problem.name}, dim {len(noisy_of(self.problem))}: {reached}{tail})"

    def __str__(self) -> str:
        lines = [repr(self)]
        if self.run is not None:
            settings = self.run.settings
            optimizer = (
                f"{settings.optimizer} with step size {settings.step_sizes[0]:g}"
                if not settings.own
                else f"{settings.optimizer} with a schedule of step sizes"
                if "step_size_at" in settings.own
                else "an optimizer of optax"
            )
            rows = (
                f"batches of {settings.batch_size} out of {self.problem.N} rows"
                if self.problem.plate
                else "all the data"
            )
            lines.append(f"estimator {self.run.method.estimator}, {rows}, {optimizer}")
            lines += ENDED.get(self.run.ended, [])
        if self.fixed is not None:
            lines.append(
                f"optimizer lbfgs, all the data, {self.fixed.draws} fixed draws, {self.fixed.iterations} iterations"
            )
            lines += ENDED["callback"] if self.fixed.ended == "callback" else []
        if (rows := self.problem.elbo_rows) < self.problem.N:
            lines.append(
                f"ELBOs are from {rows} of the {self.problem.N} rows, the same ones at all steps: their differences "
                "are more accurate than elbo_se, which contains the sampling of the rows"
            )
        if self.optimum is not None:
            off, error = np.nan_to_num(self.optimum.sd), np.nan_to_num(self.optimum.sd_se)
            lines.append(
                f"standard deviations are up to {np.abs(off).max():.1%} off those of the best such guide, by an "
                f"estimate with standard errors up to {error.max():.1%}"
            )
        if self.khat is None:
            how = self.run or self.fixed
            why = "khat_samples is 0" if how and how.khat_samples == 0 else _COSTLY
            why = "the fit was interrupted" if how and how.ended == "interrupted" else why
            why = why if how is None or self.elbo["iteration"].iloc[-1] else "no step was made"
            lines.append(f"k-hat was not computed: {why}")
        return "\n".join([*lines, *self.notes])

    @cached_property
    def guide(self):
        """The guide as an object of the model's library.

        For a NumPyro model, the guide of ``numpyro.infer.autoguide`` that accepts ``params``, see
        ``vi.guides.forms``. For a ``TorchModel``, the normal of ``torch.distributions`` over ``z``.
        """
        return self.problem.auto_guide(self.guide_params)

    def sample(self, num_samples: int = 1000, seed: int = 0, *, importance: bool = False) -> dict[str, np.ndarray]:
        """Draws from the fitted guide, in constrained space: ``{site: (num_samples, ...)}``.

        Observed sites and those that follow from the data are not included; use ``Predictive`` for those.
        ``numpyro.param`` sites are in ``params``.

        Args:
            num_samples: number of draws.
            seed: their seed.
            importance: whether the draws are resampled towards the posterior, by importance weights, Pareto-smoothed
                where k-hat is below its limit, of four times as many (at least 2000): each takes a pass over all rows.
                The result then is a ``Draws``, a dict with ``khat`` and ``effective``, the effective number of the
                draws that were weighted. A guide that is too narrow, as the mean-field one where coordinates are
                correlated, gives poor weights: see ``with_linear_response``.

        Raises:
            UserError: a setting out of range; or, with ``importance``, k-hat is above its limit, and the weights are
                not nearly equal.

        References:
            Vehtari, Simpson, Gelman, Yao and Gabry, "Pareto smoothed importance sampling", 2024.
        """
        num_samples, seed = whole("num_samples", num_samples, 1), whole("seed", seed, 0)
        if not isinstance(importance, (bool, np.bool_)):
            raise UserError(f"importance {importance!r}: it must be True or False")
        problem, backend = self.problem, self.problem.backend
        drawn = max(4 * num_samples, _PROPOSALS) if importance else num_samples
        eps = jax.random.normal(named_key(seed, "posterior"), (drawn, problem.noise_dim), problem.dtype)
        params = {block: backend.asarray(value) for block, value in self.guide_params.items()}
        eps, found, effective = np.asarray(eps, problem.dtype), None, None  # JAX may lack float64, PyTorch not
        if importance:
            weights = log_weights(problem, params, eps)
            found = khat(weights)
            if not reliable(found, weights):
                raise UserError(
                    f"sample: importance weights have k-hat {found:.2f}, above {khat_limit(drawn):.2g}: draws from "
                    "this guide cannot be resampled to the posterior's; try a wider guide, as that of "
                    "fit.with_linear_response() is beside a mean-field one, or NUTS"
                )
            share = shares(weights, found)
            effective = float(1 / np.square(share).sum())
            places = (numpy_generator(named_key(seed, "resampling")).random() + np.arange(num_samples)) / num_samples
            chosen = np.searchsorted(np.cumsum(share), places).clip(max=drawn - 1)  # systematic
            eps = numpy_generator(named_key(seed, "order")).permutation(eps[chosen])
        transform = backend.vmap(lambda eps: problem.guide.transform(params, eps))
        draws = problem.draws(transform(backend.asarray(eps)))
        return draws if found is None else Draws(draws, found, effective)

    def with_linear_response(self, *, error: float = 0.01, seed: int = 0) -> "Fit":
        """The fit with a full-rank guide of the same means, whose covariance is that of linear response.

        Its draws, summary and ArviZ export then have the standard deviations and correlations of ``covariance``, in the
        unconstrained space; its k-hat, and its note, tell whether they can be trusted. Saved, it is a fit of the
        full-rank guide; it cannot be resumed, but ``lowvar.fit(..., guide="full_rank", init=it)`` starts from it.

        Args:
            error: see ``covariance``.
            seed: see there.

        Raises:
            UserError: see ``covariance``; or more than 512 coordinates.
        """
        problem, free = with_guide(self.problem, "full_rank"), noisy_of(self.problem)
        everything = self._chosen(None, "with_linear_response", self.sample(1))
        covariance, names, beside = linear_response.of_coordinates(self, everything, error, seed)
        factor = np.eye(problem.dim)
        factor[np.ix_(free, free)] = np.linalg.cholesky(covariance)
        params = problem.guide.from_factor(self.guide_params["mu"], factor)  # type: ignore[attr-defined]
        params = {block: np.asarray(value, problem.dtype) for block, value in params.items()}
        arrays = {block: problem.backend.asarray(value) for block, value in params.items()}
        value, deviation = map(float, common_elbo(problem, LEAST)(arrays))
        trace = self.elbo.iloc[-1:].assign(elbo=value, elbo_se=deviation)
        fitted = fit_of(problem, params, trace)
        if beside is None:
            return fitted
        why = doubt(names, beside)
        notes = (_doubtful(problem, why),) if why else ()
        for note in notes:
            warnings.warn(note, UserWarning, stacklevel=2)
        return replace(fitted, khat=beside.khat, notes=notes)

    def to_arviz(self, num_samples: int = 1000, seed: int = 0, *, importance: bool = False):
        """The draws as ArviZ inference data (one chain); arguments as for ``sample``.

        Raises:
            UserError: ArviZ is not installed; see ``sample``.
        """
        try:
            import arviz
        except ModuleNotFoundError as error:
            raise UserError("to_arviz needs the package arviz: pip install 'lowvar[arviz]'") from error
        posterior = {
            site: np.asarray(draws)[None]
            for site, draws in self.sample(num_samples, seed, importance=importance).items()
        }
        if "posterior" in inspect.signature(arviz.from_dict).parameters:  # before ArviZ 1.0
            return arviz.from_dict(posterior=posterior)
        return arviz.from_dict({"posterior": posterior})

    def resume(
        self,
        num_steps: int,
        *,
        stop: bool | float = False,
        callback: Callable[[Evaluation], Any] | None = None,
        khat_samples: int | None = None,
        progress: bool | None = None,
    ):
        """The fit after ``num_steps`` further updates: the same bytes as one longer fit with the same settings.

        Optimizer, memory of the estimator, and noise continue where they were. Steps since the last whole epoch are
        made again. The schedule ``cosine`` is stretched to the new end: step sizes rise again and fall later,
        which is not the path of one longer fit. A fit on other data, or with other settings, starts from the
        parameters alone: ``lowvar.fit(..., init=fit)``.

        Args:
            num_steps: further updates.
            stop: see ``lowvar.fit``.
            callback: see ``lowvar.fit``.
            khat_samples: see ``lowvar.fit``; as in the fit if not given.
            progress: see ``lowvar.fit``.

        Raises:
            UserError: the estimator depends on the length of the whole run (``mlmc_optimal``), or the fit was loaded
                without its own optimizer or estimator.
        """
        check_callback(callback)
        more = whole("num_steps", num_steps, 1, or_float=True)
        run = self.run
        if self.fixed is not None:
            raise UserError(
                "resume: a fit at fixed draws has no stochastic steps to continue: start some from it, "
                "lowvar.fit(..., init=fit, num_steps=...), or raise num_steps of optimizer='lbfgs'"
            )
        if run is None or not run.stops:
            raise UserError(
                "resume: this fit has no state to continue from: it is of with_linear_response, and init=fit starts "
                "from it, or lowvar.load needs the optimizer or estimator that fit was given as an object"
            )
        needed, backend = np.dtype(self.problem.dtype), self.problem.backend
        if backend.to_numpy(backend.asarray(np.zeros((), needed))).dtype != needed:
            raise UserError(f"resume: the fit is in {needed}; set jax_enable_x64 as in the fit")
        if "epochs" in GRADIENT.options_of(run.method.factory):
            raise UserError(
                f"resume: {run.method.estimator!r} plans its particles for the number of steps of the whole run; make "
                "one longer fit, or start another from this one: init=fit"
            )
        total = run.num_steps + more
        steps = -(-self.problem.N // run.settings.batch_size)
        longer = replace(run.settings, epochs=-(-total // steps), schedule=_to(total, run.settings.schedule))
        draws = run.khat_samples if khat_samples is None else checked_draws(khat_samples)
        run = replace(run, settings=longer, num_steps=total, ended="budget", khat_samples=draws)
        return run_to_end(self.problem, run, progress, rule_of(stop), callback)

    def save(self, path: str | os.PathLike) -> None:
        """Writes the fit to one npz file, whole or not at all; ``lowvar.load`` reads it.

        The file has parameters, ELBO trace, settings, optimizer state and memory of the estimator, but neither the
        model nor the data: ``load`` needs both, and rejects others.

        Args:
            path: the file, in a folder that exists.

        Raises:
            UserError: an option of the estimator that is no number or text, or a folder that does not exist or cannot
                be written.
        """
        check_folder(path)
        saved.write(self, path)

    def __reduce__(self):
        return saved.pickled(self, _unpickled)

    def summary(
        self,
        var_names: Any = None,
        *,
        hdi_prob: float = 0.94,
        kind: str = "hdi",
        num_samples: int = 4000,
        seed: int = 0,
        round_to: str | None = None,
    ):
        """A table of the latent variables, in the form of ``arviz.summary``.

        A row for each entry of each site, ``site[i, j]``, in constrained space, from independent draws of the guide.
        Chains, and with them ``ess`` and ``r_hat``, do not exist here. The Monte Carlo errors are those of the draws.
        ``opt_mean`` and ``opt_sd`` are about the errors that the optimisation has left: the estimated distance from
        the best guide of the family, or its standard error if that is larger, see ``Fit.optimum``; not a number where
        unknown. How far that guide is from the posterior is another question, see ``khat``. ``lr_sd`` is the standard
        deviation by linear response, see ``covariance``, with its standard error ``lr_sd_se``: where it is above
        ``sd``, the guide is too narrow, as it is where coordinates are correlated, or the posterior is skewed. It is
        not a number where linear response is not to be had, ``covariance`` says why, or costs more than a fit.

        Args:
            var_names: sites to show, one name or several; all if not given.
            hdi_prob: probability of the interval.
            kind: ``"hdi"``, the shortest interval, or ``"eti"``, that with equal tails.
            num_samples: draws.
            seed: their seed.
            round_to: ``"auto"`` for text, as of ``lowvar.summary``: means, interval and standard deviations to the
                place of their errors' first digit, all others to two digits. By default numbers.

        Returns:
            pandas, columns ``mean, sd, hdi_3%, hdi_97%`` (named after the probability), ``mcse_mean, mcse_sd,
            opt_mean, opt_sd, lr_sd, lr_sd_se``.

        Raises:
            UserError: an unknown site, or settings out of range.

        Warns:
            UserWarning: ``lr_sd`` or, where it is right, ``sd`` is off by importance weights, see ``covariance``.
        """
        num_samples = whole("num_samples", num_samples, 2)
        draws, named = self.sample(num_samples, seed), {}
        chosen = self._chosen(var_names, "summary", draws)
        with contextlib.suppress(UserError):  # lr_sd is not a number then
            names, found = linear_response.response(self, chosen, 0.01, 0, costly=False)
            named = dict(zip(names, zip(found.sd, found.sd_se, strict=True), strict=True))
            table = table_of(draws, var_names, hdi_prob, kind, self.problem.sites, self.optimum, named, None)
            self._doubt(names, found, table)
        return table_of(draws, var_names, hdi_prob, kind, self.problem.sites, self.optimum, named, round_to)

    def _doubt(self, names, found, table=None) -> None:
        """A warning where moments by linear response, or those of the guide in a summary, are wrong.

        Not where a note of the fit has the same: that k-hat is too large, or the guide's standard deviations too small.
        Such a note covers neither those that are too large nor those by linear response.
        """
        beside = found.weighted
        of_khat, of_sd = (any(words in note for note in self.notes) for words in ("k-hat", "standard deviation"))
        why = doubt(names, beside, known=of_khat) if beside is not None else ""
        if why:
            warnings.warn(_doubtful(self.problem, why), UserWarning, stacklevel=3)
        elif table is not None and beside is not None and beside.good:
            sd, error = (table.loc[names, column].to_numpy() for column in ("sd", "mcse_sd"))
            if why := guides(names, sd, error, beside, narrow=not (of_khat or of_sd)):
                note = f"{self.problem.name}: by importance weights {why} the guide's in column sd: quote lr_sd"
                warnings.warn(note, UserWarning, stacklevel=3)

    def covariance(self, var_names: str | Iterable[str] | None = None, *, error: float = 0.01, seed: int = 0):
        """The covariance of the latent variables by linear response, in constrained space.

        The standard deviations of a mean-field guide are those of a coordinate given all others: too small where
        coordinates are correlated. Linear response asks how the means would move if the posterior were tilted, and
        takes the covariance of the unconstrained coordinates from there. It is exact for a normal posterior. Moments
        of sites are those under the normal distribution with this covariance: of a scale that few groups determine,
        whose logarithm is skewed, they may be far too large (1.6 to 1.8 times, of eight schools): importance weights of
        draws from this normal distribution tell. It cannot mend a wrong mean, and it describes the posterior near the
        guide: of two modes the one that the guide is at.
        ``numpyro.param`` sites are held at their values.

        Args:
            var_names: sites, one name or several; all if not given.
            error: the relative standard error of standard deviations at which the number of draws is large enough.
            seed: of the draws.

        Returns:
            pandas, a row and a column for each entry of each site, ``site[i, j]``.

        Raises:
            UserError: a guide with correlations of its own, rows in files, a fit that is not at an optimum, an unknown
                site, or more than 64 entries where the guide has more than 1024 parameters.

        Warns:
            UserWarning: by importance weights, a mean or a standard deviation of an entry is another one, or k-hat is
                above its limit, of which no note of the fit speaks; a standard deviation, too, where k-hat is above
                its limit, if more than half of the draws are effective. Not without k-hat, or with more than 1024
                parameters.

        References:
            Giordano, Broderick and Jordan, "Covariances, robustness, and variational Bayes", 2018, section 3.
        """
        import pandas as pd

        names, found = linear_response.response(
            self, self._chosen(var_names, "covariance", self.sample(1)), error, seed, joint=True
        )
        self._doubt(names, found)
        return pd.DataFrame(found.covariance, index=names, columns=names)

    def mean_and_sd(self, function: Callable[[dict[str, Any]], Any], *, error: float = 0.01, seed: int = 0):
        """Means and standard deviations of functions of the latent variables, by linear response.

        Args:
            function: of ``{site: value}``, the sites in constrained space as arrays of JAX (tensors for a
                ``TorchModel``); it returns an array, or a dict of arrays by name. It is traced: of ``jax.numpy``, not
                of NumPy. Above 512 coordinates it is differentiated, and must be nearly linear.
            error: see ``covariance``.
            seed: see there.

        Returns:
            pandas, a row for each entry, columns ``mean``; ``sd``, the posterior's by linear response; ``guide_sd``,
            the guide's own; and ``mean_se`` and ``sd_se``, errors of the computation, which are no posterior
            uncertainty: that is ``sd``. ``mean_se`` has the distance from the best guide and the error of the draws,
            of which it is a bound where their moments are matched.

        Raises:
            UserError: see ``covariance``; or a function that cannot be traced, asks for an unknown site, or gives no
                real numbers.

        Warns:
            UserWarning: values that are not finite at some draws; or see ``covariance``.

        Example:
            >>> fit.mean_and_sd(lambda z: {"effect": z["b"][1] - z["b"][0]})  # doctest: +SKIP
        """
        import pandas as pd

        if not callable(function):
            raise UserError(
                f"function is {kind_of(function)}: it must be a function of sites, such as lambda z: z['b']"
            )

        def named(sites):
            try:
                found = function(sites)
            except KeyError as error:
                raise UserError(f"function: it asks for {error}; the sites are {', '.join(sites)}") from error
            return {str(name): one for name, one in found.items()} if isinstance(found, Mapping) else {"value": found}

        names, found = linear_response.response(self, named, error, seed)
        if len(bad := np.flatnonzero(~np.isfinite(found.mean))):
            note = f"function: {names[bad[0]]} is not finite at some draws, so that its moments are unknown"
            warnings.warn(note, UserWarning, stacklevel=2)
        self._doubt(names, found)
        columns = {name: getattr(found, name) for name in ("mean", "sd", "mean_se", "sd_se", "guide_sd")}
        return pd.DataFrame(columns, index=names)

    def _chosen(self, var_names, where: str, known) -> Callable[[dict[str, Any]], dict[str, Any]]:
        """The sites of the given names, all if None."""
        names = chosen_names("site", var_names, known, where=f"{where}: var_names")
        return lambda sites: {name: sites[name] for name in names}

    def plot(self, stem: str | os.PathLike | None = None):
        """The ELBO against steps, with its standard error: all of the run, and its end.

        Args:
            stem: saves the figure as ``stem.svg`` and ``stem.png``, and its rows as ``stem.csv``, in a folder that
                exists.

        Returns:
            A matplotlib figure.

        Raises:
            UserError: matplotlib is not installed, or the folder does not exist or cannot be written.
        """
        if stem is not None:
            check_folder(stem)
        from lowvar.vi.plots import elbo_figure

        return elbo_figure(self, stem)


def fit(
    model: Any,
    data: Mapping[str, Any] | None = None,
    *,
    guide: "str | Amortised | Callable[..., Any] | Mapping[str, Any]" = "mean_field",
    estimator: str | Callable[..., Estimator] | None = None,
    optimizer: str | optax.GradientTransformation | None = None,
    step_size: float | Callable[[Any], Any] | None = None,
    num_steps: int | None = None,
    batch_size: int | None = None,
    num_particles: int = 1,
    noise: str = "iid",
    schedule: Mapping[str, Any] | None = None,
    average: bool | None = None,
    init: "Callable | Mapping[str, Any] | Fit | None" = None,
    seed: int = 0,
    elbo_samples: int | None = None,
    khat_samples: int | None = None,
    stop: bool | float = False,
    devices: int | None = None,
    callback: Callable[[Evaluation], Any] | None = None,
    progress: bool | None = None,
    **options: Any,
) -> Fit:
    """Variational inference of a NumPyro model, or of a ``TorchModel``, with a Gaussian guide.

    Without any setting of stochastic steps, the ELBO of a mean-field guide is maximised at fixed draws where its data
    are in memory and few enough, see ``vi.run.fixed_draws``; otherwise by ``num_steps`` stochastic steps.

    Args:
        model: a NumPyro model. The plate that its data are indexed by is subsampled, the largest if there are several
            and none has a ``subsample_size``; others, such as one over outputs, are evaluated in full. Without such a
            plate, every step uses all rows. Latent sites in the plate have parameters for each of its rows; a step
            updates those of its batch, see ``vi.descent.RowDescent``. Missing
            values (``obs_mask``) are integrated out. ``numpyro.param`` sites are trained as point estimates. Or a
            ``lowvar.TorchModel``, whose results are tensors.
        data: the NumPyro model's keyword arguments, as ``MCMC.run(key, **data)`` takes them; None if it takes none.
            Rows of memory-mapped arrays, and of ``lowvar.Parquet``, stay in their files, see docs/large-data.md.
        guide: the variational family: ``"mean_field"``; ``"full_rank"``, with all correlations; ``"block_diagonal"``,
            with those within each site; ``"low_rank"``, a diagonal plus a matrix of low rank, by default the square
            root of the dimension; ``{"guide": "low_rank", "rank": 3}`` sets an option. ``lowvar.Amortised(function,
            params)``: the means and scales of latent sites in the data plate are a function of the row's data.
            NumPyro's ``AutoNormal``, ``AutoMultivariateNormal`` and ``AutoLowRankMultivariateNormal``, the classes or
            guides of this model, stand for the first, the second and the last, their ``init_loc_fn`` for ``init``. Or a
            factory ``(dim, backend, noiseless, sites, **options) -> lowvar.vi.guides.gaussian.Gaussian`` of your own,
            see docs/adding-a-guide.md.
        estimator: the gradient estimator, by name (``lowvar list estimators``), as ``"module:function"``, or as a
            factory ``(problem, batches, **options) -> Estimator`` of your own, see docs/adding-an-estimator.md. If not
            given, ``joint_adaptive``, which docs/design-notes.md compares with others; ``naive`` for a fit of less than
            two passes over the data.
        optimizer: ``"lbfgs"``, at fixed draws and on all rows; ``"adam"`` or ``"sgd"``; or any
            ``optax.GradientTransformation``, such as ``optax.adamw(1e-3)``, that needs no value of the objective. If
            not given, ``"lbfgs"`` for the mean-field guide of at most 2^22 rows in memory (2^14 of a ``TorchModel``)
            and 2^28 rows times latent variables, unless there is a setting that it does not take; otherwise ``"adam"``.
        step_size: step size of ``"adam"`` or ``"sgd"``, 0.01 if not given, or an optax schedule of it; an optax
            optimizer has its own.
        num_steps: number of updates, 5000 if not given; ``1e4`` counts as a whole number. For ``"lbfgs"`` the largest
            number of iterations, 500 if not given.
        batch_size: data rows of a mini-batch; if not given, the ``subsample_size`` of the model's plate, or 100 if it
            has none or that of all rows; or all rows if they are fewer.
        num_particles: particles per update, shared by the rows of the batch; for ``mlmc``, those of the first update.
        noise: noise scheme of the particles: ``"iid"``, ``"antithetic"`` (pairs), ``"orthogonal"`` or ``"rqmc"``.
        schedule: decay of step sizes (for optax optimizers: of updates). ``{"kind": "step", "beta": 0.5, "r": 100}``
            halves them every 100 updates. Other kinds are ``"time"`` and ``"exponential"`` (with ``beta``),
            ``"piecewise"`` (with ``values``) and ``"cosine"`` (to 0 at update ``r``, over the last share ``beta``).
            ``mlmc`` uses fewer particles as they fall.
        average: whether the result is the average of the iterates, in which the weight of step ``t`` grows as
            ``t^6``; a single iterate has the noise of a step. If not given, where the step size is constant. If the
            last iterate has a higher ELBO, as where the average still contains the way to the optimum, it is the
            result. ``callback`` and the trace, up to its last row, are about the iterates.
        init: the start: one of NumPyro's strategies, such as ``numpyro.infer.init_to_median``; values of sites by
            name; or an earlier ``Fit``. Sites that it leaves out have means near 0 in the unconstrained space, drawn by
            ``seed`` with standard deviation 0.1; or uniformly on (-2, 2) if 0 is a saddle point of the likelihood in
            them, as of the factors of a matrix or the weights of a network, see docs/life-of-a-fit.md. Standard
            deviations of the guide start at 0.1, or at those of the ``Fit``.
        seed: seed of starts and noise; the same seed gives the same result, for a model function (or ``TorchModel``)
            of the same name, which enters the noise too.
        elbo_samples: particles of each ELBO in the trace, on all the data; if not given 200, fewer above 40 000
            rows. Where rows of a NumPyro model have more than 200 numbers, 200 numbers count as a row; a row of a
            ``TorchModel`` counts as one.
        khat_samples: posterior draws for ``khat``, on all the data, 200 or more; 0 for none. If not given
            10 000, fewer above 3 300 such rows, and none above 167 000.
        stop: whether to end the fit where the ELBO no longer rises, before ``num_steps``, see ``Plateau``; a number is
            the rise that still counts, in nats for a doubling of the steps, in place of the ELBO's standard error.
        devices: number of JAX's devices that share the rows of every batch and of full passes, each with the same
            parameters; one if not given. See docs/large-data.md.
        callback: called with an ``Evaluation`` whenever the ELBO is computed, before the first step and after whole
            epochs on a geometric grid; the fit ends if it returns True or raises ``StopIteration``.
        progress: whether to show a progress bar; by default on a terminal and in a notebook.
        **options: options of the estimator.

    Returns:
        A ``Fit``. Ctrl-C ends the steps and returns the fit so far, with a note; a second one raises
        ``KeyboardInterrupt``.

    Raises:
        UserError: an unknown name, a number out of range, a model that does not permit mini-batches (see
            ``from_numpyro``), or divergence.

    References:
        Wang, Geffner and Domke, "Joint control variate for faster black-box variational inference", 2024.

    >>> import lowvar, numpy as np, numpyro, numpyro.distributions as dist
    >>> def model(y):
    ...     mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
    ...     with numpyro.plate("rows", len(y)) as i:
    ...         numpyro.sample("y", dist.Normal(mu, 1.0), obs=y[i])
    >>> fit = lowvar.fit(model, {"y": np.full(9, 2.0)}, progress=False)
    >>> fit.summary()[["mean", "sd"]].round(1)  # of the posterior N(1.8, 0.32^2)
        mean   sd
    mu   1.8  0.3
    """
    if estimator is not None:
        GRADIENT.entry(estimator)
    check_arguments(fit, options, estimator)
    check_callback(callback)
    of_steps = {
        "estimator": estimator is not None, "step_size": step_size is not None, "batch_size": batch_size is not None,
        "num_particles": num_particles != 1, "noise": noise != "iid", "schedule": schedule is not None,
        "average": average is not None, "stop": stop is not False, "devices": devices is not None,
    }  # fmt: skip
    chosen = [name for name, given in of_steps.items() if given]
    if isinstance(optimizer, str) and optimizer == LBFGS and chosen:
        raise UserError(f"{chosen[0]}: the optimizer 'lbfgs' makes no stochastic steps: leave it out, or give 'adam'")
    seed, steps = whole("seed", seed, 0), 5000 if num_steps is None else whole("num_steps", num_steps, 1, or_float=True)
    draws = checked_draws(khat_samples)
    problem = problem_of(model, data, streams=True, guide=guide, **start_of(model, init, seed))
    first = _left_out(problem, init)
    if (optimizer is None and num_steps is None and not chosen) or (isinstance(optimizer, str) and optimizer == LBFGS):
        refusal = fixed_draws.refusal(problem)
        if refusal and optimizer is not None:
            raise UserError(f"optimizer 'lbfgs': {refusal}; give 'adam'")
        iterations = fixed_draws.ITERATIONS if num_steps is None else steps
        if not refusal and (found := _fixed(problem, iterations, seed, elbo_samples, draws, progress, callback, first)):
            return found
        if not refusal:
            first = (
                *first,
                f"{problem.name}: the ELBO is not finite at fixed draws, so the fit makes stochastic steps",
            )
        if optimizer is not None:
            raise UserError(f"{problem.name}: the ELBO is not finite at fixed draws: give other values as init")
    settings = settings_of(
        problem, optimizer="adam" if optimizer is None else optimizer, step_size=step_size, num_steps=steps,
        batch_size=batch_size, num_particles=num_particles, elbo_samples=elbo_samples, schedule=schedule, noise=noise,
        average=average,
    )  # fmt: skip
    if devices is not None:
        problem = divided(problem, devices, settings.batch_size)
    method = Method(estimator or default_estimator(problem, settings, steps), options)
    run = FitRun(method, settings, steps, seed, problem.name, draws)
    return run_to_end(problem, run, progress, rule_of(stop), callback, first)


def _fixed(problem, num_steps, seed, elbo_samples, khat_samples, progress, callback, first) -> Fit | None:
    """The fit at fixed draws; None if the ELBO is not finite there."""
    settings = replace(
        settings_of(
            problem, optimizer="adam", step_size=None, num_steps=1, batch_size=None, num_particles=1,
            elbo_samples=elbo_samples,
        ),
        optimizer=LBFGS, batch_size=problem.N,
    )  # fmt: skip
    value, rows = common_elbo(problem, settings.elbo_samples), []
    reached: dict[str, np.ndarray] = {}

    def measure(iteration, params):
        reached.update({block: np.asarray(one, problem.dtype) for block, one in params.items()})
        final = dict(reached)
        with np.errstate(invalid="ignore"):  # of log densities that are not finite, which the result tells
            elbo, error = map(float, value({block: problem.backend.asarray(one) for block, one in final.items()}))
        rows.append((iteration, elbo, error))
        return call_back(callback, Evaluation(iteration, elbo, error, lambda: problem.named(final)))

    with interruptible() as pressed, bar(progress, problem.name, num_steps, "iteration") as tick:
        found = fixed_draws.maximise(
            problem, problem.start, num_steps, lambda name: named_key(seed, problem.name, "fixed draws", name), measure,
            tick, pressed,
        )  # fmt: skip
    if found is None or not (np.isfinite(rows[-1][1]) or found[0].ended == "callback"):
        if pressed():
            raise KeyboardInterrupt
        return None
    found, slopes = found
    if found.ended == "interrupted" and not found.iterations:
        raise KeyboardInterrupt
    import pandas as pd

    trace = pd.DataFrame(rows, columns=["iteration", "elbo", "elbo_se"])
    lacks = {
        "budget": f"the fit has not converged in {num_steps} iterations: increase num_steps, with optimizer='lbfgs'",
        "stuck": f"the fit has not converged: L-BFGS finds no better point after {found.iterations} of {num_steps} "
        "iterations, and more would not help. The log density may have an edge there (a support that depends on a "
        "parameter), no maximum (an improper posterior), or scales too far apart (rescale the data)",
    }.get(found.ended, "")
    fitted = _with_notes(
        fit_of(problem, reached, trace), settings, seed, trace, khat_samples, (*first, *problem.notes(None)),
        found.ended, f"{found.iterations} iterations", (lacks, slopes),
    )  # fmt: skip
    return replace(fitted, fixed=replace(found, khat_samples=khat_samples))


def _with_notes(
    fitted: Fit, settings, seed: int, trace, khat_samples: int | None, before: Iterable[str], ended: str, steps: str,
    stated: Any = None,
) -> Fit:  # fmt: skip
    """The fit with its k-hat, its distance from the optimum, and its notes, which are issued as warnings too.

    Args:
        fitted: the fit.
        settings: its ``Settings``.
        seed: its seed.
        trace: ELBOs of its iterates.
        khat_samples: draws for k-hat.
        before: further notes, which come first.
        ended: why it ended.
        steps: its steps in words.
        stated: see ``judge_fit``.
    """
    name, k, optimum = fitted.problem.name, None, None
    if ended == "callback" and not trace["iteration"].iloc[-1]:  # there is no fit to judge
        notes: tuple[str, ...] = (f"{name}: the callback ended the fit before its first step",)
    else:
        k, optimum, notes = judge_fit(
            fitted, settings, seed, trace, 0 if ended == "interrupted" else khat_samples, stated
        )
    interrupted = [f"{name}: Ctrl-C ended the fit after {steps}"] if ended == "interrupted" else []
    notes = (*interrupted, *before, *notes)
    for note in notes:
        warnings.warn(note, UserWarning, stacklevel=4)
    return replace(fitted, khat=k, notes=notes, optimum=optimum)


def run_to_end(problem, run: FitRun, progress, rule=None, callback=None, first: tuple[str, ...] = ()) -> Fit:
    """The fit with the settings of ``run``, continued from where it stands."""
    engine = engines.build(
        problem, run.method, run.settings, seed=run.seed, name=run.name, starts=starts(problem), num_steps=run.num_steps
    )
    with (
        contextlib.closing(engine),
        interruptible() as pressed,
        bar(progress, problem.name, run.settings.epochs) as tick,
    ):
        watch = Watch(engine, run, problem.named, callback, rule, pressed)
        state, at = watch.origin
        state, at = loop.run(watch.step, state, watch.stops, [watch.record, watch, loop.Progress(tick)], at)
    watch.close(at)
    if watch.ended == "interrupted" and not watch.num_steps:
        raise KeyboardInterrupt
    before = (*first, *problem.notes(run.settings.batch_size), *_of_optimizer(problem, run.settings, watch, engine))
    fitted = _with_notes(
        fit_of(problem, *watch.result(state), run.settings.own), run.settings, run.seed, watch.trace(),
        run.khat_samples, before, watch.ended, f"{watch.num_steps} of {run.num_steps} steps",
    )  # fmt: skip
    run = replace(
        run, num_steps=watch.num_steps, epochs=(watch.early, watch.whole), copies=watch.copies,
        stops=tuple(watch.record.at), measured=watch.record.stacked(), ended=watch.ended,
    )  # fmt: skip
    return replace(fitted, run=run)


def _of_optimizer(problem, settings, watch, engine) -> list[str]:
    """Notes on an optimizer: what one of optax means for rows' own variables, and whether it moved at the end."""
    notes, (early, last) = [], (watch.copies[epoch][0].params for epoch in (watch.early, watch.whole))
    if "transformation" in settings.own and problem.local is not None and settings.batch_size < problem.N:
        notes.append(
            f"{problem.name}: under an optax transformation, the latent variables in the plate {problem.plate!r} move "
            "when their rows are visited and stand still in between; optimizer='adam', with step_size= or schedule=, "
            "makes up for these steps"
        )
        if depends_on_batch(settings.own["transformation"], problem):
            notes.append(
                f"{problem.name}: an update of this optax transformation depends on all gradients of a step, as under "
                "clip_by_global_norm: those of the batch's rows and of the shared variables, so it depends on "
                "batch_size, and on which rows share a batch"
            )
    early, last = problem.backend.to_numpy((early, last))
    if watch.early < watch.whole and all(np.array_equal(early[block], last[block]) for block in last):
        notes.append(
            f"{problem.name}: no parameter moved in the last {watch.num_steps - watch.early * engine.steps} steps: if "
            "the optimizer's step size is 0 there, make its schedule as long as num_steps"
        )
    return notes


def _doubtful(problem, why: str) -> str:
    """The note on moments by linear response that are wrong, or may be."""
    return (
        f"{problem.name}: with the covariance of linear response, {why}: take means and standard deviations from NUTS, "
        "to be sure. A normal may approximate this posterior badly"
    )


def _left_out(problem, init) -> tuple[str, ...]:
    """A note on the sites of which the fit that another one starts from has no values."""
    if not isinstance(init, Fit) or not (new := [site for site in problem.sites if site not in init.problem.sites]):
        return ()
    return (f"{problem.name}: init, a fit of {init.problem.name}, has no values of {', '.join(map(repr, new))}, which "
            "start as without init",)  # fmt: skip


def checked_draws(khat_samples: int | None) -> int | None:
    """The number of draws for k-hat; None where the number of rows determines it."""
    draws = khat_samples if khat_samples is None else whole("khat_samples", khat_samples, 0)
    if draws and draws < LEAST:
        raise UserError(f"khat_samples {draws}: k-hat needs at least {LEAST}; 0 skips it")
    return draws


def in_notebook() -> bool:
    """Whether this is a Jupyter kernel, whose output shows progress bars."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None  # type: ignore[attr-defined]
    return shell is not None and "IPKernelApp" in getattr(shell, "config", {})


@contextlib.contextmanager
def bar(progress: bool | None, name: str, total: int, unit: str = "epoch"):
    """Yields the ``tick`` of a progress bar of a fit."""
    from tqdm.auto import tqdm

    disable = (False if in_notebook() else None) if progress is None else not progress
    with tqdm(total=total, desc=f"fit {name}", unit=unit, disable=disable, leave=False) as shown:
        yield shown.update


def fit_of(problem, guide_params, trace, own: Iterable[str] = ()) -> Fit:
    """The ``Fit`` of parameters by block, from a run with a caller's own objects, by the names of ``Settings.own``.

    Raises:
        UserError: the run diverged.
    """
    if not all(np.isfinite(value).all() for value in guide_params.values()):
        smaller = "give the optimizer a smaller step size" if "transformation" in own else "use a smaller step_size"
        raise UserError(f"{problem.name}: the fit diverged; rescale data and latent variables to about 1, or {smaller}")
    return Fit(problem.named(guide_params), trace, problem, guide_params)


def _to(end: int, schedule):
    """A schedule for a run of ``end`` steps: a cosine that would reach 0 before falls later."""
    if schedule is None or schedule.kind != "cosine" or schedule.r >= end:
        return schedule
    return replace(schedule, r=end)


def load(
    path,
    model: Any,
    data: Mapping[str, Any] | None = None,
    *,
    guide: "Amortised | None" = None,
    estimator: Callable | str | None = None,
    optimizer: Any = None,
    step_size: Callable | None = None,
) -> Fit:
    """A ``Fit`` from the file of ``Fit.save``, which continues where that one stood.

    Args:
        path: the file.
        model: the model of the fit, a ``TorchModel`` as well.
        data: its data; None for a model that takes none, as a ``TorchModel``, whose functions hold them.
        guide: the ``Amortised`` of the fit, if it has one.
        estimator: the estimator, if ``fit`` was given a function or ``"module:function"``; without it the fit cannot be
            resumed. The file names it and is never asked to import it.
        optimizer: the same for an optimizer of optax.
        step_size: the same for an optax schedule.

    Raises:
        UserError: no such file, or one that is damaged; or another model, or data with other names, shapes, types or
            values than those of the fit. A model that holds its data must have the log-likelihoods of the fit's in all
            rows, to a relative 1e-3 at one point of the guide.

    >>> import lowvar, os, tempfile, numpy as np, numpyro, numpyro.distributions as dist
    >>> def model(y):
    ...     mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
    ...     with numpyro.plate("rows", len(y)) as i:
    ...         numpyro.sample("y", dist.Normal(mu, 1.0), obs=y[i])
    >>> data = {"y": np.full(9, 2.0)}
    >>> fit = lowvar.fit(model, data, progress=False)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     fit.save(os.path.join(folder, "fit.npz"))
    ...     loaded = lowvar.load(os.path.join(folder, "fit.npz"), model, data)
    >>> loaded.params == fit.params
    True
    """
    own = own_objects(optimizer or "adam", step_size)
    return _from_file(*saved.read(path, model, data, guide, estimator, own))


def _unpickled(*pickle) -> Fit:
    """The ``Fit`` of a pickle, see ``saved.pickled``."""
    return _from_file(*saved.unpickled(*pickle))


def _from_file(problem, params, trace, more) -> Fit:
    """The ``Fit`` from the content of its file, see ``saved.read``."""
    return replace(fit_of(problem, params, trace[["iteration", "elbo", "elbo_se"]]), **more)
