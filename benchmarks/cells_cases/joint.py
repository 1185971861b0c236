"""Cells of Wang, Geffner and Domke, "Joint control variate for faster black-box variational inference".

The objective is ``f(w; n, eps) = k_n(mu + sigma eps) - H(w)`` with ``k_n(z) = -N log p(x_n | z) - log p(z)`` and a
prior z ~ N(0, I); ``w = (mu, log sigma)``; ``f~`` is the second-order expansion of ``k_n`` around mu, and only the
gradient in mu has a control variate. Gradients are written out by hand.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from . import common
from .common import Found


def along_sonar(runs: int = 80, draws: int = 32) -> list[Found]:
    """Figure 2: joint's variance over those of naive, cv and inc, at the worst of five moments of joint's runs.

    SGD, one naive epoch, then joint (eq. 5, Algorithm 1 with G from the table). A batch shares one eps, so its
    variance is ``E_eps V_n[g] / B + V_eps[E_n g]`` (Section 4), from all rows and some draws of eps.
    """
    settings = common.experiment("joint_table1")
    own, solver = settings["problems"]["sonar"]["decomposition"], settings["problems"]["sonar"]["solver"]
    step, epochs, size = own["step_size"], own["epochs"], solver["batch_size"]
    moments = sorted({round(t) for t in np.geomspace(1, epochs, own["points_along"])})
    with np.load(common.prepared("sonar", "minmax")) as data:
        x, y = jnp.asarray(data["x"]), jnp.asarray(data["y"], float)
    N, d = x.shape
    steps = -(-N // size)

    def exact(w, x, y, eps):
        """``grad f(w; n, eps)`` of a row, (mu, log sigma)."""
        mu, sigma = w[:d], jnp.exp(w[d:])
        z = mu + sigma * eps
        k = N * (jax.nn.sigmoid(x @ z) - y) * x + z
        return jnp.concatenate([k, k * sigma * eps - 1])

    def expected(w, x, y):
        """``E_xi grad f~(w; n, xi)``: the gradient of k_n at mu; 0 for log sigma."""
        k = N * (jax.nn.sigmoid(x @ w[:d]) - y) * x + w[:d]
        return jnp.concatenate([k, jnp.zeros(d)])

    def approximate(w, x, y, eps):
        """``grad f~(w; n, eps)``: with the Hessian's product."""
        p, v = jax.nn.sigmoid(x @ w[:d]), jnp.exp(w[d:]) * eps
        return expected(w, x, y) + jnp.concatenate([N * p * (1 - p) * x * (x @ v) + v, jnp.zeros(d)])

    def gradients(w, table, eps):
        """Of all rows at one eps, by method."""
        naive = jax.vmap(exact, (None, 0, 0, None))(w, x, y, eps)
        ours = jax.vmap(expected, (None, 0, 0))(w, x, y) - jax.vmap(approximate, (None, 0, 0, None))(w, x, y, eps)
        old = jax.vmap(exact, (0, 0, 0, None))(table, x, y, eps)
        G = jnp.mean(jax.vmap(expected)(table, x, y), axis=0)
        stored = G - jax.vmap(approximate, (0, 0, 0, None))(table, x, y, eps)
        return {"naive": naive, "cv": naive + ours, "inc": naive + old.mean(0) - old, "joint": naive + stored}

    def variances(w, table, key):
        def one(eps):
            return jax.tree.map(lambda g: (jnp.sum(jnp.var(g, axis=0)), jnp.mean(g, axis=0)), gradients(w, table, eps))

        found = jax.lax.map(one, jax.random.normal(key, (draws, d)))
        return {name: jnp.mean(within) / size + jnp.sum(jnp.var(mean, axis=0, ddof=1))
                for name, (within, mean) in found.items()}  # fmt: skip

    def epoch(state, key, ready):
        """An epoch in a random order, whose last batch may be short; the table has the w of each row's last visit."""
        of_order, of_eps = jax.random.split(key)
        order = jnp.concatenate([jax.random.permutation(of_order, N), jnp.full(steps * size - N, N)])
        w, table, G = state
        padded, labels = jnp.concatenate([x, jnp.zeros((1, d))]), jnp.append(y, 0.0)

        def move(state, batch):
            w, table, G = state
            rows, eps = batch
            weight = (rows < N) / jnp.sum(rows < N)
            at, label, old = padded[rows], labels[rows], table[rows]
            g = weight @ jax.vmap(exact, (None, 0, 0, None))(w, at, label, eps)
            control = G - weight @ jax.vmap(approximate, (0, 0, 0, None))(old, at, label, eps)
            fresh = jax.vmap(expected, (None, 0, 0))(w, at, label) - jax.vmap(expected)(old, at, label)
            G = G + ready * ((rows < N) @ fresh) / N
            return (w - step * (g + ready * control), table.at[rows].set(w), G), None

        batches = order.reshape(steps, size), jax.random.normal(of_eps, (steps, d))
        (w, table, G), _ = jax.lax.scan(move, (w, table, G), batches)
        filled = jnp.mean(jax.vmap(expected)(table[:N], x, y), axis=0)
        return w, table, jnp.where(ready > 0, G, filled)

    @jax.jit
    def run(key):
        of_start, of_run, of_measure = jax.random.split(key, 3)
        w = jax.random.normal(of_start, (2 * d,))  # the paper's start
        state, found, begin = (w, jnp.tile(w, (N + 1, 1)), jnp.zeros(2 * d)), [], 0
        for moment in moments:
            state = jax.lax.fori_loop(
                begin, moment,
                lambda e, state: epoch(state, jax.random.fold_in(of_run, e), (e > 0).astype(float)), state)  # fmt: skip
            found.append(variances(state[0], state[1][:N], jax.random.fold_in(of_measure, moment)))
            begin = moment
        return found

    found = [run(key) for key in jax.random.split(jax.random.key(4701), runs)]
    each = []
    for number, moment in enumerate(moments):
        values = {name: np.array([float(one[number][name]) for one in found]) for name in found[0][number]}
        for other in ("naive", "cv", "inc"):

            def ratio(kept, mine=values["joint"], theirs=values[other]):
                return np.log(mine[kept].mean() / theirs[kept].mean())

            note = f"to {other}, epoch {moment}, the worst of {len(moments)} moments"
            each.append(common.jackknifed(ratio, runs, logs=True, note=note))
    return each


@functools.cache
def mnist():
    """Images in [0, 1], and their digits."""
    with np.load(common.prepared("mnist", "unit")) as data:
        return jnp.asarray(data["x"], jnp.float32), jnp.asarray(data["y"].astype(np.int32))


class Softmax:
    """Softmax regression on MNIST, z (784, 10), with gradients for a batch of rows that share one eps."""

    def __init__(self):
        self.x, self.y = mnist()
        self.N, self.shape = len(self.x), (self.x.shape[1], 10)
        self._epochs = {}

    def likelihood(self, z, rows):
        """``-N grad mean log p(x_n | z)``, and the probabilities."""
        x, p = self.x[rows], jax.nn.softmax(self.x[rows] @ z)
        return self.N / len(rows) * (x.T @ (p - jax.nn.one_hot(self.y[rows], 10, dtype=jnp.float32))), p

    def hessian_product(self, p, v, rows):
        """The Hessian of ``mean k_n`` times v, at probabilities p."""
        x = self.x[rows]
        a = x @ v
        return self.N / len(rows) * (x.T @ (p * (a - jnp.sum(p * a, axis=1, keepdims=True)))) + v

    def full(self, mu):
        """``E_m grad k_m(mu)``: a pass over all rows."""
        parts = jnp.arange(self.N).reshape(-1, 6000)
        return jnp.mean(jax.lax.map(lambda rows: self.likelihood(mu, rows)[0], parts), axis=0) + mu

    def gradient(self, method, w, snapshot, rows, eps):
        """naive (4); cv (9); joint_svrg (Algorithm 2 of Appendix B): ``naive + g_bar - grad f~(w~; n, eps)``."""
        mu, log_sigma = w
        v = jnp.exp(log_sigma) * eps
        z = mu + v
        k = self.likelihood(z, rows)[0] + z
        of_mu = k
        if method == "cv":
            of_mu = k - self.hessian_product(jax.nn.softmax(self.x[rows] @ mu), v, rows)  # E grad f~ - grad f~
        if method == "joint_svrg":
            (old, old_log_sigma), mean = snapshot
            slope, p = self.likelihood(old, rows)
            of_mu = k + mean - (slope + old + self.hessian_product(p, jnp.exp(old_log_sigma) * eps, rows))
        return of_mu, k * v - 1

    def epochs(self, method: str, size: int = 100):
        """A program of an epoch of Adam in a random order: ``(state, key, step size) -> state``."""
        if method in self._epochs:
            return self._epochs[method]
        steps = self.N // size

        @jax.jit
        def epoch(state, key, rate):
            of_order, of_eps = jax.random.split(key)
            order = jax.random.permutation(of_order, self.N).reshape(steps, size)
            w = state[0]
            snapshot = (w, self.full(w[0])) if method == "joint_svrg" else (w, w[0])

            def move(state, batch):
                w, first, second, count = state
                rows, t = batch
                eps = jax.random.normal(jax.random.fold_in(of_eps, t), self.shape, jnp.float32)
                g = self.gradient(method, w, snapshot, rows, eps)
                first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, g)
                second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, second, g)
                count = count + 1
                a, b = 1 / (1 - 0.9**count), 1 / (1 - 0.999**count)
                w = jax.tree.map(lambda w, m, v: w - rate * a * m / (jnp.sqrt(b * v) + 1e-8), w, first, second)
                return (w, first, second, count), None

            return jax.lax.scan(move, state, (order, jnp.arange(steps)))[0]

        self._epochs[method] = epoch
        return epoch

    def start(self, seed: int):
        """Means and log standard deviations from N(0, 1), as the paper has it, and Adam's zeros."""
        w = tuple(jax.random.normal(jax.random.key(seed), (2, *self.shape), jnp.float32))
        zeros = jax.tree.map(jnp.zeros_like, w)
        return w, zeros, zeros, jnp.float32(0)

    @functools.cached_property
    def elbo(self):
        """``w, key -> ELBO``: logits of a row are independent Gaussians under q, and are drawn instead of z."""

        def elbo(w, key):
            mu, log_sigma = w
            variance = jnp.exp(2 * log_sigma)

            def part(rows):
                x = self.x[rows]
                eps = jax.random.normal(jax.random.fold_in(key, rows[0]), (8, len(rows), 10), jnp.float32)
                logits = x @ mu + jnp.sqrt((x * x) @ variance) * jnp.concatenate([eps, -eps])
                chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), self.y[rows][None, :, None], axis=2)
                return jnp.mean(jnp.sum(chosen, axis=(1, 2)))

            likelihood = jnp.sum(jax.lax.map(part, jnp.arange(self.N).reshape(-1, 6000)))
            return likelihood - 0.5 * jnp.sum(mu**2 + variance - 1 - 2 * log_sigma)  # less the divergence to N(0, I)

        return jax.jit(elbo)


def mnist_monte_carlo(runs: int = 5, draws: int = 32) -> Found:
    """Table 1, mnist: ``V_eps[E_n grad f(w; n, eps)]``, naive, at the end of joint's runs (its SVRG version).

    The trace over mu and log sigma, from gradients of all rows.
    """
    settings = common.experiment("joint_table1")
    own = settings["decomposition"]
    model, epochs = Softmax(), settings["problems"]["mnist"]["decomposition"]["epochs"]

    @jax.jit
    def full(w, eps):
        mu, v = w[0], jnp.exp(w[1]) * eps
        k = model.full(mu + v)
        return jnp.stack([k, k * v - 1])

    values = []
    for run in range(runs):
        state, key = model.start(4702 + run), jax.random.key(4712 + run)
        for number in range(epochs):
            state = model.epochs("joint_svrg")(state, jax.random.fold_in(key, number), jnp.float32(own["step_size"]))
        first = total = square = 0.0
        for draw in range(draws):
            eps = jax.random.normal(jax.random.fold_in(key, 10_000 + draw), model.shape, jnp.float32)
            g = np.asarray(full(state[0], eps), float)
            first = g if draw == 0 else first
            total, square = total + (g - first), square + (g - first) ** 2
        values.append(float(np.sum(square - total**2 / draws) / (draws - 1)))
    return common.mean(values, note=f"{runs} runs, {draws} draws")


def mnist_iterations(runs: int = 4, rates=(1e-2, 5e-3)) -> list[Found]:
    """Figure 3: the iterations that joint's SVRG version takes to the final ELBO of naive and cv, over theirs.

    Along the envelope of step sizes, as for the figure: at every measured epoch the one with the best mean ELBO; the
    first crossing, linear between measured epochs. Only epochs from a third of the run on, and the two step sizes of
    the page that are ever best there.
    """
    solver = common.experiment("joint_mnist")["solver"]
    model, epochs = Softmax(), solver["epochs"]
    grid = np.round(10 ** np.arange(0, np.log10(epochs) + 1e-9, 1 / solver["per_decade"])).astype(int)
    stops = sorted({epochs, *(int(e) for e in grid if 3 * e >= epochs)})
    elbo = {}
    for method in ("naive", "cv", "joint_svrg"):
        values = np.empty((len(rates), runs, len(stops)))
        for i, rate in enumerate(rates):
            for run in range(runs):
                state, key = model.start(4740 + run), jax.random.key(4760 + run)
                for epoch in range(epochs):
                    of_epoch = jax.random.fold_in(key, epoch)
                    state = model.epochs(method)(state, of_epoch, jnp.float32(rate))
                    if epoch + 1 in stops:
                        values[i, run, stops.index(epoch + 1)] = model.elbo(state[0], jax.random.key(epoch))
        best = values.mean(axis=1).argmax(axis=0)
        elbo[method] = values[best, :, np.arange(len(stops))].T
    at = np.array(stops, float) * (model.N // 100)

    def reached(path, level):
        first = int(np.argmax(path >= level))
        if first == 0:  # at the first measured epoch already, or never
            return at[0] if path[0] >= level else np.inf
        part = (level - path[first - 1]) / (path[first] - path[first - 1])
        return at[first - 1] + part * (at[first] - at[first - 1])

    found = []
    for other in ("naive", "cv"):
        ratios = [reached(own, rival[-1]) / reached(rival, rival[-1])
                  for own, rival in zip(elbo["joint_svrg"], elbo[other], strict=True)]  # fmt: skip
        found.append(common.geometric(np.log(ratios), note=f"to {other}, {runs} pairs"))
    return found
