"""Cells of Sun, Barp and Briol, "Vector-valued control variates".

Settings that the paper does not print are those of its published code, as ``paper_vv_fixed`` and ``paper_cf`` state
them: raw points, lengthscales ``nu`` from 10, a constant 1 in the likelihood, rates times 0.99.
"""

import itertools
import json

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import minimize

from . import common
from .common import Found

# Appendix E.4, Table 4: means; standard deviation of r_w, variances of the others
MEANS = np.array([0.1, 100.0, 89335.0, 89.55, 1050.0, 760.0, 1400.0, 10950.0])
DEVIATIONS = np.r_[0.0161812, np.sqrt([0.01, 20.0, 1.0, 1.0, 1.0, 10.0, 30.0])]
B = np.array([[5e-4, 5e-5], [5e-5, 5e-4]])
RATES = {(10, 10): 0.09, (20, 20): 0.06, (20, 40): 0.04, (20, 60): 0.02, (150, 150): 0.002}  # E.4.1, E.4.2
PENALTY, EPOCHS, BATCH = 1e-5, 600, 5
TUNING_EPOCHS, TUNING_RATE = 20, 0.05


def borehole(x, high: bool):
    """The flow of water, in high or low fidelity (E.4), of rows ``(..., 8)``."""
    r_w, r, t_u, t_l, h_u, h_l, length, k_w = np.moveaxis(x, -1, 0)
    factor, constant = (2 * np.pi, 1.0) if high else (5.0, 1.5)
    log = np.log(r / r_w)
    return factor * t_u * (h_u - h_l) / (log * (constant + 2 * length * t_u / (log * r_w**2 * k_w) + t_u / t_l))


def borehole_truth() -> float:
    """``E f_H`` by Gauss-Hermite quadrature: 12 nodes for r_w, whose last is above zero, three for the others."""
    rules = [np.polynomial.hermite_e.hermegauss(n) for n in (12, *[3] * 7)]
    nodes = np.array(list(itertools.product(*(rule[0] for rule in rules))))
    weights = np.prod(list(itertools.product(*(rule[1] / rule[1].sum() for rule in rules))), axis=1)
    return float(weights @ borehole(MEANS + DEVIATIONS * nodes, high=True))


def stein(x, y, score_x, score_y, nu):
    """Scalar Stein kernels ``k0(x, y)`` of the product squared-exponential kernel, ``(n, m)`` (Section 2, D.1)."""
    apart = x[:, None] - y[None]
    k = jnp.exp(-0.5 * jnp.sum(apart**2 / nu, axis=-1))
    mixed = 1 / nu - (apart / nu) ** 2  # d_x d_y k / k
    mixed += apart / nu * (score_x[:, None] - score_y[None])  # l(y) d_x k + l(x) d_y k
    return k * jnp.sum(mixed + score_x[:, None] * score_y[None], axis=-1)


def adam(value, gradient, moments, step, rate):
    """One step of Adam (Kingma and Ba)."""
    first, second = 0.9 * moments[0] + 0.1 * gradient, 0.999 * moments[1] + 0.001 * gradient**2
    step = step + 1
    move = first / (1 - 0.9**step) / (jnp.sqrt(second / (1 - 0.999**step)) + 1e-8)
    return value - rate * move, (first, second)


def tuned(blocks, batch: int, epochs: int, rate: float, rng):
    """``nu`` of the marginal likelihood of mini-batches (D.2), of values ``(m, tasks)`` in each block of points.

    ``-log N(y; 0, k0 + 1 + ridge)`` on the batch, summed over tasks; the ridge is 1e-6, or the smallest power of ten
    that brings the condition number below 1e6. ``blocks`` are lists of points, scores and values.
    """

    def loss(log_nu, x, score, y):
        gram = stein(x, x, score, score, jnp.exp(log_nu)) + 1.0
        ends = jnp.linalg.eigvalsh(jax.lax.stop_gradient(gram))[jnp.array([0, -1])]
        needed = (ends[1] - 1e6 * jnp.maximum(ends[0], 0)) / (1e6 - 1)
        ridge = jnp.where(needed > 0, 10.0 ** jnp.ceil(jnp.log10(jnp.maximum(needed, 1e-5))), 1e-6)
        lower = jnp.linalg.cholesky(gram + ridge * jnp.eye(len(x)))
        z = jax.scipy.linalg.solve_triangular(lower, y, lower=True)
        return 0.5 * jnp.sum(z * z) + y.shape[1] * jnp.sum(jnp.log(jnp.diagonal(lower)))

    def one(run):
        blocks, orders = run

        def step(state, batch):
            log_nu, _, moments, number, rate = state
            slope = sum(jax.grad(loss)(log_nu, *(array[at] for array in block))
                        for block, at in zip(blocks, batch, strict=True))  # fmt: skip
            new, moments = adam(log_nu, slope, moments, number, 0.99 * rate)
            return (new, log_nu, moments, number + 1, 0.99 * rate), None

        start = jnp.full(blocks[0][0].shape[1], np.log(10.0))
        state = (start, start, (jnp.zeros_like(start),) * 2, jnp.asarray(0.0), jnp.asarray(rate))
        return jnp.exp(jax.lax.scan(step, state, orders)[0][1])  # where the last gradient was taken

    runs, sizes = blocks[0][0].shape[0], [block[0].shape[1] for block in blocks]
    orders = []
    for m in sizes:  # in their order first, then shuffled; each batch has the same number of a block's points
        of_epochs = [np.tile(np.arange(m), (runs, 1))]
        of_epochs += [rng.permuted(of_epochs[0], axis=1) for _ in range(epochs - 1)]
        orders.append(np.concatenate(of_epochs, axis=1).reshape(runs, -1, batch * m // min(sizes)))
    # a repetition after the other: batches of small factorisations can lock up XLA's threads
    return jax.jit(lambda run: jax.lax.map(one, run))((tuple(map(tuple, blocks)), tuple(orders)))


def plan(sizes, batch: int, shuffle: bool, runs: int, rng):
    """Rows ``(runs, steps, b)`` of an epoch's batches, of all blocks, and their weights ``2 / b_t``, 0 where padded."""
    steps, largest = -(-max(sizes) // batch), max(sizes)
    rows, weights = [], []
    start = 0
    orders = {}
    for m in sizes:  # blocks of one size are shuffled alike
        if m not in orders:
            every = np.tile(np.arange(m), (runs, 1))
            orders[m] = rng.permuted(every, axis=1) if shuffle else every
    for m in sizes:
        cuts = [min(k * batch * m // largest, m) for k in range(steps)] + [m]
        most = max(np.diff(cuts))
        at, weight = np.zeros((runs, steps, most), int), np.zeros((steps, most))
        for k in range(steps):
            n = cuts[k + 1] - cuts[k]
            at[:, k, :n] = start + orders[m][:, cuts[k] : cuts[k + 1]]
            weight[k, :n] = 2 * largest / (batch * m)
        rows.append(at)
        weights.append(weight)
        start += m
    return np.concatenate(rows, axis=2), weights


def fixed_relation(points, scores, values, shuffle: bool, seed: int, batch: int = BATCH) -> np.ndarray:
    """Algorithm 2, special case II, ``g = k0(x, X) theta B`` with ``B`` known: estimates ``beta (runs, 2)``.

    Adam on ``sum_t mean_batch (f_t - g_t - beta_t)^2 + lambda |theta|^2`` from ``theta = 0`` and sample means (A.2).
    A batch has ``batch`` points of the largest task, the others in proportion.
    """
    rng = np.random.default_rng(seed)
    runs, sizes = len(points[0]), tuple(p.shape[1] for p in points)
    blocks = [(p, s, v[..., None]) for p, s, v in zip(points, scores, values, strict=True)]
    nu = tuned(blocks, BATCH, TUNING_EPOCHS, TUNING_RATE, rng)
    x, score = np.concatenate(points, axis=1), np.concatenate(scores, axis=1)
    gram = jax.jit(lambda x, score, nu: jax.lax.map(lambda one: stein(one[0], one[0], one[1], one[1], one[2]),
                                                    (x, score, nu)))(x, score, nu)  # fmt: skip
    y, task = np.concatenate(values, axis=1), np.repeat([0, 1], sizes)
    observed = np.stack([np.where(task == t, y, 0.0) for t in (0, 1)], axis=2)
    _, weights = plan(sizes, batch, False, 1, rng)
    mask = [np.stack([w * (t == s) for s in (0, 1)], axis=2) for t, w in enumerate(weights)]
    weight = jnp.asarray(np.concatenate(mask, axis=1))  # (steps, b, tasks)

    def step(state, batch):
        theta, beta, of_theta, of_beta, number, rate = state
        rows, weight = batch
        k = jax.vmap(lambda gram, rows: gram[rows])(gram, rows)
        fitted = jnp.einsum("rbn,rnt,ts->rbs", k, theta, B) + beta[:, None]
        target = jax.vmap(lambda observed, rows: observed[rows])(jnp.asarray(observed), rows)
        residual = weight * (fitted - target)
        slope = jnp.einsum("rbn,rbs,st->rnt", k, residual, B) + 2 * PENALTY * theta
        theta, of_theta = adam(theta, slope, of_theta, number, rate)
        beta, of_beta = adam(beta, residual.sum(1), of_beta, number, rate)
        return (theta, beta, of_theta, of_beta, number + 1, rate), None

    @jax.jit
    def epoch(state, rows):
        state, _ = jax.lax.scan(step, state, (jnp.moveaxis(rows, 1, 0), weight))
        return *state[:-1], 0.99 * state[-1]

    theta, beta = jnp.zeros((runs, len(task), 2)), jnp.stack([v.mean(1) for v in map(jnp.asarray, values)], axis=1)
    zeros = [(jnp.zeros_like(one),) * 2 for one in (theta, beta)]
    state = (theta, beta, *zeros, jnp.asarray(0.0), jnp.asarray(RATES[sizes]))
    for number in range(EPOCHS):
        state = epoch(state, plan(sizes, batch, shuffle and number > 0, runs, rng)[0])
    return np.asarray(state[1])


def table_2_fixed() -> Found:
    """Table 2, ``B`` fixed, m = 150: the mean absolute error on the draws of the published code.

    Its draws are those of PyTorch's generator, seed ``2 r + t``, input by input, in single precision.
    """
    import torch

    settings = common.experiment("vvcv_table2")
    m, runs = settings["problems"]["published_150"]["sizes"][0], settings["estimation"]["repetitions"]
    mean, deviation = (torch.tensor(one, dtype=torch.float32) for one in (MEANS, DEVIATIONS))

    def drawn(seed):
        generator = torch.Generator().manual_seed(seed)
        return (mean + deviation * torch.cat([torch.randn(m, 1, generator=generator) for _ in MEANS], 1)).double()

    points = [np.stack([drawn(2 * r + t).numpy() for r in range(runs)]) for t in (0, 1)]
    scores = [(MEANS - x) / DEVIATIONS**2 for x in points]
    values = [borehole(x, high=bool(t)) for t, x in enumerate(points)]
    error = fixed_relation(points, scores, values, True, 4721)[:, 1] - borehole_truth()
    return common.mean(np.abs(error), note=f"{runs} repetitions")


def unbalanced_swapped(runs: int = 500) -> Found:
    """Figure 5 with the code's sizes: the mean absolute error with 60 points of the accurate model and 20 of the other.

    Algorithm 2 as in Table 2, points in their order; a batch has 15 points of the accurate model and 5 of the other.
    """
    rng = np.random.default_rng(4722)
    points = [MEANS + DEVIATIONS * rng.standard_normal((runs, m, 8)) for m in (20, 60)]
    scores = [(MEANS - x) / DEVIATIONS**2 for x in points]
    values = [borehole(x, high=bool(t)) for t, x in enumerate(points)]
    error = fixed_relation(points, scores, values, False, 4723, batch=15)[:, 1] - borehole_truth()
    return common.mean(np.abs(error), note=f"{runs} repetitions")


def hares_control_functional(chains: int = 60) -> Found:
    """Table 3, control functional at T = 5: the sum over tasks of mean absolute errors, m = 500 (5.3, E.6).

    The posterior is sampled by Hamiltonian Monte Carlo, in place of NUTS, on a Runge-Kutta solution of the system with
    20 steps a year. The control functional is ``beta = 1' M^-1 y / 1' M^-1 1`` with ``M = k0 + 1e-3 I``. True means are
    those of all draws after a regression on second-order Stein polynomials of degree three, whose means are zero.
    """
    settings = common.experiment("vvcv_lotka")
    m, options = settings["problems"]["hares_5"]["sizes"][0], settings["methods"]["paper_cf"]["options"]
    with np.load(common.prepared("hudson_bay", "none")) as data:
        names = json.loads(data["meta"].item())["outputs"]
        seen = np.log(data["y"][:, [names.index("hare"), names.index("lynx")]])
    prior, width = np.array([0, -3, -3, 0, *[np.log(10)] * 2, -1, -1]), np.array([0.5] * 4 + [1.0] * 4)
    h, asked = 0.05, 20 * 12 + 4 * np.arange(5)  # 1912 + 0.2 k

    def logs(x):
        """Logarithms of hares and lynxes every ``h`` years from 1900, ``(401, 2)``."""
        alpha, beta, delta, gamma = jnp.exp(x[:4])

        def field(s):
            return jnp.stack([alpha - beta * jnp.exp(s[1]), delta * jnp.exp(s[0]) - gamma])

        def move(s, _):
            a = field(s)
            b = field(s + h / 2 * a)
            c = field(s + h / 2 * b)
            s = s + h / 6 * (a + 2 * b + 2 * c + field(s + h * c))
            return s, s

        return jnp.concatenate([x[None, 4:6], jax.lax.scan(move, x[4:6], None, length=400, unroll=4)[1]])

    def log_density(x):
        path = logs(x)
        z = (seen - path[::20]) / jnp.exp(x[6:])
        likelihood = -0.5 * jnp.sum(z * z) - len(seen) * jnp.sum(x[6:])
        return likelihood - 0.5 * jnp.sum(((x - prior) / width) ** 2), jnp.exp(path[asked, 0])

    both = jax.vmap(jax.value_and_grad(log_density, has_aux=True))
    alone = jax.jit(lambda x: jax.tree.map(lambda one: one[0], both(x[None])))

    def minus(x):
        (value, _), slope = alone(x)
        return -float(value), -np.asarray(slope)

    mode = minimize(minus, np.log([0.55, 0.028, 0.024, 0.80, 34.0, 5.9, 0.25, 0.25]), jac=True, method="BFGS").x
    apart = 1e-4 * np.eye(8)
    hessian = np.stack([(minus(mode + one)[1] - minus(mode - one)[1]) / 2e-4 for one in apart])
    root = np.linalg.cholesky(np.linalg.inv((hessian + hessian.T) / 2))

    def transition(state, key):
        x, value, slope, hares = state
        of_p, of_step, of_accept = jax.random.split(key, 3)
        p = jax.random.normal(of_p, x.shape)
        size = 0.45 * jax.random.uniform(of_step, (len(x), 1), minval=0.8, maxval=1.2)
        energy = value - 0.5 * jnp.sum(p * p, axis=1)

        def leap(state, _):
            x, p, (_, slope) = state
            p = p + size / 2 * (slope @ root)
            x = x + size * (p @ root.T)
            found = both(x)
            return (x, p + size / 2 * (found[1] @ root), found), None

        (new, p, found), _ = jax.lax.scan(leap, (x, p, ((value, hares), slope)), None, length=5)
        (new_value, new_hares), new_slope = found
        log_ratio = new_value - 0.5 * jnp.sum(p * p, axis=1) - energy
        taken = jnp.log(jax.random.uniform(of_accept, log_ratio.shape)) < log_ratio
        pick = lambda a, b: jnp.where(taken[:, None], a, b)  # noqa: E731
        state = pick(new, x), jnp.where(taken, new_value, value), pick(new_slope, slope), pick(new_hares, hares)
        return state, (state[0], state[2], state[3], taken)

    key, rng = jax.random.key(4724), np.random.default_rng(4725)
    x = jnp.asarray(mode + rng.standard_normal((chains, 8)) @ root.T)
    (value, hares), slope = both(x)
    run = jax.jit(lambda state, keys: jax.lax.scan(transition, state, keys))
    _, drawn = run((x, value, slope, hares), jax.random.split(key, 100 + m))
    points, scores, values, taken = (np.moveaxis(np.asarray(one)[100:], 0, 1) for one in drawn)

    # truth: f - h, h of degree three
    flat = (points.reshape(-1, 8) - mode) @ np.linalg.inv(root).T
    whitened = scores.reshape(-1, 8) @ root
    powers = [e for e in itertools.product(range(4), repeat=8) if 0 < sum(e) <= 3]
    columns = []
    for e in powers:  # laplacian + score . gradient of the monomial
        total = 0.0
        for j in range(8):
            for times, factor in ((1, whitened[:, j]), (2, 1.0)):
                coefficient = e[j] if times == 1 else e[j] * (e[j] - 1)
                if coefficient:
                    down = [one - times * (i == j) for i, one in enumerate(e)]
                    total = total + coefficient * factor * np.prod(flat ** np.array(down), axis=1)
        columns.append(total)
    design = np.stack([np.ones(len(flat)), *columns], axis=1)
    target = values.reshape(-1, 5)
    coefficients = np.linalg.lstsq(design, target, rcond=None)[0]
    truth = coefficients[0]
    rest = (target - design @ coefficients).reshape(chains, m, 5).mean(1).std(0, ddof=1) / np.sqrt(chains)

    nu = tuned([(points, scores, values)], options["tuning_batch"], options["tuning_epochs"],
               options["tuning_rate"], rng)  # fmt: skip

    @jax.jit
    def functional(x, score, y, nu):
        ends, vectors = jnp.linalg.eigh(stein(x, x, score, score, nu))
        ends = jnp.maximum(ends, 0) + 1e-3
        ones = vectors.sum(0)
        return (ones / ends) @ (vectors.T @ y) / (ones @ (ones / ends))

    estimates = np.stack([functional(*one) for one in zip(points, scores, values, nu, strict=True)])
    error = np.abs(estimates - truth).sum(1)
    plain = np.abs(values.mean(1) - truth).sum(1).mean()
    note = f"plain averages {plain:.3g}; accepted {taken.mean():.2f}; errors of true means {rest.max():.1g}"
    return common.mean(error, note=note)
