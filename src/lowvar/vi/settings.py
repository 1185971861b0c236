"""The arguments of ``fit``, ``decompose`` and own loops: the model and its data, estimators, and settings of a run."""

import inspect
import re
import sys
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from lowvar.core.gaussian import GAUSSIAN
from lowvar.core.keys import named_key
from lowvar.core.optimizers import OPTIMIZERS
from lowvar.core.rows import in_files
from lowvar.errors import UserError, check_known, one_line, positive, unknown_name, whole
from lowvar.registry import label
from lowvar.vi.estimators import GRADIENT
from lowvar.vi.estimators.base import schedule_of
from lowvar.vi.guides.forms import from_autoguide
from lowvar.vi.numpyro.model import from_numpyro
from lowvar.vi.run.settings import LBFGS, Method, Settings


def problem_of(model, data, *, streams: bool = False, **start):
    """The problem of a model and its data.

    Args:
        model: an object with a method ``problem(data, **start)``, such as ``TorchModel``; or a NumPyro model.
        data: keyword arguments of a NumPyro model; None for a model that holds its data or takes none.
        streams: whether rows that are in files stay there, see ``vi.numpyro.streamed``.
        start: further arguments, see ``from_numpyro``.

    Returns:
        A ``VariationalProblem`` with ``start``, ``params``, ``data`` and ``model``, and with ``named``, ``draws`` and
        ``auto_guide``, which give results in the model's own terms.

    Raises:
        UserError: the model does not permit mini-batches, see there; or it is a module of PyTorch, or Pyro's; or data
            of pandas have rows in another order.
    """
    if isinstance(model, getattr(sys.modules.get("torch.nn"), "Module", ())) and not hasattr(model, "problem"):
        raise UserError(
            f"{type(model).__name__} is a torch.nn.Module: give lowvar.TorchModel.from_module(module, inputs, "
            "log_likelihood), which adds priors, or for a Pyro model TorchModel.from_pyro(model, data)"
        )
    if _is_pyros(model):
        raise UserError(
            f"{model.__name__} is a Pyro model: give lowvar.TorchModel.from_pyro({model.__name__}, data), without data "
            "after it"
        )
    if "guide" in start:
        of_params = start.get("init_is") == "params"
        start["guide"], start["init"] = from_autoguide(start["guide"], model, start.get("init"), of_params)
    if holds_data(model):
        return model.problem(data, **start)
    data = {} if data is None else data
    if isinstance(data, Mapping) and any(hasattr(one, "iloc") for one in data.values()):
        from lowvar.core.frames import check_index

        check_index(data)
    source, others = in_files(data) if streams else (None, {})
    if source is None:
        return from_numpyro(model, data, **start)
    from lowvar.vi.numpyro.streamed import from_files

    return from_files(model, source, others, **start)


def start_of(model, init, seed: int) -> dict[str, Any]:
    """Arguments of ``problem_of`` that define the start of a fit; ``init`` may be a ``Fit``."""
    init, name = getattr(init, "params", init), getattr(model, "name", "model")
    return {"init": init, "key": named_key(seed, getattr(model, "__name__", name), "start", 0)}


def starts(problem) -> dict[str, np.ndarray]:
    """The start of one run, ``{block: (1, length)}``."""
    return {block: value[None] for block, value in problem.start.items()}


def holds_data(model) -> bool:
    """Whether a model makes its own problem, such as ``TorchModel``; a NumPyro model is a function of its data."""
    return callable(getattr(model, "problem", None))


def _is_pyros(model) -> bool:
    """Whether a function uses Pyro, and not NumPyro."""
    if not inspect.isfunction(model):
        return False
    try:
        found = inspect.getclosurevars(model)
    except ValueError:  # a name that is not bound yet
        return False
    used = (*found.globals.values(), *found.nonlocals.values())
    names = (one.__name__ if inspect.ismodule(one) else getattr(one, "__module__", "") for one in used)
    roots = {str(name).partition(".")[0] for name in names}
    return "pyro" in roots and "numpyro" not in roots


BATCH = 100  # default batch size, see `batch_of`
ELBO_SAMPLES, ELBO_BUDGET = 200, 2**23  # particles of an ELBO; maximum of particles x data rows
LEAST_SAMPLES = 16  # minimum number of particles of an ELBO, for any number of rows
DEFAULT = "joint_adaptive"
_EPOCHS_OF_MEMORY = 2  # with fewer, an estimator with memory could not repay its initial full pass
STEP_SIZE = 0.01
_GRADIENTS = 8  # random ones, of which an optimizer must follow some downwards


_NAMES = {
    "step_size, a number or an optax schedule": "lr learning_rate stepsize eta alpha",
    "num_steps, the number of updates; an epoch has N / batch_size of them": (
        "epochs num_epochs n_epochs max_epochs steps n_steps nsteps num_iterations iterations num_iters n_iter niter "
        "num_iter iters max_iter maxiter max_steps"
    ),
    "batch_size": "batch batchsize minibatch_size mini_batch_size minibatch subsample_size",
    "num_particles": "particles n_particles num_mc_samples mc_samples n_mc num_elbo_particles",
    "num_particles of an update, elbo_samples of an ELBO, or fit.sample(num_samples) afterwards": (
        "n_samples num_samples samples draws num_draws n_draws"
    ),
    "optimizer, 'adam', 'sgd' or a transformation of optax": "optim optimiser opt",
    "seed, a whole number": "key rng_key rng prng_key random_state random_seed",
    "jax.default_device(...) around the call, or, for a model in PyTorch, tensors on that device; devices= is how many "
    "of JAX's devices share the rows": "device platform accelerator use_gpu gpu cuda",
    "guide": "family autoguide variational_family q approximation",
    "estimator": "gradient_estimator gradient loss elbo method objective",
    "init": "init_params start initial init_values initvals init_strategy init_loc_fn start_values x0",
    "schedule": "lr_schedule scheduler lr_scheduler learning_rate_schedule decay",
    "stop": "patience tol early_stopping tolerance rtol convergence",
    "callback": "callbacks hook hooks on_step",
    "progress": "verbose progress_bar progressbar show_progress disable_progress quiet tqdm",
    "data, a dict of the model's keyword arguments": "model_kwargs kwargs model_args args observed",
    "average": "averaging polyak swa ema",
}  # what fit calls the arguments that other libraries have under these names
_MEANT = {name: ours for ours, names in _NAMES.items() for name in names.split()}


def check_arguments(called: Callable, options: Mapping[str, Any], estimator: str | Callable | None = None) -> None:
    """Rejects arguments that other libraries have under other names, unless they are the estimator's.

    Args:
        called: ``fit`` or ``decompose``.
        options: the arguments that it does not name.
        estimator: whose options they may be; None for none.

    Raises:
        UserError: there is one; or there are options and no estimator.
    """
    own, where = isinstance(estimator, str) and estimator in GRADIENT.own, called.__name__
    theirs = GRADIENT.options_of(estimator) if own and estimator else {}
    known = [name for name, one in inspect.signature(called).parameters.items() if one.kind is not one.VAR_KEYWORD]
    for name in options if own or estimator is None else {"particles"} & set(options):
        if name.lower() in _MEANT and (name not in theirs or name == "particles"):  # fit passes its own
            meant = _MEANT[name.lower()]
            ours = meant.partition(",")[0].partition(" ")[0]
            if f"{ours}s" in known:
                meant = f"{ours}s"
            elif ours.isidentifier() and ours not in known:
                meant = f"{meant} of fit, whose result is params="
            raise UserError(f"{where}: unknown argument {name!r}: use {meant}")
    if options and estimator is None:
        error = unknown_name("argument", next(iter(options)), known, where=where)
        raise UserError(f"{error}; options of an estimator need estimator=") if "estimator" in known else error


def check_callback(callback: Any) -> None:
    """Rejects anything but a function of one argument, before a model is evaluated."""
    if callback is None:
        return
    try:
        inspect.signature(callback).bind(None)
    except TypeError as error:
        raise UserError(f"callback: it must take one argument, an Evaluation ({error})") from error
    except ValueError:  # it tells no signature
        return


def batch_of(problem) -> int:
    """The default batch size: the plate's ``subsample_size`` if it has one, else 100, or all rows if they are fewer."""
    return min(problem.subsample_size or BATCH, problem.N)


def default_estimator(problem, settings, num_steps: int) -> str:
    """The estimator of a fit that names none: the guide's, or ``naive`` for less than two passes over the data."""
    default = problem.guide.estimator
    few = num_steps * settings.batch_size < _EPOCHS_OF_MEMORY * problem.N
    return "naive" if few and default == DEFAULT else default


def methods_of(estimators) -> dict[str, Method]:
    """The estimators that ``decompose`` compares, by label."""
    names = (estimators,) if callable(estimators) else estimators
    if isinstance(names, str):  # as in the command line
        names = [name.strip() for name in names.split(",")]
    if not isinstance(names, Mapping | list | tuple):
        raise UserError(
            f"estimators: give a list of names, or a mapping of labels to names, not {type(estimators).__name__}"
        )
    if not isinstance(names, Mapping):
        if wrong := [name for name in names if not isinstance(name, str) and not callable(name)]:
            raise UserError(
                f"estimators: a list takes names and factories only, not {wrong[0]!r}; give options in a mapping: "
                "{'label': {'estimator': 'joint', ...}}"
            )
        labels = [label(name) for name in names]
        if twice := [one for one in dict.fromkeys(labels) if labels.count(one) > 1]:
            raise UserError(
                f"estimators: {labels.count(twice[0])} of them have the label {twice[0]!r}; give a mapping of labels "
                "of your own to estimators: {'label': estimator, ...}"
            )
        names = dict(zip(labels, names, strict=True))
    if not names:
        raise UserError("estimators: name at least one")
    methods = {}
    for title, value in names.items():
        options = dict(value) if isinstance(value, Mapping) else {"estimator": value}
        estimator = options.pop("estimator", None)
        if not isinstance(title, str) or not (isinstance(estimator, str) or callable(estimator)):
            raise UserError(
                f"estimators: {title!r}: {value!r}: a label needs a name such as 'joint', a factory, "
                "or {'estimator': 'joint', ...} with options"
            )
        GRADIENT.entry(estimator)
        methods[title] = Method(estimator, options)
    return methods


def own_objects(optimizer, step_size: Any) -> dict[str, Any]:
    """The user's own objects, see ``Settings.own``: a transformation of optax, or a schedule of step sizes."""
    if isinstance(optimizer, str):
        if not callable(step_size):
            return {}
        check_known("optimizer", optimizer, OPTIMIZERS.own, where="fit")
        try:
            first = float(jax.jit(step_size)(jnp.asarray(0)))  # type: ignore[arg-type]
        except Exception as error:
            raise UserError(
                "step_size: a schedule takes the number of the step, a traced integer of JAX, and returns a step size; "
                f"compute with jax.numpy, and with jnp.where in place of if: {one_line(error)}"
            ) from error
        positive("step_size: the schedule's first value", first, or_zero=True)  # a warm-up starts at 0
        return {"step_size_at": step_size}
    if type(optimizer).__module__ == "numpyro.optim":
        raise UserError(
            "optimizer: a NumPyro optimizer has another interface; give that of optax, such as optax.adam(0.01)"
        )
    if not (callable(getattr(optimizer, "init", None)) and callable(getattr(optimizer, "update", None))):
        raise UserError(
            "optimizer: give 'adam' or 'sgd', and step_size, in fit also 'lbfgs', or a transformation of optax, "
            f"not {_what(optimizer)}"
        )
    if step_size is not None:
        raise UserError(f"step_size {step_size!r}: this optimizer has its own step size; leave step_size out")
    return {"transformation": optimizer}


def _what(optimizer) -> str:
    """A wrong optimizer in words."""
    name = getattr(optimizer, "__name__", "")
    return f"the function {name}: call it" if name and callable(optimizer) else type(optimizer).__name__


def check_transformation(own, problem) -> None:
    """Rejects an optimizer that cannot update the guide's parameters from their gradients alone.

    Raises:
        UserError: it needs the value of the objective, has another interface, or does not take these parameters.
    """
    params = {block: jax.ShapeDtypeStruct((size,), problem.dtype) for block, size in problem.blocks.items()}
    try:
        updates, _ = jax.eval_shape(lambda p: own.update(p, own.init(p), p), params)
    except Exception as error:
        needed = re.findall(r"'(value|value_fn|grad|value_and_grad_fn|loss)'", str(error))
        if needed and "argument" in str(error):
            raise UserError(
                f"optimizer: it asks for {' and '.join(map(repr, needed))} in every update, and fit has noisy "
                "gradients alone, without a value of the objective; use one that needs gradients only, such as "
                "optax.adam(schedule)"
            ) from error
        raise UserError(f"optimizer: it cannot update parameters {sorted(params)}: {one_line(error)}") from error
    forms = [jax.tree.map(jnp.shape, tree) for tree in (updates, params)]
    if forms[0] != forms[1]:
        raise UserError("optimizer: its updates do not have the form of the parameters; give a transformation of optax")
    if upward := _upward(own, problem):
        raise UserError(
            f"optimizer: its updates of {', '.join(upward)} go up the gradient of a loss that a fit minimises: a chain "
            "of optax ends with scale_by_learning_rate, and optax.masked passes on the gradients of what it leaves "
            "out: freeze that by optax.partition and optax.set_to_zero()"
        )


def _upward(own, problem) -> list[str]:
    """The blocks of parameters whose first update follows the gradient upwards, for each of several gradients."""

    def along(seed):
        rng = np.random.default_rng(seed)
        gradient = {b: jnp.asarray(rng.normal(size=size), problem.dtype) for b, size in problem.blocks.items()}
        params = jax.tree.map(jnp.zeros_like, gradient)
        updates, _ = own.update(gradient, own.init(params), params)
        return {block: jnp.vdot(gradient[block], updates[block]) for block in gradient}

    slopes = jax.jit(lambda: jax.tree.map(lambda *one: jnp.stack(one), *map(along, range(_GRADIENTS))))()
    return [block for block, slope in slopes.items() if bool((slope > 0).all())]


def _steps(own, problem, size: int, seed: int, beside: float = 0.0):
    """A few updates of three coordinates of each block; further ones, up to ``size``, have the gradient ``beside``.

    Returns:
        Their updates, ``(steps, blocks, 3)``, and the parts of the last state that are not by coordinate.
    """
    draws, found = np.random.default_rng(seed).exponential(size=(6, len(problem.blocks), 3)), []
    draws = np.pad(draws, ((0, 0), (0, 0), (0, size - 3)), constant_values=beside)
    params = {block: jnp.ones(size, problem.dtype) for block in problem.blocks}
    state = own.init(params)
    for one in jnp.asarray(draws, problem.dtype):
        updates, state = own.update(dict(zip(params, one, strict=True)), state, params)
        params = jax.tree.map(jnp.add, params, updates)
        found.append(jnp.stack(jax.tree.leaves(updates))[:, :3])
    return jnp.stack(found), [leaf for leaf in jax.tree.leaves(state) if jnp.shape(leaf) != (size,)]


def depends_on_batch(own, problem) -> bool:
    """Whether an update depends on the gradients of other coordinates in the batch, as under a clipped norm."""
    (still, _), (large, _) = jax.jit(lambda: (_steps(own, problem, 4, 0), _steps(own, problem, 4, 0, 100.0)))()
    return not np.allclose(still, large, rtol=1e-3, atol=1e-7 * float(np.abs(still).max()))


def check_by_row(own, problem) -> None:
    """Rejects a transformation that would run otherwise with the rows of a batch than with all rows.

    Three coordinates are moved a few steps, alone and beside a fourth one without a gradient, and with other gradients.

    Raises:
        UserError: their updates depend on the fourth; a part of the state that is not by coordinate depends on the
            gradients; or updates are held back for later steps.
    """

    alone = np.zeros((2, 1))
    try:
        (alone, rest), (beside, _), (_, other) = jax.jit(
            lambda: [_steps(own, problem, *how) for how in ((3, 0), (4, 0), (3, 1))]
        )()
        same = np.allclose(alone, beside, rtol=1e-3, atol=1e-7 * float(np.abs(alone).max()))
        same = same and all(np.array_equal(one, another) for one, another in zip(rest, other, strict=True))
    except Exception:  # any error of the transformation, as of a state with another form
        same = False
    still = np.asarray(alone[1:] == 0) if same else np.zeros((1, 1))  # a warm-up may start at 0
    if not same or still.all() or (still.any(axis=0) & ~still.all(axis=0)).any():
        what = "depends on other rows than those of the batch" if not same else "is held back for later steps"
        raise UserError(
            "optimizer: with latent variables in the data plate, a step moves those of its batch's rows alone, and an "
            f"update of this transformation {what}; give 'adam', or batch_size={problem.N}"
        )


def settings_of(
    problem, *, optimizer, step_size, num_steps, batch_size, num_particles, elbo_samples, schedule=None, noise="iid",
    average=None, where="fit",
):  # fmt: skip
    """The ``Settings`` of a run on ``problem``: with enough epochs for ``num_steps``."""
    check_known("noise", str(noise), GAUSSIAN)
    if batch_size is not None and not getattr(problem, "plate", True):
        raise UserError(f"batch_size {batch_size}: leave it out; {problem.remarks[0]}")
    size = batch_of(problem) if batch_size is None else whole("batch_size", batch_size, 1)
    if callable(step_size) and schedule is not None:
        raise UserError("step_size is a schedule of optax: leave schedule out, or give a number as step_size")
    own = own_objects(optimizer, step_size)
    if own and problem.backend.optimizers is not optax:
        raise UserError(
            "optimizer, step_size: an optax transformation or schedule is for JAX; for a model in PyTorch give 'adam' "
            "or 'sgd', a number as step_size, and schedule="
        )
    if "transformation" in own:
        check_transformation(optimizer, problem)
        if problem.local is not None and size < problem.N:
            check_by_row(optimizer, problem)
    if not isinstance(average, bool | None):
        raise UserError(f"average = {average!r}: give True or False, or leave it out")
    constant = not own and schedule is None
    step_size = 1.0 if own else step_size  # multiplied by the caller's own
    step_size = STEP_SIZE if step_size is None else step_size
    num_steps, num_particles = whole("num_steps", num_steps, 1), whole("num_particles", num_particles, 1)
    if elbo_samples is None:
        most = ELBO_BUDGET // (2 * problem.elbo_cost)  # twice as many make two groups, without a remainder to compile
        elbo_samples = int(np.clip(2 * most, LEAST_SAMPLES, ELBO_SAMPLES))
    if "transformation" not in own and optimizer not in OPTIMIZERS.own:
        known = {*OPTIMIZERS.own, LBFGS} if where == "fit" else OPTIMIZERS.own
        raise unknown_name("optimizer", optimizer, known, where=where)
    plan = None if schedule is None else schedule_of(schedule, f"{where}: schedule")
    if plan is not None and plan.kind == "cosine" and plan.r < num_steps:
        raise UserError(
            f"{where}: schedule: the cosine's step size is 0 from step r = {plan.r} on, where nothing would move: set "
            f"r = num_steps = {num_steps}"
        )
    return Settings(
        step_sizes=(positive("step_size", step_size),), batch_size=size, particles=num_particles, initial="origin",
        epochs=-(-num_steps // -(-problem.N // size)), elbo_samples=whole("elbo_samples", elbo_samples, 2),
        dtype=str(np.dtype(problem.dtype)), schedule=plan, noise=noise,
        average=constant if average is None else average,
        optimizer="sgd" if "transformation" in own else optimizer, own=own,
    )  # fmt: skip
