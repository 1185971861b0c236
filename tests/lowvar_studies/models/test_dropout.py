import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lowvar.errors import UserError
from lowvar.vi.batches import Noise
from lowvar_studies.models import dropout

N, D, K, SIGMA = 23, 3, 4, 0.5


def data(seed=0, rows=N, dim=D):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, K, rows)
    y[0] = K - 1
    return {"x": rng.normal(size=(rows, dim)), "y": y}


def made(backend="jax", **options):
    return dropout.problem(data(), backend, sigma=SIGMA, **options)


def weights(seed=1, rows=()):
    return np.random.default_rng(seed).normal(size=(*rows, K * D))


def batch(problem, points=2, rows=5, seed=2):
    rng = np.random.default_rng(seed)
    weight = rng.uniform(size=rows)
    arrays = rng.integers(0, N, rows).astype(np.int32), weight / weight.sum(), rng.normal(size=(points, D))
    index, weight, eps = map(problem.backend.asarray, arrays)
    return Noise(index, weight, float(rows), eps, 0)


def tree(problem, w):
    return {"w": problem.backend.asarray(w)}


def array(problem, gradient):
    assert set(gradient) == {"w"}
    return problem.backend.to_numpy(gradient)["w"]


def calls(problem, **asked):
    """``{method: its result}`` of ``{method: arguments}``, in JAX by one program."""
    of = problem.backend.jit(lambda given: {name: getattr(problem, name)(*args) for name, args in given.items()})
    found = of(asked)
    return {name: found[name] for name in asked}  # JAX sorts them


# the definitions, without a closed form


def loss(w, x, y, eps):
    return -jax.nn.log_softmax(w.reshape(K, D) @ ((1 + SIGMA * eps) * x))[y]


def taylor(w, x, y, eps):
    def f(eps):
        return loss(w, x, y, eps)

    zero = jnp.zeros(D)
    value, slope = jax.jvp(f, (zero,), (eps,))
    curvature = jax.jvp(lambda at: jax.jvp(f, (at,), (eps,))[1], (zero,), (eps,))[1]
    return value + slope + 0.5 * curvature


def taylor_mean(w, x, y):
    hessian = jax.hessian(lambda eps: loss(w, x, y, eps))(jnp.zeros(D))
    return loss(w, x, y, jnp.zeros(D)) + 0.5 * jnp.trace(hessian)


@functools.cache
def slope_of(function):
    """Compiled once for all tests."""
    return jax.jit(jax.grad(function))


def by_definition(function, w, noise, arrays, with_eps=True):
    """The weighted mean of the gradients, with weights of its own for each row if ``w`` has them."""
    total, slope = 0.0, slope_of(function)
    for i, (n, weight) in enumerate(zip(np.asarray(noise.index), np.asarray(noise.weight), strict=True)):
        own = jnp.asarray(w[i] if np.ndim(w) == 2 else w)
        x, y = jnp.asarray(arrays["x"][n]), jnp.asarray(arrays["y"][n])
        if with_eps:
            terms = [slope(own, x, y, jnp.asarray(np.asarray(eps))) for eps in noise.eps]
        else:
            terms = [slope(own, x, y)]
        total = total + float(weight) * sum(terms) / len(terms)
    return np.asarray(total)


def close(a, b, tolerance=1e-10):
    np.testing.assert_allclose(a, b, rtol=0, atol=tolerance * max(1.0, float(np.abs(b).max())))


@pytest.mark.parametrize("backend", ["jax", "torch"])
@pytest.mark.parametrize("points", [pytest.param(1, marks=pytest.mark.long), 3])
@pytest.mark.parametrize("by_row", [False, True])
def test_gradients_are_those_of_the_definitions(backend, points, by_row):
    """At one point, and where each row has a point of its own."""
    problem, w = made(backend), weights(rows=(5,) if by_row else ())
    params, noise, end = tree(problem, w), batch(problem, points), "_by_row" if by_row else ""
    at = params if by_row else problem.point(params)
    asked = {"objective_gradient": (params, noise), "approximation": (at, noise),
             "approximation_mean": (at, noise.index, noise.weight)}  # fmt: skip
    gradient, parts, alone = calls(problem, **{f"{name}{end}": args for name, args in asked.items()}).values()
    close(array(problem, gradient), by_definition(loss, w, noise, data()))
    mean, deviation = (array(problem, part) for part in parts)
    close(mean, by_definition(taylor_mean, w, noise, data(), with_eps=False))
    close(mean + deviation, by_definition(taylor, w, noise, data()))
    close(array(problem, alone), mean, 1e-14)


@pytest.mark.parametrize("backend", ["jax", "torch"])
@pytest.mark.parametrize("chunk", [7, pytest.param(1024, marks=pytest.mark.long)])
def test_full_passes_are_means_over_rows(backend, chunk, monkeypatch):
    monkeypatch.setattr(dropout, "_CHUNK", chunk)
    problem = made(backend)
    params = tree(problem, weights())
    rows = problem.backend.asarray(np.arange(N, dtype=np.int32))
    noise = batch(problem)._replace(index=rows, weight=problem.backend.asarray(np.full(N, 1 / N)))
    found = calls(
        problem, full_objective_gradient=(params, noise.eps), objective_gradient=(params, noise),
        full_approximation=(params, noise.eps), approximation=(params, noise),
        full_approximation_mean=(problem.point(params),), approximation_mean=(params, rows, noise.weight),
    )  # fmt: skip
    found = problem.backend.to_numpy(found)
    for name in ("objective_gradient", "approximation", "approximation_mean"):
        for full, of_batch in zip(*map(jax.tree.leaves, (found[f"full_{name}"], found[name])), strict=True):
            close(full, of_batch, 1e-13)


def exact_objective(w, nodes=25):
    points, mass = np.polynomial.hermite_e.hermegauss(nodes)
    grid = jnp.asarray(np.array(list(itertools.product(points, repeat=D))))
    mass = jnp.asarray(np.array(list(itertools.product(mass / mass.sum(), repeat=D))).prod(1))
    values = jax.jit(jax.vmap(lambda x, y: mass @ jax.vmap(lambda eps: loss(w, x, y, eps))(grid)))
    return float(values(jnp.asarray(data()["x"]), jnp.asarray(data()["y"])).mean())


@pytest.mark.parametrize("scale", [0.5, pytest.param(3.0, marks=pytest.mark.long)])
def test_the_objective_is_within_its_standard_errors(scale):
    """And its control variate pays."""
    problem, params = made(), tree(made(), scale * weights())
    exact = exact_objective(params["w"])
    eps = jax.random.normal(jax.random.key(0), (40, 400, D))
    values, errors = map(np.asarray, jax.jit(jax.vmap(lambda eps: problem.elbo(params, eps)))(eps))
    scores = (values + exact) / errors
    assert abs(scores.mean()) < 5 / len(scores) ** 0.5
    assert 0.6 < scores.std() < 1.6
    plain, unknown = jax.jit(jax.vmap(lambda eps: problem.elbo(params, eps[None])))(eps[0])
    assert np.isnan(unknown).all()  # one point says nothing about its error
    assert scale > 1 or errors.mean() < 0.3 * np.std(plain) / 400**0.5


@pytest.mark.parametrize("scale", [1e1, 1e3, 1e5, 1e7])
def test_the_objective_of_weights_that_diverge_is_that_of_their_losses(scale):
    """In single precision the control variate is rounding errors there, many times as large as the losses."""
    rng, rows = np.random.default_rng(3), data(rows=300, dim=84)
    w = scale * (0.01 * rng.normal(size=(K, 84)) + rng.normal(size=(K, 1))).ravel()
    eps = rng.normal(size=(9, 7, 84))
    double = dropout.problem(rows, "jax", sigma=SIGMA)
    losses = [double.elbo({"w": jnp.asarray(w)}, jnp.asarray(some))[0] for some in eps]  # of seven, the plain mean
    single = dropout.problem({**rows, "x": rows["x"].astype(np.float32)}, "jax", sigma=SIGMA)
    w, eps = w.astype(np.float32), eps.reshape(63, 84).astype(np.float32)
    value, error = single.elbo({"w": jnp.asarray(w)}, jnp.asarray(eps))
    assert float(value) == pytest.approx(np.mean(losses), rel=0.02)
    assert 0 <= float(error) < 0.02 * abs(float(value))


def test_large_weights_do_not_overflow():
    problem = made()
    params, noise = tree(problem, 1e4 * weights()), batch(problem)
    eps = jax.random.normal(jax.random.key(0), (10, D))
    found = calls(problem, objective_gradient=(params, noise), approximation=(params, noise), elbo=(params, eps))
    for leaf in jax.tree.leaves(found):
        assert np.isfinite(leaf).all()


def test_single_precision_stays_single():
    arrays, single = data(), np.float32
    problem = dropout.problem({**arrays, "x": arrays["x"].astype(single)})
    params, noise = tree(problem, weights().astype(single)), batch(problem)
    noise = noise._replace(weight=noise.weight.astype(single), eps=noise.eps.astype(single))
    found = calls(
        problem, objective_gradient=(params, noise), approximation=(params, noise),
        full_approximation=(params, noise.eps), full_approximation_mean=(params,),
        full_objective_gradient=(params, noise.eps), elbo=(params, noise.eps),
    )  # fmt: skip
    assert {leaf.dtype for leaf in jax.tree.leaves(found)} == {np.dtype(single)}


@pytest.mark.parametrize(
    ("name", "values"),
    [("y", (np.zeros(3, int), np.full(N, 0.5), np.zeros(N, int), np.arange(N) - 1)), ("x", (np.zeros(N),)), ("sigma", (-1.0, np.nan))],
)  # fmt: skip
def test_mistakes(name, values):
    for value in values:
        with pytest.raises(UserError, match=rf"\b{name}\b|classes"):
            dropout.problem(
                data() | ({} if name == "sigma" else {name: value}), sigma=value if name == "sigma" else SIGMA
            )
