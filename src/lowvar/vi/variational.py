"""A variational objective over data: the negative ELBO of a model whose likelihood is a sum over rows.

In the notation of Wang, Geffner and Domke: with ``k_n(z) = -N log p(x_n | z) - log p(z)`` the objective is
``f(w) = E_n E_eps k_n(T_w(eps)) - H(w)``, the negative ELBO in nats.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from lowvar.errors import UserError
from lowvar.vi.guides.gaussian import MeanField, initial_params
from lowvar.vi.guides.interface import Guide

if TYPE_CHECKING:
    from lowvar.core.backend import Backend

_GROUP = 64  # particles, or draws, evaluated at once, where each call has overhead
_TEST_ROWS, _TEST_PAIRS = 4096, 1 << 17  # maximum numbers of test rows, and of pairs of row and particle, in a chunk


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Test rows, which a problem does not fit.

    Attributes:
        N: number of test rows.
        log_likelihood: ``(z (dim,), index (B,)) -> (B,)``, the log density of those rows given ``z``, nats. Local
            latent variables of a test row are integrated out.
    """

    N: int
    log_likelihood: Callable[[Any, Any], Any]


@dataclass(frozen=True, eq=False)
class VariationalProblem:
    """The negative ELBO of a model and its derivatives: a doubly stochastic objective.

    Attributes:
        name: name in reports.
        backend: the array library that the functions below are written in.
        N: number of data rows.
        dim: dimension of the unconstrained latent vector ``z``.
        log_likelihood: ``(z (dim,), index (B,)) -> (B,)``, nats.
        log_prior: ``z (dim,) -> ()``, nats; with the Jacobians of the constrained sites.
        exact_elbo: ``params -> ()``, nats, if available by quadrature.
        expected_log_prior: ``params -> ()``, the mean of ``log_prior`` under the guide, where it has a closed form.
        quadratic_prior: whether ``log_prior`` is quadratic and ``expected_log_prior`` given: its mean gradient is then
            as small as its gradient. With a latent scale, the tail of a lognormal can dominate that mean, which
            samples do not reach.
        sites: the slice of ``z`` for each latent site, ``{name: slice}``.
        dtype: floating type of the model's data.
        held_out: the test rows, if the data have any.
        spread: standard deviations, ``(dim,)``, of a random initial ``mu`` for the start ``"origin"``. Without it,
            ``mu = 0``, which is a stationary point of some models.
        noiseless: mask of the entries of ``z`` that are parameters of the model, ``(dim,)`` booleans, without prior
            or noise, see ``Guide``.
        family: ``problem -> guide``, see ``guides.gaussian.family``; the mean-field guide if not given.
        subsample_size: the default batch size, if the model has one, as by its data plate; else None.
    """

    name: str
    backend: "Backend"
    N: int
    dim: int
    log_likelihood: Callable[[Any, Any], Any]
    log_prior: Callable[[Any], Any]
    exact_elbo: Callable[[Any], Any] | None = None
    expected_log_prior: Callable[[Any], Any] | None = None
    quadratic_prior: bool = False
    sites: Mapping[str, slice] = field(default_factory=dict)
    dtype: Any = np.float64
    held_out: HeldOut | None = None
    spread: np.ndarray | None = None
    noiseless: np.ndarray | None = None
    family: Callable[[Any], Guide] | None = None
    subsample_size: int | None = None
    most_rows = 1024  # data rows in a chunk of a full pass, at most

    @cached_property
    def guide(self) -> Guide:
        """The variational family."""
        return self.family(self) if self.family else MeanField(self.dim, self.backend, self.noiseless)

    @property
    def noise_dim(self) -> int:
        """Dimension of ``eps``."""
        return self.guide.noise_dim

    @property
    def blocks(self) -> dict[str, int]:
        """The guide's parameter blocks and their lengths, in the order in which gradients are laid out."""
        return self.guide.blocks

    def part(self, block: str, where: slice) -> slice:
        """The entries of a block that belong to the coordinates ``where`` of ``z``."""
        return self.guide.part(block, where)

    def energy(self, z, index, weight):
        """``sum_i weight_i k_index_i(z)``, nats: an unbiased estimate of ``-log p(x, z)`` from a batch."""
        xp = self.backend.xp
        return -self.N * xp.sum(weight * self.log_likelihood(z, index)) - self.log_prior(z)

    def gradient(self, z, index, weight):
        """The gradient of ``energy``, ``(dim,)``."""
        return self.backend.grad(self.energy)(z, index, weight)

    def gradient_and_hvp(self, z, direction, index, weight):
        """The gradient of ``energy`` and its Hessian times ``direction``, both ``(dim,)``."""
        return self.backend.jvp(lambda z: self.gradient(z, index, weight), (z,), (direction,))

    def prior_gradient(self, z):
        """The gradient of ``-log p(z)``, ``(dim,)``."""
        return -self.backend.grad(self.log_prior)(z)

    def gradient_by_row(self, z, index):
        """``grad k_n(z_n)``, ``(B, dim)``: one row at a time, each at its own point ``z (B, dim)``."""
        return self._likelihood_by_row(z, index) + self.backend.vmap(self.prior_gradient)(z)

    def _likelihood_by_row(self, z, index):
        def energy(z, row):
            return -self.N * self.log_likelihood(z, row[None])[0]

        return self.backend.vmap(self.backend.grad(energy))(z, index)

    def likelihood_at_rows(self, z, step, index, weight):
        """The likelihood term of the batch's gradient, row ``n`` at its own point, and its derivative along a step.

        Args:
            z: points, ``(B, dim)``.
            step: a direction for all rows, ``(dim,)``.
            index: the rows, ``(B,)``.
            weight: their weights, ``(B,)``.

        Returns:
            Weighted sums of ``-N grad log p(x_n | z_n)`` and of its derivative along ``step``, each ``(dim,)``.
        """
        steps = self.backend.xp.broadcast_to(step, z.shape)
        gradient, hvp = self.backend.jvp(lambda z: self._likelihood_by_row(z, index), (z,), (steps,))
        return weight @ gradient, weight @ hvp

    def gradient_and_hvp_by_row(self, z, direction, index):
        """As ``gradient_and_hvp`` for one row at a time, each at its own point.

        Args:
            z: points, ``(B, dim)``.
            direction: a vector for each, ``(B, dim)``.
            index: the rows, ``(B,)``.

        Returns:
            ``grad k_n(z_n)`` and ``hess k_n(z_n) direction_n``, each ``(B, dim)``.
        """
        return self.backend.jvp(lambda z: self.gradient_by_row(z, index), (z,), (direction,))

    def full_gradient(self, z):
        """The gradient of ``-log p(x, z)``, ``(dim,)``: a pass over all rows."""
        xp = self.backend.xp
        chunks = self.chunks
        if len(chunks["index"]) == 1:
            return self.gradient(z, chunks["index"][0], chunks["weight"][0])

        def add(total, chunk):
            energy = lambda z: -self.N * xp.sum(chunk["weight"] * self.log_likelihood(z, chunk["index"]))  # noqa: E731
            return total + self.backend.grad(energy)(z)

        return self.backend.scan_or_loop(add, -self.backend.grad(self.log_prior)(z), chunks)

    @property
    def rows_of_pass(self) -> int:
        """Rows of ordinary width that take as long as a pass over all: ``N``, unless all of them count as one."""
        return self.N

    @property
    def local(self) -> Any:
        """The ``Rows`` whose variables have parameters of their own, which only their batches update; None without."""
        return None

    # --- the interface of estimators, which a problem without a guide has too -----------------------------------------

    def initial(self, kind: str, key) -> dict[str, np.ndarray]:
        """Starting parameters, see ``initial_params``; ``"origin"`` uses the problem's ``spread``."""
        params = initial_params(kind, self.dim, key)
        if kind == "origin" and self.spread is not None:
            import jax

            # always float32: the same start in every precision
            params["mu"] = self.spread * np.asarray(jax.random.normal(key, (self.dim,), np.float32), np.float64)
        return self.guide.start(params["mu"], params["log_sigma"], key)

    def objective_gradient(self, params, noise):
        """``grad f(w; B, eps)``: the weighted mean over the batch's rows, and the mean over the particles."""
        return self._pulled_back(params, noise.eps, lambda z: self.gradient(z, noise.index, noise.weight))

    def full_objective_gradient(self, params, eps):
        """The same over all rows, for ``eps (S, noise_dim)``."""
        return self._pulled_back(params, eps, self.full_gradient)

    def objective_gradient_by_row(self, params, noise):
        """The same over the batch, row ``n`` with its own parameters ``params[block][n]``."""
        vmap = self.backend.vmap

        def of_point(eps):
            z = vmap(lambda params: self.guide.transform(params, eps))(params)
            gradient = self.gradient_by_row(z, noise.index)
            return vmap(lambda params, g: self.guide.pull_back(params, eps, g))(params, gradient)

        model = self.mean_over_points(of_point, noise.eps)
        entropy = vmap(self.guide.entropy_gradient)(params)
        return {block: noise.weight @ (model[block] - entropy[block]) for block in model}

    def prior_part(self, params, eps):
        """The prior term of ``objective_gradient``, with its noise: the mean over particles ``eps (S, noise_dim)``."""

        def of_point(eps):
            return self.guide.pull_back(params, eps, self.prior_gradient(self.guide.transform(params, eps)))

        return self.mean_over_points(of_point, eps)

    def mean_over_points(self, function, eps):
        """The mean of ``function(eps_s)``, a tree, over the particles ``eps (S, noise_dim)``."""
        if eps.shape[0] == 1:
            return function(eps[0])
        return self.backend.tree_map(lambda leaf: self.backend.xp.mean(leaf, axis=0), self.backend.vmap(function)(eps))

    def _pulled_back(self, params, eps, gradient):
        """The energy's gradient through ``z``, mean over particles, and the exact entropy term."""

        def of_point(eps):
            return self.guide.pull_back(params, eps, gradient(self.guide.transform(params, eps)))

        model, entropy = self.mean_over_points(of_point, eps), self.guide.entropy_gradient(params)
        return {block: model[block] - entropy[block] for block in model}

    # f~ is the second-order Taylor expansion of k_n around z0 = mu, for the part of mu (Appendix F):
    # grad_mu f~(w; n, eps) = grad k_n(mu) + hess k_n(mu) (z - mu), whose mean over eps is grad k_n(mu)

    def point(self, params):
        """The part of ``w`` needed for ``grad f~(w; n, eps)``, see ``Guide.point``."""
        return self.guide.point(params)

    def first_order(self, params, eps, mean):
        """The part of ``grad f~`` that is linear in ``eps``, averaged over it, in blocks that ``approximation`` lacks.

        ``mean`` is an ``approximation_mean`` at any fixed point; whatever it is, this part has mean zero.
        """
        return self.guide.first_order(params, eps, mean["mu"])

    def zero_mean(self, point):
        """Zeros in the form of ``approximation_mean``."""
        return {"mu": self.backend.xp.zeros_like(point["mu"])}

    def approximation(self, point, noise):
        """``E_xi grad f~(w; B, xi)``, and ``grad f~(w; B, eps)`` minus that, averaged over the particles."""
        step = self.guide.step(point, self.backend.xp.mean(noise.eps, axis=0))  # the deviation is linear in eps
        mean, deviation = self.gradient_and_hvp(point["mu"], step, noise.index, noise.weight)
        return {"mu": mean}, {"mu": deviation}

    def full_approximation(self, point, eps):
        """The same over all rows, for ``eps (S, noise_dim)``."""
        step = self.guide.step(point, self.backend.xp.mean(eps, axis=0))
        mean, deviation = self.backend.jvp(self.full_gradient, (point["mu"],), (step,))
        return {"mu": mean}, {"mu": deviation}

    def approximation_by_row(self, points, noise):
        """The same over the batch, row ``n`` with its own point ``points[key][n]``."""
        step = self.guide.steps(points, self.backend.xp.mean(noise.eps, axis=0))
        mean, deviation = self.gradient_and_hvp_by_row(points["mu"], step, noise.index)
        return {"mu": noise.weight @ mean}, {"mu": noise.weight @ deviation}

    def approximation_mean(self, point, index, weight):
        """``E_xi grad f~(w; B, xi)`` alone."""
        return {"mu": self.gradient(point["mu"], index, weight)}

    def approximation_mean_by_row(self, points, index, weight):
        """The same, row ``n`` with its own point."""
        return {"mu": weight @ self.gradient_by_row(points["mu"], index)}

    def full_approximation_mean(self, point):
        """The same over all rows: a pass over the data."""
        return {"mu": self.full_gradient(point["mu"])}

    @property
    def chunks(self):
        """Row numbers and weights of a full pass, ``(chunks, rows)``; the last chunk is padded with weight zero."""
        return self._chunks(self.N, self.most_rows, 1 / self.N, 0.0)

    def _chunks(self, count, most, weight, padding):
        """``0 .. count - 1`` in equal chunks of at most ``most``, with their weights; the last is padded."""
        steps = -(-count // most)
        size = -(-count // steps)
        order = np.arange(steps * size)
        weights = np.where(order < count, weight, padding).astype(self.dtype)
        index = np.minimum(order, count - 1).astype(np.int32)
        chunks = {"index": index.reshape(steps, size), "weight": weights.reshape(steps, size)}
        return {name: self.backend.asarray(value) for name, value in chunks.items()}

    def log_likelihoods(self, z):
        """``log p(x_n | z)`` of all rows, nats, in the form of ``chunks``: ``(chunks, rows)``."""
        return self.compiled(_log_likelihoods)(z)

    def compiled(self, of: Callable[[Any], Callable]) -> Callable:
        """The function ``of(problem)``, compiled; the same one in every call, which then need not trace it again."""
        if of not in self._programs:
            self._programs[of] = self.backend.jit(of(self))
        return self._programs[of]

    @cached_property
    def _programs(self) -> dict[Callable, Callable]:
        return {}

    def full_energy(self, z):
        """``-log p(x, z)``, nats: a pass over all rows."""
        xp = self.backend.xp

        def add(total, chunk):
            return total - self.N * xp.sum(chunk["weight"] * self.log_likelihood(z, chunk["index"]))

        return self.backend.scan_or_loop(add, -self.log_prior(z), self.chunks)

    def elbo(self, params, eps=None) -> Any:
        """The ELBO in nats, and its standard error.

        Args:
            params: the guide's.
            eps: base noise ``(S, noise_dim)``; without it, the ELBO must have a closed form.

        Returns:
            ``(value, standard_error)``, the error zero where the value is exact.
        """
        xp = self.backend.xp
        if eps is None:
            if self.exact_elbo is None:
                raise ValueError(f"{self.name}: no exact ELBO; pass eps")
            value = self.exact_elbo(params)
            return value, xp.zeros_like(value)

        def energy(eps):
            return self.full_energy(self.guide.transform(params, eps))

        values = -self.backend.map(energy, eps, _GROUP)
        return xp.mean(values) + self.guide.entropy(params), xp.std(values) / (len(eps) - 1) ** 0.5

    def notes(self, size: int | None) -> list[str]:
        """Sentences for the user on a fit with batches of ``size`` rows, or on all rows."""
        return [*(getattr(self, "remarks", ()) if size else ()), *getattr(self, "roundings", ())]

    @property
    def elbo_rows(self) -> int:
        """Rows that each particle of an ELBO is evaluated on."""
        return self.N

    @property
    def elbo_cost(self) -> int:
        """Rows of ordinary width that take as long as a particle of an ELBO."""
        return self.rows_of_pass

    @property
    def in_memory(self) -> bool:
        """Whether ``chunks`` has all rows; otherwise the problem has ``elbo`` and ``log_weights`` of its own."""
        return True

    def test_log_likelihood(self, params, eps) -> Any:
        """The mean over the test rows of the log predictive density, ``log (1 / S) sum_s p(y | z_s)``.

        Args:
            params: the guide's.
            eps: base noise ``(S, noise_dim)``, which all rows share.

        Returns:
            ``()``, nats per row.

        Raises:
            UserError: the data have no test rows.
        """
        xp, vmap, take = self.backend.xp, self.backend.vmap, self.backend.take
        held, S = self.held_out, len(eps)
        if held is None:
            raise UserError(f"{self.name}: there are no test rows: give the data a test part, see `split`")
        of_rows = self._chunks(held.N, _TEST_ROWS, 1 / held.N, 0.0)
        # a padded sample has probability zero
        of_samples = self._chunks(S, max(1, _TEST_PAIRS // of_rows["index"].shape[1]), -np.log(S), -np.inf)
        z_of = vmap(lambda eps: self.guide.transform(params, eps))

        def add_rows(total, rows):
            def add_samples(so_far, samples):
                z = z_of(take(eps, samples["index"]))
                logs = vmap(lambda z: held.log_likelihood(z, rows["index"]))(z) + samples["weight"][:, None]
                logs = xp.concat([so_far[None, :], logs])
                top = xp.max(logs, axis=0)
                top = xp.where(top == -np.inf, xp.zeros_like(top), top)
                return top + xp.log(xp.sum(xp.exp(logs - top[None, :]), axis=0))

            nothing = xp.full_like(rows["weight"], -np.inf)
            return total + xp.sum(rows["weight"] * self.backend.scan_or_loop(add_samples, nothing, of_samples))

        return self.backend.scan_or_loop(add_rows, 0 * xp.sum(params["mu"]), of_rows)


def prior_of(problem) -> Callable[[Any], Any]:
    """The log prior of a problem, for its ``compiled``."""
    return problem.log_prior


def _log_likelihoods(problem):
    return lambda z: problem.backend.map(lambda index: problem.log_likelihood(z, index), problem.chunks["index"])


def at_draws(problem) -> Callable[..., Any]:
    """``(params, eps (S, noise_dim), rows, prior) -> ((S,), (S,), ())``, nats. A pass over all rows per draw.

    The results are ``log p(x, z_s)``, less ``rows``, log-likelihoods in the form of ``problem.log_likelihoods``, and
    less ``prior``; ``log q(z_s)``; and the entropy of ``q``. Calls of ``problem.compiled(at_draws)`` with as many draws
    share a program.

    Args:
        problem: a variational problem.
    """
    backend, xp, chunks = problem.backend, problem.backend.xp, problem.chunks

    def function(params, eps, rows, prior):
        def of_draw(eps):
            z = problem.guide.transform(params, eps)

            def add(total, chunk):
                index, weight, row = chunk
                return total + problem.N * xp.sum(weight * (problem.log_likelihood(z, index) - row))

            joint = backend.scan_or_loop(add, problem.log_prior(z) - prior, (chunks["index"], chunks["weight"], rows))
            return joint, problem.guide.log_density(params, eps)

        return *backend.map(of_draw, eps, _GROUP), problem.guide.entropy(params)

    return function


def elbo(problem) -> Callable[[Any, Any], tuple[np.ndarray, np.ndarray]]:
    """``(params, eps (S, noise_dim)) -> (ELBO, its standard error)``, nats, as ``problem.elbo``."""
    backend = problem.backend
    if not problem.in_memory:
        of_sample = backend.jit(problem.elbo)
        return lambda params, eps: backend.to_numpy(of_sample(params, eps))
    compiled = problem.compiled(at_draws)
    rows = backend.asarray(np.zeros(tuple(problem.chunks["index"].shape), problem.dtype))
    prior = backend.asarray(np.zeros((), problem.dtype))

    def value(params, eps):
        joint, _, entropy = map(backend.to_numpy, compiled(params, eps, rows, prior))
        joint = joint.astype(float)
        return joint.mean() + float(entropy), joint.std() / (len(joint) - 1) ** 0.5

    return value


def common_elbo(problem, samples: int) -> Callable[[Any], tuple[np.ndarray, np.ndarray]]:
    """``params -> (ELBO, its standard error)``, with the same draws in every fit of a problem of this name.

    The program is the one that k-hat uses; the draws are NumPy's: programs for them would be a tenth of a first fit's
    time.
    """
    from lowvar.core.keys import named_key, numpy_generator  # loads JAX: not when a file of experiments is read

    value = elbo(problem)
    own = numpy_generator(named_key(0, "elbo", problem.name)).standard_normal((samples, problem.noise_dim))
    draws = problem.backend.asarray(own.astype(problem.dtype))
    return lambda params: value(params, draws)
