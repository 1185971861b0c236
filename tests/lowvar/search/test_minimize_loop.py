"""Searches that callers drive, watch or interrupt: ask and tell, callbacks, Ctrl-C."""

import signal

import jax
import numpy as np
import pytest
from searched import DIM, VALUES, X0, in_full_when_long, quiet, skip_without_packages, sphere

import lowvar
from lowvar.errors import UserError
from lowvar.search.solvers import SEARCH


def test_the_callback():
    seen = []

    def at_three(generation):
        seen.append(generation)
        return generation.iteration == 3

    def stop(generation):
        raise StopIteration

    result = quiet(sphere, X0, 0.5, budget=500, population=10, callback=at_three)
    assert (result.status, result.success, result.nit, result.nfev) == ("callback", False, 3, 33)
    assert [g.evaluations for g in seen] == [12, 23, 33]
    assert all(g.points.shape == (10, DIM) and g.values.shape == (10,) for g in seen)
    assert seen[-1].fun == result.fun == min(g.values.min() for g in seen)
    np.testing.assert_array_equal(seen[-1].searcher.mean, result.mean)
    assert quiet(sphere, X0, 0.5, budget=500, callback=stop).nit == 1
    for going, status in ((0, "budget"), (np.array([1]), "callback")):
        assert quiet(sphere, X0, 0.5, budget=40, callback=lambda generation, going=going: going).status == status
    with pytest.raises(UserError, match="callback"):
        quiet(sphere, X0, 0.5, budget=100, callback=lambda generation: generation.x)


def test_an_error_of_a_callback_has_the_result_so_far():
    def fails(generation):
        if generation.iteration == 3:
            raise ZeroDivisionError("in the callback")

    with pytest.raises(ZeroDivisionError, match="in the callback") as caught:
        quiet(sphere, X0, 0.5, budget=500, population=10, callback=fails)
    result = caught.value.result
    assert (result.status, result.message, result.nfev) == ("failed", "in the callback", 33)
    assert result.fun == sphere(result.x)


@pytest.mark.parametrize("method", ["fast_ingo", "pycma"])
def test_ask_and_tell_are_minimize(method):
    skip_without_packages(method)
    solver = lowvar.Searcher(X0, 0.5, method, seed=3)
    while solver.best > 5 and solver.evaluations < 2000:  # stops early
        points = solver.ask()
        np.testing.assert_array_equal(points, solver.ask())
        assert not points.flags.writeable
        values = [sphere(x) for x in points]
        solver.tell(values)
    result = quiet(sphere, X0, 0.5, method, budget=2000, seed=3, target=5, noisy=False)
    assert (solver.best, solver.evaluations, solver.iteration) == (result.fun, result.nfev, result.nit)
    assert solver.sigma == result.sigma
    np.testing.assert_array_equal(solver.best_at, result.x)
    np.testing.assert_array_equal(solver.mean, result.mean)


def test_tell_takes_any_numbers():
    torch = pytest.importorskip("torch")
    solver = lowvar.Searcher(np.ones(3), 0.5, population=4)
    graded = [(torch.tensor(n, requires_grad=True) ** 2).sum() for n in (1.0, 2.0, 3.0, 4.0)]
    for values in ([1, 2, 3, 4], graded, torch.tensor([1.0, np.nan, 3.0, np.inf]), jax.numpy.arange(4)):
        solver.ask()
        solver.tell(values)
    assert solver.best == 0
    assert repr(solver) == "Searcher(ingo_cma, real, dim 3: 16 evaluations, best 0)"


@pytest.mark.parametrize(
    "method", in_full_when_long(VALUES, "fast_ingo", "ingo_binary", "ingo_categorical", "pycma", "pymoo_ga")
)
def test_every_method_can_be_driven(method):
    skip_without_packages(method)
    kind = SEARCH.about(method).domains[0]
    if kind != "real":
        start = {"domain": kind, "dim": 4, "choices": 3 if kind == "categorical" else None}
    else:
        start = {"x0": np.ones(4), "sigma0": 0.5}
    solver = lowvar.Searcher(method=method, backend=SEARCH.about(method).backends[0], **start)
    for _ in range(2):
        solver.tell([sphere(x) for x in solver.ask()])
    assert solver.evaluations == 2 * len(solver.ask())
    assert solver.mean.shape == solver.best_at.shape == (4,)


@pytest.mark.parametrize("last", [2, 6, 100])
def test_an_interrupt_keeps_what_was_evaluated(last):
    """In the first generation too, of eight points."""
    calls = []

    def f(x):
        calls.append(float(x @ x))
        if len(calls) == last:
            signal.raise_signal(signal.SIGINT)
        return calls[-1]

    with pytest.raises(KeyboardInterrupt) as raised:
        lowvar.minimize(f, np.ones(5), 0.5, budget=10_000)
    result = raised.value.result
    assert (result.status, result.success) == ("interrupted", False)
    assert result.fun == float(result.x @ result.x) == min(calls[:-1])
    assert result.nfev == last - 1 == len(calls) - 1  # nothing was evaluated afterwards
    assert "`result`" in raised.value.__notes__[0]


@pytest.mark.parametrize("options", [{}, {"batched": True}])
def test_an_interrupt_before_the_first_value_has_no_result(options):
    with pytest.raises(KeyboardInterrupt) as raised:
        lowvar.minimize(lambda x: signal.raise_signal(signal.SIGINT), np.ones(5), 0.5, budget=10_000, **options)
    assert raised.value.result is None
    assert "minimize" in raised.value.__notes__[0]
