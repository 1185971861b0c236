"""What ``inc``, ``ensemble`` and the full-batch estimators are, beyond what the contract asks of all."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lowvar.testing.enumerable import BATCH, DIM, N, estimates, grid, params, problem, quadratic, run
from lowvar.vi.batches import iid, reshuffled
from lowvar.vi.estimators import GRADIENT

MU = slice(0, DIM)


class Spread:
    """Traces of covariances over data rows and base noise, by enumeration and quadrature."""

    def __init__(self, p, w):
        self.rows, (self.eps, self.weights) = jnp.arange(p.N)[:, None], grid()
        self.p, self.w = p, w
        self.f = self.of(GRADIENT.get("naive")(p, iid(p.N, 1)), ())  # grad f(w; n, eps)

    def of(self, estimator, state):
        """Estimates at every row alone and every point, ``(N, points, parameters)``."""
        return np.asarray(jax.jit(estimates(estimator, size=1))(state, self.w, self.rows, self.eps))

    def total(self, g):
        """The variance over rows and noise."""
        mean = self.over_noise(g).mean(axis=0)
        return self.over_noise(((g - mean) ** 2).sum(axis=-1, keepdims=True)).mean()

    def over_noise(self, g):
        return np.einsum("...sp,s->...p", g, np.asarray(self.weights))

    def of_rows(self, g):
        """``V_n`` of ``g (N, parameters)``."""
        return ((g - g.mean(axis=0)) ** 2).sum(axis=-1).mean()

    def of_noise(self, g):
        """``V_eps`` of ``g (..., points, parameters)``, averaged over what comes before."""
        mean = self.over_noise(g)[..., None, :]
        return self.over_noise(((g - mean) ** 2).sum(axis=-1, keepdims=True)).mean()

    @property
    def subsampling(self):
        """``V_n[grad f(w; n)]``."""
        return self.of_rows(self.over_noise(self.f))

    @property
    def monte_carlo(self):
        """``V_eps[grad f(w; eps)]``."""
        return self.of_noise(self.f.mean(axis=0))


@pytest.mark.long
def test_the_variance_of_cv():
    """Eq. 10, and the floor in it; the part that ``f~`` leaves by its definition."""
    p, w = problem(), params(seed=5)
    s = Spread(p, w)
    g = s.of(GRADIENT.get("cv")(p), ())
    energy = jax.hessian(lambda z, n: p.energy(z, n[None], jnp.ones(1)))
    hessians = np.asarray(jax.jit(jax.vmap(energy, (None, 0)))(w["mu"], jnp.arange(N)))
    left = s.f.copy()
    left[..., MU] -= np.einsum("nij,sj->nsi", hessians, np.exp(w["log_sigma"]) * np.asarray(s.eps))
    assert s.total(g) == pytest.approx(s.of_noise(left) + s.subsampling, rel=1e-8)
    assert s.total(g) > 1.001 * s.subsampling
    assert s.of_noise(left[..., MU]) < 0.5 * s.of_noise(s.f[..., MU])


@pytest.mark.long
@pytest.mark.parametrize("batches", [reshuffled, iid])
def test_the_variance_of_inc(batches):
    """Eq. 14, and the floor in it, with a memory that the run has left behind."""
    p = problem()
    if batches is reshuffled:
        estimator, state = run(p, "inc", epochs=3, batch=1)
        memory = state.estimator["table"]["previous"]
        stored = {block: memory[block][state.estimator["table"]["slot"]] for block in memory}
        state = state.estimator
    else:
        estimator = GRADIENT.get("inc")(p, iid(p.N, 1))
        stored = jax.tree.map(lambda *rows: jnp.stack(rows), *(params(seed=k) for k in range(p.N)))
        state = {"table": stored}
    s = Spread(p, params(seed=5))
    g = s.of(estimator, state)
    naive = jax.jit(estimates(GRADIENT.get("naive")(p), size=1))
    old = np.concatenate([
        np.asarray(naive({}, jax.tree.map(lambda leaf, n=n: leaf[n], stored), s.rows[n : n + 1], s.eps))
        for n in range(p.N)
    ])  # fmt: skip
    np.testing.assert_allclose(g, s.f + old.mean(axis=0) - old, rtol=1e-10)  # eq. 13, point by point
    left = s.f - old
    interaction = s.over_noise(((left - left.mean(axis=0)) ** 2).sum(axis=-1, keepdims=True)).mean()
    assert s.total(g) == pytest.approx(interaction + s.monte_carlo, rel=1e-8)
    assert s.total(g) > 1.001 * s.monte_carlo


@pytest.mark.parametrize("beta", [0.2, pytest.param(0.5, marks=pytest.mark.long)])
def test_a_perfect_ensemble(beta):
    """Eq. 16, for the part of ``mu``: ``f~ = f`` for a quadratic likelihood, and all stored parameters current."""
    p, w = quadratic(), params(seed=5)
    estimator = GRADIENT.get("ensemble")(p, iid(p.N, 1), beta=beta)
    s = Spread(p, w)
    g = s.of(estimator, estimator.init(w))[..., MU]
    s.f = s.f[..., MU]
    expected = beta**2 * s.subsampling + (1 - beta) ** 2 * s.monte_carlo
    assert s.total(g) == pytest.approx(expected, rel=1e-9)
    # where cv and inc alone stop
    assert s.total(s.of(GRADIENT.get("cv")(p), ())[..., MU]) == pytest.approx(s.subsampling, rel=1e-9)
    inc = GRADIENT.get("inc")(p, iid(p.N, 1))
    assert s.total(s.of(inc, inc.init(w))[..., MU]) == pytest.approx(s.monte_carlo, rel=1e-9)
    # and where joint does not
    joint = GRADIENT.get("joint")(p, iid(p.N, 1))
    assert s.total(s.of(joint, joint.init(w))[..., MU]) < 1e-20 * s.subsampling


@pytest.mark.long
@pytest.mark.parametrize("name", ["joint", "joint_svrg"])
def test_the_variance_of_joint(name):
    """Eqs. 5 and 6, for the part of ``mu``: with ``f~`` at the stored parameters of each row, or at the snapshot."""
    p, w = problem(), params(seed=5)
    estimator, state = run(p, name, epochs=3, batch=1)
    state = state.estimator
    if name == "joint":
        table = state["table"]
        stored = {block: value[table["slot"]] for block, value in table["previous"].items()}
    else:
        stored = {block: jnp.broadcast_to(value, (p.N, DIM)) for block, value in state["point"].items()}
    mu, scale = (np.asarray(value) for value in stored.values())
    s = Spread(p, w)
    g = s.of(estimator, state)

    def energy(z, n):
        return p.energy(z, n[None], jnp.ones(1))

    rows = jnp.arange(p.N)
    derivatives = jax.jit(jax.vmap(lambda z, n: (jax.grad(energy)(z, n), jax.hessian(energy)(z, n))))
    slopes, hessians = map(np.asarray, derivatives(jnp.asarray(mu), rows))
    approximation = slopes[:, None] + np.einsum("nij,nsj->nsi", hessians, scale[:, None] * np.asarray(s.eps))
    expected = s.f[..., MU] + slopes.mean(axis=0) - approximation
    np.testing.assert_allclose(g[..., MU], expected, rtol=1e-8, atol=1e-10)  # eq. 5, point by point
    assert s.total(g[..., MU]) == pytest.approx(s.total(s.f[..., MU] - approximation), rel=1e-8)  # eq. 6


def test_an_idle_start_is_complete_once_an_epoch_has_begun():
    p, w = problem(), params()
    estimator = GRADIENT.get("joint_adaptive")(p, reshuffled(N, BATCH))
    idle, complete = estimator.idle(w), estimator.init(w)
    assert np.isinf(idle["snapshot"]["mean"]).all()  # not NaN: jax_debug_nans would refuse the fit
    jax.tree.map(np.testing.assert_array_equal, estimator.begin_epoch(idle, w), estimator.begin_epoch(complete, w))
