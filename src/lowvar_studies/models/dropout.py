"""Gaussian dropout on the features of a softmax layer: a doubly stochastic objective that is not an ELBO.

With features ``x_n (D,)``, labels ``y_n`` and weights ``w (K, D)``,

    f(w; n, eps) = cross_entropy(y_n, w (m o x_n)),    m = 1 + sigma eps,    eps ~ N(0, I),

in nats, and ``f(w)`` is its mean over rows and noise. The rows of a batch share ``eps``. There is no bias, as in
eq. 56 of the paper; a constant column of ``x`` acts as a bias with dropout.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lowvar.core.backend import Backend, get
from lowvar.errors import UserError, check_known
from lowvar_studies.models.checks import count_classes, features, numbers

_CHUNK = 1024  # maximum number of data rows in a chunk of a full pass
_LOGITS = 2**18  # maximum number of logits in a chunk, with many particles
_REGRESSION = 8  # from this number of particles on, a control variate estimates the objective
_ROUNDED = 5.0  # standard errors from zero at which the mean of a control variate is that of rounding errors
_STARTS = ("standard", "origin")

DATA = ("x", "y")  # arrays that the model needs


@dataclass(frozen=True, eq=False)
class DropoutProblem:
    """The objective, its gradient, and the gradient of its approximation ``f~``.

    ``f~`` is the second-order Taylor expansion of ``f`` in the noise around ``eps = 0``. With ``a = w x``,
    ``p = softmax(a)``, ``H = diag p - p p'`` (the Hessian of cross-entropy for the logits) and
    ``s = w (sigma eps o x)``,

        f~ = logsumexp(a) - a_y + (p - e_y)' s + s' H s / 2,
        E f~ = logsumexp(a) - a_y + sigma^2 / 2 sum_j x_j^2 w_j' H w_j.

    All gradients are analytic. Parameters are ``{"w": (K D,)}``, the concatenated rows of ``w``.
    Noise is a ``lowvar.vi.batches.Noise``, or any object with its ``index``, ``weight`` and ``eps``.

    Attributes:
        name: name in reports.
        backend: the array library.
        N: number of data rows.
        dim: dimension ``D`` of ``x_n`` and of ``eps``.
        classes: number of classes, ``K``.
        sigma: standard deviation of the multipliers.
        x: features, ``(N, D)``.
        y: labels in ``0 .. K - 1``, ``(N,)``.
        dtype: floating type of ``x``.
        exact_elbo: None, as the objective has no closed form.
        sites: no latent sites.

    References:
        Wang, Geffner and Domke, "Joint control variate for faster black-box variational inference", 2024,
        Appendix E.
    """

    name: str
    backend: Backend
    N: int
    dim: int
    classes: int
    sigma: float
    x: Any
    y: Any
    dtype: Any = np.float64
    exact_elbo: None = None
    sites: Mapping[str, slice] = field(default_factory=dict)

    @property
    def blocks(self) -> dict[str, int]:
        """The one parameter block, and its length ``K D``."""
        return {"w": self.classes * self.dim}

    def initial(self, kind: str, key) -> dict[str, np.ndarray]:
        """Starting parameters as NumPy arrays, ``{"w": (K D,)}``.

        Args:
            kind: ``"standard"`` draws every weight from N(0, 1 / D), which gives logits the features' scale;
                ``"origin"`` sets all to zero.
            key: a JAX key (unused by ``"origin"``).

        Raises:
            UserError: another kind.
        """
        check_known("initial", kind, _STARTS)
        size = self.classes * self.dim
        if kind == "origin":
            return {"w": np.zeros(size)}
        import jax

        return {"w": np.asarray(jax.random.normal(key, (size,))) / np.sqrt(self.dim)}

    def objective_gradient(self, params, noise):
        """``grad f(w; B, eps)``: the batch's weighted mean, averaged over the particles."""
        return {"w": self._gradient(self._matrix(params["w"]), noise.index, noise.weight, noise.eps)}

    objective_gradient_by_row = objective_gradient  # with ``params["w"][n]`` of ``(B, K D)`` for row ``n``

    def full_objective_gradient(self, params, eps):
        """``grad f(w; ., eps)`` over all rows, averaged over the particles ``eps (S, dim)``."""
        w = self._matrix(params["w"])
        total = self._over_rows(lambda index, weight: self._gradient(w, index, weight, eps), params["w"], eps.shape[0])
        return {"w": total}

    @property
    def noise_dim(self) -> int:
        """Dimension of ``eps``."""
        return self.dim

    def part(self, block: str, where: slice) -> slice:
        """As in ``VariationalProblem``."""
        return where

    def first_order(self, params, eps, mean):
        """As in ``VariationalProblem``: none, since ``approximation`` has the only block."""
        return {}

    def point(self, params):
        """The part of the parameters that a control variate stores."""
        return {"w": params["w"]}

    def zero_mean(self, point):
        """Zeros in the form of ``approximation_mean``."""
        return {"w": self.backend.xp.zeros_like(point["w"])}

    def approximation(self, point, noise):
        """The gradient of ``f~`` in two parts, weighted over the batch.

        Returns:
            ``E_xi grad f~(w; B, xi)``, and ``grad f~(w; B, eps)`` minus that, averaged over the particles.
        """
        w = self._matrix(point["w"])
        mean, deviation = self._approximation(w, noise.index, noise.weight, self.sigma * noise.eps)
        return {"w": mean}, {"w": deviation}

    def full_approximation(self, point, eps):
        """As ``approximation`` over all rows, for ``eps (S, dim)``."""
        xp, w = self.backend.xp, self._matrix(point["w"])

        def parts(index, weight):
            return xp.stack(self._approximation(w, index, weight, self.sigma * eps))

        total = self._over_rows(parts, xp.stack([point["w"]] * 2), eps.shape[0])
        return {"w": total[0]}, {"w": total[1]}

    approximation_by_row = approximation  # with ``points["w"][n]`` of ``(B, K D)`` for row ``n``

    def approximation_mean(self, point, index, weight):
        """``E_xi grad f~(w; B, xi)``, weighted over the batch."""
        return {"w": self._approximation(self._matrix(point["w"]), index, weight)[0]}

    approximation_mean_by_row = approximation_mean  # with ``points["w"][n]`` of ``(B, K D)`` for row ``n``

    def full_approximation_mean(self, point):
        """``E_xi grad f~(w; ., xi)`` over all rows."""
        w = self._matrix(point["w"])
        return {"w": self._over_rows(lambda *rows: self._approximation(w, *rows)[0], point["w"], 1)}

    def elbo(self, params, eps=None) -> Any:
        """Minus the objective over all rows, in nats per row, and its standard error: larger is better, as for an ELBO.

        Each particle is used with both signs, so that odd terms in the noise cancel. From eight particles on, the
        even part of ``f~`` is a control variate whose coefficient is fitted by linear regression; the plain mean takes
        its place if rounding has moved the control variate from its mean of zero, as with weights that diverge, or if
        the estimate would be above zero, which no likelihood of a class is.

        Args:
            params: ``{"w": (K D,)}``.
            eps: noise ``(S, dim)``, shared by all rows.

        Returns:
            ``(value, standard_error)``.
        """
        if eps is None:
            raise ValueError(f"{self.name}: no exact objective; pass eps")
        xp, S, w = self.backend.xp, eps.shape[0], self._matrix(params["w"])

        def add(totals, chunk):
            x, target, p, a = self._at_mean(w, chunk["index"])
            s = self._logits(w, x, self.sigma * eps)
            loss = 0.5 * (_logsumexp(xp, a[:, None, :] + s) + _logsumexp(xp, a[:, None, :] - s))
            loss = loss - xp.sum(target * a, axis=-1)[:, None]
            even = 0.5 * (_dot(xp, p[:, None, :], s * s) - _dot(xp, p[:, None, :], s) ** 2)
            spread, t = self._spread(w, x, p)
            trace = 0.5 * self.sigma**2 * (_dot(xp, p, spread) + _dot(xp, x * x, t * t))
            return totals + xp.stack([chunk["weight"] @ loss, chunk["weight"] @ (even - trace[:, None])])

        zero = xp.zeros_like(eps[:, 0])
        loss, control = self.backend.scan_or_loop(add, xp.stack([zero, zero]), self._chunks(S))
        if S < _REGRESSION:
            return -xp.mean(loss), xp.std(loss) / (S - 1) ** 0.5
        centred, about = control - xp.mean(control), loss - xp.mean(loss)
        spread = xp.sum(centred * centred) + 1e-30
        slope = xp.sum(centred * about) / spread
        leverage = xp.mean(control) ** 2 / spread
        trusted = (leverage * S**2 <= _ROUNDED**2) & (slope * xp.mean(control) <= xp.mean(loss))
        slope, leverage = xp.where(trusted, slope, 0.0), xp.where(trusted, leverage, 0.0)
        residual = about - slope * centred
        variance = xp.sum(residual * residual) / (S - 2)
        return slope * xp.mean(control) - xp.mean(loss), xp.sqrt(variance * (1 / S + leverage))

    def _over_rows(self, part, like, particles):
        """The sum of ``part(index, weight)`` over all rows, of the form of ``like``."""

        def add(total, chunk):
            return total + part(chunk["index"], chunk["weight"])

        return self.backend.scan_or_loop(add, self.backend.xp.zeros_like(like), self._chunks(particles))

    def _matrix(self, w):
        """``w`` as ``(K, D)``, or ``(B, K, D)`` with one matrix for each row."""
        return self.backend.xp.reshape(w, (*w.shape[:-1], self.classes, self.dim))

    def _chunks(self, points):
        """Row numbers and weights of a full pass, ``(chunks, rows)``; the last chunk is padded with weight zero."""
        rows = min(_CHUNK, max(64, _LOGITS // (points * self.classes)))
        steps = -(-self.N // rows)
        rows = -(-self.N // steps)
        order = np.arange(steps * rows)
        weight = np.where(order < self.N, 1 / self.N, 0.0).astype(self.dtype)
        index = np.minimum(order, self.N - 1).astype(np.int32)
        chunks = {"index": index.reshape(steps, rows), "weight": weight.reshape(steps, rows)}
        return {name: self.backend.asarray(value) for name, value in chunks.items()}

    def _rows(self, index):
        """Features ``(B, D)`` and one-hot labels ``(B, K)``."""
        xp = self.backend.xp
        rows = self.backend.take({"x": self.x, "y": self.y}, index)
        classes = self.backend.asarray(np.arange(self.classes, dtype=np.int32), like=self.y)
        return rows["x"], xp.astype(rows["y"][:, None] == classes[None, :], rows["x"].dtype)

    def _logits(self, w, x, scale):
        """``w (scale_s o x_n)``, ``(B, S, K)``, for ``scale (S, D)``."""
        xp = self.backend.xp
        if w.ndim == 3:
            scaled = x[:, None, :] * scale[None, :, :]
            return scaled @ w.mT
        scaled = xp.reshape(w[None, :, :] * scale[:, None, :], (-1, self.dim))
        return xp.reshape(x @ scaled.mT, (x.shape[0], scale.shape[0], self.classes))

    def _back(self, residual, x, scale):
        """The mean over ``s`` of ``sum_n residual_ns (scale_s o x_n)'``, ``(K, D)``, for residuals ``(B, S, K)``."""
        xp = self.backend.xp
        outer = xp.reshape(residual, (x.shape[0], -1)).mT @ x
        return xp.mean(xp.reshape(outer, (-1, self.classes, self.dim)) * scale[:, None, :], axis=0)

    def _gradient(self, w, index, weight, eps):
        xp = self.backend.xp
        x, target = self._rows(index)
        scale = 1 + self.sigma * eps
        residual = _softmax(xp, self._logits(w, x, scale)) - target[:, None, :]
        return xp.reshape(self._back(residual * weight[:, None, None], x, scale), (-1,))

    def _at_mean(self, w, index):
        """Rows, one-hot labels, ``softmax(a)`` and ``a = w x``, each with ``B`` rows."""
        x, target = self._rows(index)
        a = self._logits(w, x, self.backend.xp.ones_like(x[:1]))[:, 0, :]
        return x, target, _softmax(self.backend.xp, a), a

    def _spread(self, w, x, p):
        """``sum_j x_nj^2 w_kj (w_kj - 2 t_nj)``, ``(B, K)``, and ``t_n = w' p_n``, ``(B, D)``.

        The first is the gradient of ``sum_j x_j^2 w_j' H w_j`` for ``p``.
        """
        x2 = x * x
        if w.ndim == 3:
            t = p[:, None, :] @ w
            return ((w * (w - 2 * t)) @ x2[:, :, None])[:, :, 0], t[:, 0, :]
        t = p @ w
        return x2 @ (w * w).mT - 2 * (x2 * t) @ w.mT, t

    def _approximation(self, w, index, weight, noise=None):
        """``E grad f~``, and where ``noise = sigma eps (S, D)`` is given ``grad f~ - E grad f~``; flat."""
        xp, variance = self.backend.xp, self.sigma**2
        x, target, p, _ = self._at_mean(w, index)
        spread, t = self._spread(w, x, p)
        x2 = x * x
        # the trace's gradient through the logits a, (B, K), and through w at fixed a, (K, D)
        curved = 0.5 * variance * _curvature(xp, p, spread)
        share = weight[:, None] * p
        if w.ndim == 3:
            of_class = xp.permute_dims(w * x2[:, None, :], (1, 0, 2))
            direct = (share.mT[:, None, :] @ of_class)[:, 0, :]
        else:
            direct = (share.mT @ x2) * w
        direct = variance * (direct - share.mT @ (x2 * t))
        residual = p - target
        mean = (weight[:, None] * (residual + curved)).mT @ x + direct
        if noise is None:
            return xp.reshape(mean, (-1,)), None
        s = self._logits(w, x, noise)
        p = p[:, None, :]
        of_s = _curvature(xp, p, s)
        of_a = xp.mean(of_s + _curvature(xp, p, (0.5 * s - _dot(xp, p, s)[:, :, None]) * s), axis=1)
        through_s = self._back(weight[:, None, None] * (residual[:, None, :] + of_s), x, noise)
        deviation = (weight[:, None] * (of_a - curved)).mT @ x + through_s - direct
        return xp.reshape(mean, (-1,)), xp.reshape(deviation, (-1,))


def _softmax(xp, a):
    e = xp.exp(a - xp.max(a, axis=-1, keepdims=True))
    return e / xp.sum(e, axis=-1, keepdims=True)


def _logsumexp(xp, a):
    top = xp.max(a, axis=-1, keepdims=True)
    return top[..., 0] + xp.log(xp.sum(xp.exp(a - top), axis=-1))


def _dot(xp, a, b):
    return xp.sum(a * b, axis=-1)


def _curvature(xp, p, v):
    """``(diag p - p p') v`` along the last axis."""
    return p * (v - xp.sum(p * v, axis=-1, keepdims=True))


def problem(arrays, backend: str = "jax", name: str = "dropout", sigma: float = 0.5) -> DropoutProblem:
    """The objective on data ``{"x": (N, D) floating, "y": (N,) integers}``, in either backend.

    Args:
        arrays: the data; the number ``"classes"`` is the largest label plus one if not given.
        backend: ``"jax"`` or ``"torch"``.
        name: name in reports.
        sigma: standard deviation of the multipliers; the paper's is 0.5.

    Raises:
        UserError: arrays of other shapes, labels that are not classes, or a negative ``sigma``.
    """
    ops = get(backend)
    x, classes = features(arrays["x"], name), count_classes(arrays)
    y = numbers(arrays["y"], len(x), classes, name, "y")
    if classes < 2:
        raise UserError(f"{name}: y has one class; it must have two or more")
    if not (np.isfinite(sigma) and sigma >= 0):
        raise UserError(f"{name}: sigma {sigma}; it must be a finite number, 0 or more")
    return DropoutProblem(name, ops, len(x), x.shape[1], classes, float(sigma), ops.asarray(x), ops.asarray(y), x.dtype)
