"""``lowvar.JointELBO``: an estimator of lowvar as the loss of NumPyro's ``SVI``."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from numpyro.infer import autoguide
from numpyro.primitives import mutable

from lowvar.core.gaussian import GAUSSIAN
from lowvar.errors import UserError, check_known, whole
from lowvar.vi.batches import Noise, reshuffled
from lowvar.vi.estimators.base import Estimator
from lowvar.vi.guides import forms as guide_forms
from lowvar.vi.own_loop import estimator as make_estimator
from lowvar.vi.own_loop import problem as make_problem
from lowvar.vi.settings import DEFAULT, batch_of

_STATE = "lowvar"  # name of the mutable site with the estimator's memory


class JointELBO:
    """The negative ELBO of a model under a Gaussian guide, whose gradient is that of a lowvar estimator.

    ``SVI(loss.model, guide, optim, loss=loss)``: ``loss.model`` is the model with a mutable site, in which SVI
    carries the estimator's memory from step to step. The value of the loss is the estimate of a batch, and its gradient
    with respect to the guide's parameters is the estimator's: ``value + g . (w - stop_gradient(w))``, with
    ``value`` and ``g`` constants. Batches are drawn by the loss, reshuffled in each epoch, whatever the
    ``subsample_size`` of the plate; the noise derives from SVI's key.

    The parameters of the estimator are a differentiable function of those of NumPyro's guide, through which SVI
    differentiates: unbiased gradients stay unbiased.

    Args:
        model: a NumPyro model, as for ``lowvar.fit``, without ``numpyro.param``.
        data: its keyword arguments, if it takes any. ``SVI`` must be given the same ones.
        guide: the guide that ``SVI`` is given: an ``AutoNormal``, ``AutoDiagonalNormal``, ``AutoMultivariateNormal`` or
            ``AutoLowRankMultivariateNormal``, with the prefix ``auto``; one of the first two if not given.
        estimator: as for ``lowvar.fit``.
        batch_size: data rows of a batch; as for ``lowvar.fit`` if not given.
        num_particles: particles per update, shared by the rows of the batch.
        noise: their noise scheme, as for ``lowvar.fit``.
        options: options of the estimator.

    Raises:
        UserError: as ``lowvar.fit``; the model has ``numpyro.param`` sites; the guide is another than these, or SVI was
            given another one; or SVI was not given ``loss.model``.

    >>> import jax, lowvar, optax, numpy as np, numpyro, numpyro.distributions as dist
    >>> def model(y):
    ...     mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
    ...     with numpyro.plate("rows", len(y)) as i:
    ...         numpyro.sample("y", dist.Normal(mu, 1.0), obs=y[i])
    >>> data = {"y": np.full(9, 2.0)}
    >>> from numpyro.infer import SVI
    >>> from numpyro.infer.autoguide import AutoNormal
    >>> loss = lowvar.JointELBO(model, data, batch_size=3)
    >>> svi = SVI(loss.model, AutoNormal(model), optax.adam(0.02), loss=loss)
    >>> result = svi.run(jax.random.key(0), 1000, progress_bar=False, **data)
    >>> round(float(result.params["mu_auto_loc"]), 1)
    1.8
    """

    can_infer_discrete = False

    def __init__(
        self, model: Callable, data: Mapping[str, Any] | None = None, *, guide: Any = None,
        estimator: str | Callable[..., Estimator] = DEFAULT, batch_size: int | None = None, num_particles: int = 1,
        noise: str = "iid", **options: Any,
    ):  # fmt: skip
        self._model, self.problem = model, make_problem(model, data, guide=_named(guide))
        if self.problem.params:
            raise UserError(
                f"{self.problem.name}: JointELBO: {self.problem.params[0]!r} is a numpyro.param, which is none of the "
                "guide's parameters; use lowvar.fit, or give it a prior"
            )
        size = batch_of(self.problem) if batch_size is None else whole("batch_size", batch_size, 1)
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
        noise, memory, index = self._at_step(rng_key, state, fixed)
        gradient, memory = self.estimator.estimate(memory, fixed, noise)
        gradient = jax.lax.stop_gradient(gradient)
        value = jax.lax.stop_gradient(self._value(fixed, noise))
        loss = value + sum(jnp.vdot(gradient[block], params[block] - fixed[block]) for block in gradient)
        last = noise.position == self._batches.steps - 1
        memory = jax.lax.cond(last, lambda: self.estimator.end_epoch(memory, index), lambda: memory)
        state = {"step": state["step"] + 1, "index": index, "memory": memory}
        return {"loss": loss, "mutable_state": {_STATE: jax.lax.stop_gradient(state)}}

    def _at_step(self, rng_key, state, params):
        """The noise of a step, and the memory and the batches of its epoch, which starts at its first step."""
        for_rows, for_eps = jax.random.split(rng_key)
        batches, problem = self._batches, self.problem
        memory = jax.lax.cond(state["step"] == 0, lambda: self.estimator.init(params), lambda: state["memory"])
        position = state["step"] % batches.steps

        def begin():
            return self.estimator.begin_epoch(memory, params), batches.draw(for_rows)

        memory, index = jax.lax.cond(position == 0, begin, lambda: (memory, state["index"]))
        rows = batches.rows[position]
        weight = jnp.where(jnp.arange(batches.size) < rows, 1 / rows, 0).astype(problem.dtype)
        eps = self._gaussian.draw(for_eps, problem.noise_dim, problem.dtype)
        return Noise(index[position], weight, rows.astype(problem.dtype), eps, position), memory, index

    def _value(self, params, noise):
        """The estimate of the negative ELBO of a batch, nats."""
        guide, energy = self.problem.guide, self.problem.energy
        values = jax.vmap(lambda eps: energy(guide.transform(params, eps), noise.index, noise.weight))(noise.eps)
        return jnp.mean(values) - guide.entropy(params)

    def _params(self, param_map):
        """The guide's parameters as vectors, from those of NumPyro's."""
        problem, form = self.problem, guide_forms.form_of(self.problem.guide)
        names = form.names(problem)
        if problem.guide.factorised and guide_forms.LOC in param_map:
            names = [guide_forms.LOC, guide_forms.SCALE]
        n, given = problem.dim, {}
        for name in names:
            value = None if name not in param_map else jnp.asarray(param_map[name], problem.dtype)
            if value is None or (name in guide_forms.JOINT and value.shape[:1] != (n,)):
                lack = f"it has no {name!r}" if value is None else f"its {name!r} has shape {value.shape}"
                raise UserError(
                    f"{problem.name}: JointELBO: the guide must be an {problem.guide.autoguide}: {lack}; another guide "
                    f"of {', '.join(guide_forms.OURS)} is named by JointELBO(model, data, guide=guide)"
                )
            given[name] = value
        return form.read(problem, given)

    def _empty(self):
        """The memory before the first step: zeros, which that step replaces."""
        blocks, dtype = self.problem.blocks, self.problem.dtype
        params = {block: jax.ShapeDtypeStruct((length,), dtype) for block, length in blocks.items()}
        memory = jax.tree.map(
            lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(self.estimator.init, params)
        )
        index = jnp.zeros((self._batches.steps, self._batches.size), jnp.int32)
        return {"step": jnp.zeros((), jnp.int32), "index": index, "memory": memory}


def _named(guide) -> Any:
    """The name of a guide of NumPyro for ``lowvar.fit``."""
    if guide is None:
        return "mean_field"
    kind = type(guide).__name__
    if type(guide) is not getattr(autoguide, kind, None) or kind not in guide_forms.OURS:
        raise UserError(
            f"JointELBO: {kind}: the guide must be one of {', '.join(guide_forms.OURS)}, whose control variates are "
            "known; numpyro.infer.Trace_ELBO takes all guides"
        )
    rank = {} if (of_guide := getattr(guide, "rank", None)) is None else {"rank": of_guide}
    return {"guide": guide_forms.OURS[kind], **rank}
