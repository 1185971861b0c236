"""``lowvar.JointELBO``: an estimator of lowvar as the loss of NumPyro's ``SVI``."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from numpyro.primitives import mutable

from lowvar.api.own_loop import estimator as make_estimator
from lowvar.api.own_loop import problem as make_problem
from lowvar.api.settings import BATCH, DEFAULT
from lowvar.errors import UserError, check_known, whole
from lowvar.estimators.gradient.base import Estimator
from lowvar.noise import GAUSSIAN, Noise, reshuffled

_STATE = "lowvar"  # name of the mutable site with the estimator's memory


class JointELBO:
    """The negative ELBO of a model under ``AutoNormal``, whose gradient is that of a lowvar estimator.

    ``SVI(loss.model, guide, optim, loss=loss)``: ``loss.model`` is the model with a mutable site, in which SVI
    carries the estimator's memory from step to step. The value of the loss is the estimate of a batch, and its gradient
    with respect to the guide's parameters is the estimator's: ``value + g . (w - stop_gradient(w))``, with
    ``value`` and ``g`` constants. Batches are drawn by the loss, reshuffled in each epoch, whatever the
    ``subsample_size`` of the plate; the noise derives from SVI's key.

    Args:
        model: a NumPyro model, as for ``lowvar.fit``, without ``numpyro.param``.
        data: its keyword arguments. ``SVI`` must be given the same ones.
        estimator: as for ``lowvar.fit``.
        batch_size: data rows of a batch; 100 if not given, or all rows if they are fewer.
        num_particles: particles per update, shared by the rows of the batch.
        noise: their noise scheme, as for ``lowvar.fit``.
        options: options of the estimator.

    Raises:
        UserError: as ``lowvar.fit``; the model has ``numpyro.param`` sites; the guide is no ``AutoNormal``; or SVI was
            not given ``loss.model``.
    """

    can_infer_discrete = False

    def __init__(
        self, model: Callable, data: Mapping[str, Any], *, estimator: str | Callable[..., Estimator] = DEFAULT,
        batch_size: int | None = None, num_particles: int = 1, noise: str = "iid", **options: Any,
    ):  # fmt: skip
        self._model, self.problem = model, make_problem(model, data)
        if self.problem.params:
            raise UserError(
                f"{self.problem.name}: JointELBO: {self.problem.params[0]!r} is a numpyro.param, which is none of the "
                "guide's parameters; use lowvar.fit, or give it a prior"
            )
        size = min(BATCH, self.problem.N) if batch_size is None else whole("batch_size", batch_size, 1)
        self.estimator = make_estimator(estimator, self.problem, size, **options)
        if self.estimator.particles is not None:
            raise UserError(
                f"JointELBO: {self.estimator.name!r} changes its number of particles, and so the shapes of a step; "
                "use lowvar.fit"
            )
        check_known("noise", noise, GAUSSIAN)
        self._batches, self._gaussian = reshuffled(self.problem.N, size), GAUSSIAN[noise](num_particles)
        self._before = self._empty()  # outside the handlers of numpyro, which would see the model's sites

    def model(self, *args, **kwargs):
        """The model with the mutable site."""
        mutable(_STATE, self._before)  # type: ignore[arg-type]
        return self._model(*args, **kwargs)

    def loss(self, rng_key, param_map, model, guide, *args, **kwargs):
        """SVI calls this for a model without the mutable site; raises UserError."""
        raise UserError(f"{self.problem.name}: give SVI the loss's model, SVI(loss.model, guide, optim, loss=loss)")

    def loss_with_mutable_state(self, rng_key, param_map, model, guide, *args, **kwargs):
        """The loss of one step and the new memory, ``{"loss": (), "mutable_state": ...}``, see the class."""
        if _STATE not in param_map:
            self.loss(rng_key, param_map, model, guide)
        params, state = self._params(param_map), param_map[_STATE]
        fixed = jax.lax.stop_gradient(params)
        noise, memory, index = self._begun(rng_key, state, fixed)
        gradient, memory = self.estimator.estimate(memory, fixed, noise)
        gradient = jax.lax.stop_gradient(gradient)
        value = jax.lax.stop_gradient(self._value(fixed, noise))
        loss = value + sum(jnp.vdot(gradient[block], params[block] - fixed[block]) for block in gradient)
        last = noise.position == self._batches.steps - 1
        memory = jax.lax.cond(last, lambda: self.estimator.end_epoch(memory, index), lambda: memory)
        state = {"step": state["step"] + 1, "index": index, "memory": memory}
        return {"loss": loss, "mutable_state": {_STATE: jax.lax.stop_gradient(state)}}

    def _begun(self, rng_key, state, params):
        """The noise of a step, and the memory and the batches of its epoch, which is begun at its first step."""
        for_rows, for_eps = jax.random.split(rng_key)
        batches, problem = self._batches, self.problem
        memory = jax.lax.cond(state["step"] == 0, lambda: self.estimator.init(params), lambda: state["memory"])
        position = state["step"] % batches.steps

        def begin():
            return self.estimator.begin_epoch(memory, params), batches.draw(for_rows)

        memory, index = jax.lax.cond(position == 0, begin, lambda: (memory, state["index"]))
        rows = batches.rows[position]
        weight = jnp.where(jnp.arange(batches.size) < rows, 1 / rows, 0).astype(problem.dtype)
        eps = self._gaussian.draw(for_eps, problem.dim, problem.dtype)
        return Noise(index[position], weight, rows.astype(problem.dtype), eps, position), memory, index

    def _value(self, params, noise):
        """The estimate of the negative ELBO of a batch, nats."""
        guide, energy = self.problem.guide, self.problem.energy
        values = jax.vmap(lambda eps: energy(guide.transform(params, eps), noise.index, noise.weight))(noise.eps)
        return jnp.mean(values) - guide.entropy(params)

    def _params(self, param_map):
        """The guide's parameters as vectors, from ``AutoNormal``'s."""
        parts = {"mu": [], "log_sigma": []}
        for site in self.problem.sites:
            names = f"{site}_auto_loc", f"{site}_auto_scale"
            if any(name not in param_map for name in names):
                raise UserError(
                    f"{self.problem.name}: JointELBO: the guide must be an AutoNormal: it has no {names[0]!r}"
                )
            loc, scale = (jnp.ravel(jnp.asarray(param_map[name], self.problem.dtype)) for name in names)
            parts["mu"].append(loc)
            parts["log_sigma"].append(jnp.log(scale))
        return {block: jnp.concatenate(part) for block, part in parts.items()}

    def _empty(self):
        """The memory before the first step: zeros, which that step replaces."""
        params = {block: jax.ShapeDtypeStruct((self.problem.dim,), self.problem.dtype) for block in ("mu", "log_sigma")}
        memory = jax.tree.map(
            lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(self.estimator.init, params)
        )
        index = jnp.zeros((self._batches.steps, self._batches.size), jnp.int32)
        return {"step": jnp.zeros((), jnp.int32), "index": index, "memory": memory}
