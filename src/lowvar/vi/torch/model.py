"""A user's model in PyTorch: functions, a ``torch.nn.Module`` with priors, or a Pyro model with a plate.

This file does not import PyTorch, so that ``lowvar.TorchModel`` exists without it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from lowvar.core.backend import get
from lowvar.errors import UserError, whole


@dataclass(frozen=True, eq=False)
class TorchModel:
    """A model in PyTorch, for ``lowvar.fit`` and ``lowvar.decompose``, which then take no data.

    Args:
        log_likelihood: ``(z (dim,), index (B,)) -> (B,)``, nats: for each of the rows ``index`` of the data (int64,
            in any number and order) the log-likelihood given the latent vector ``z``.
        log_prior: ``z (dim,) -> ()``, nats, with the Jacobian of any constraint.
        N: number of data rows.
        dim: dimension of ``z``.
        name: name in reports.
        dtype: floating type of ``z``; the one that the functions accept if not given, of two PyTorch's default.
        sites: shapes of the parts of ``z``, in their order; one part ``z`` if not given.
        mean: initial ``mu``, ``(dim,)``; if not given, near 0, and far from it for a site of which 0 is a saddle point,
            drawn by the seed of the fit.
        constrain: ``z -> {site: value}``, what ``sample`` returns; the parts of ``z`` if not given.
        unconstrain: ``value -> part of z``, for some of the sites; others are unconstrained.
        subsample_size: default batch size; 100 if not given, or all rows if they are fewer.

    The functions are differentiated twice and vectorised by ``torch.func``, and traced once for each shape: they must
    not branch in Python on values that depend on ``z`` or on the rows, and must not draw random numbers.

    Raises:
        UserError: PyTorch is not installed, ``N`` or ``dim`` is not a number of rows or variables, or something given
            as a function is none.

    >>> import lowvar, torch
    >>> x, y = torch.randn(200, 3), torch.randn(200)
    >>> normal = torch.distributions.Normal
    >>> model = lowvar.TorchModel(
    ...     lambda z, index: normal(x[index] @ z, 1.0).log_prob(y[index]),
    ...     lambda z: normal(0.0, 1.0).log_prob(z).sum(), N=200, dim=3)
    >>> lowvar.fit(model, num_steps=20, khat_samples=0).params["z_auto_loc"].shape
    torch.Size([3])
    """

    log_likelihood: Callable[[Any, Any], Any]
    log_prior: Callable[[Any], Any]
    N: int
    dim: int
    name: str = "torch model"
    dtype: Any = None
    sites: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    mean: Any = None
    constrain: Callable[[Any], Mapping[str, Any]] | None = None
    unconstrain: Mapping[str, Callable] = field(default_factory=dict)
    subsample_size: int | None = None

    def __post_init__(self):
        get("torch")
        for name in ("log_likelihood", "log_prior"):
            if not callable(getattr(self, name)):
                raise UserError(f"TorchModel: {name} must be a function, not {type(getattr(self, name)).__name__}")
        object.__setattr__(self, "N", whole("TorchModel: N", self.N, 1))
        object.__setattr__(self, "dim", whole("TorchModel: dim", self.dim, 1))
        if self.subsample_size is not None:
            object.__setattr__(self, "subsample_size", whole("TorchModel: subsample_size", self.subsample_size, 1))
            if self.subsample_size > self.N:
                raise UserError(f"TorchModel: subsample_size {self.subsample_size}: there are {self.N} rows")
        object.__setattr__(self, "sites", dict(self.sites) or {"z": (self.dim,)})

    @classmethod
    def from_module(
        cls, module, inputs, log_likelihood, prior_scale: Any = 1.0, *, name: str | None = None
    ) -> "TorchModel":
        """A ``torch.nn.Module`` whose parameters have independent priors ``N(0, prior_scale^2)``; all are latent.

        Args:
            module: the module. Parameters with ``requires_grad=False`` and buffers keep their values. The fit starts
                at its parameters, and leaves the module unchanged.
            inputs: a tensor whose first axis is the rows, ``(N, ...)``, or a tuple of such tensors, the arguments of
                the module.
            log_likelihood: ``(outputs, index (B,)) -> (B,)``, nats, where ``outputs`` is ``module(inputs[index])``.
            prior_scale: a standard deviation, or ``{parameter name: standard deviation}`` for all of them; a
                standard deviation may be an array in the shape of the parameter.
            name: name in reports; the module's class if not given.

        Raises:
            UserError: no parameters, inputs of unequal lengths, or a standard deviation that is not positive.
        """
        get("torch")
        from lowvar.vi.torch.functions import from_module

        return from_module(cls, module, inputs, log_likelihood, prior_scale, name)

    @classmethod
    def from_pyro(cls, model, data: Mapping[str, Any], *, name: str | None = None) -> "TorchModel":
        """A Pyro model whose observations lie in one ``pyro.plate``, indexed by it.

        Factors and observations outside all plates count once, as a part of the prior.

        Args:
            model: the model. Its latent sites must be continuous and outside the plate, whose ``subsample_size`` is the
                default batch size.
            data: the model's keyword arguments; arrays of NumPy become tensors of the same type.
            name: name in reports; the function's if not given.

        ``Predictive(model, posterior_samples=fit.sample())`` predicts.

        Raises:
            UserError: Pyro is not installed; no plate or several around the observations; latent variables in the
                plate, discrete ones, or none; ``pyro.param`` sites.
        """
        get("torch")
        try:
            from lowvar.vi.torch.pyro import from_pyro
        except ModuleNotFoundError as error:
            if error.name != "pyro":
                raise
            raise UserError("TorchModel.from_pyro needs the package pyro-ppl: pip install pyro-ppl") from error

        return from_pyro(cls, model, data, name)

    def problem(
        self,
        data: None = None,
        *,
        name: str | None = None,
        init: Any = None,
        init_is: str = "init",
        key: Any = None,
        guide: Any = "mean_field",
    ):
        """The model as a ``VariationalProblem``, checked; arguments as for ``from_numpyro``.

        Args:
            data: none: the functions hold their data.
            name: name in reports; the model's own if not given.
            init: values by site, or parameters of the guide by name.
            init_is: name of ``init`` in error messages.
            key: JAX key of the start; ``mean`` or exactly 0 if not given.
            guide: see ``guides.gaussian.family``; not ``Amortised``.

        Raises:
            UserError: an error of a function; results of a wrong shape or type; densities that are not finite at the
                start; random numbers; gradients that disagree with finite differences; rows that depend on the other
                rows of a batch; branches, or operations that ``torch.func`` cannot transform.
        """
        if data is not None:
            raise UserError(f"{self.name}: a TorchModel holds its data; leave data out")
        from lowvar.vi.torch.problem import problem_of

        return problem_of(self, name=str(name or self.name), init=init, init_is=init_is, key=key, guide=guide)
