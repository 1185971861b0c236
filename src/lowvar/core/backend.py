"""The array and autodiff operations of estimators and solvers, in JAX and PyTorch.

All other operations come from the array API standard, through ``backend.xp``.
"""

import importlib
from functools import cache
from typing import Any, Protocol

from lowvar.errors import UserError, check_known

BACKENDS = ("jax", "torch")
HOST = "numpy"  # has what searches that a function of Python drives need, and neither derivatives nor loops


class Backend(Protocol):
    """Operations of a backend in addition to its array namespace ``xp``.

    ``grad``, ``value_and_grad``, ``jvp`` and ``vmap`` have JAX's signatures; trees are dicts, tuples and
    named tuples of arrays.
    """

    name: str
    xp: Any
    optimizers: Any  # a namespace with optax's ``sgd(step_size)`` and ``adam(step_size)``

    def grad(self, function) -> Any:
        """The gradient of a scalar function with respect to its first argument."""
        ...

    def value_and_grad(self, function) -> Any:
        """The value of a scalar function, and its gradient with respect to its first argument."""
        ...

    def jvp(self, function, primals: tuple, tangents: tuple) -> tuple:
        """The function's value and its directional derivative."""
        ...

    def vmap(self, function, in_axes: Any = 0) -> Any:
        """The function vectorised over the leading axes of its arguments; an argument with axis None is shared."""
        ...

    def erf(self, x) -> Any:
        """The error function, elementwise."""
        ...

    def relu(self, x) -> Any:
        """The larger of ``x`` and 0, elementwise; its derivative at 0 is 0."""
        ...

    def solve_triangular(self, factor, right, transposed=False) -> Any:
        """``factor^-1 right``, or ``factor'^-1 right``, for a lower triangular ``factor (N, N)``."""
        ...

    def stop_gradient(self, array) -> Any:
        """The array as a constant: its derivatives are zero."""
        ...

    def take(self, tree, index) -> Any:
        """Rows ``index`` of every array in ``tree``."""
        ...

    def set_rows(self, tree, index, rows) -> Any:
        """``tree`` with its rows ``index`` replaced by ``rows`` (one row, or one for each index)."""
        ...

    def add_rows(self, array, index, rows) -> Any:
        """``array`` with ``rows`` added to its rows ``index``, which may repeat."""
        ...

    def scan_or_loop(self, body, carry, xs, part=None) -> Any:
        """``carry`` after ``body(carry, x) -> carry`` over the leading axis of ``xs``, or ``xs[slice(*part)]``."""
        ...

    def compile(self, function) -> Any:
        """``function`` of trees of arrays, compiled at the first call with each combination of shapes."""
        ...

    def jit(self, function) -> Any:
        """``function``, compiled by JAX; PyTorch runs it eagerly."""
        ...

    def repeat(self, turn, draw) -> Any:
        """Many runs of ``state = turn(state, draw(key, i))``, as ``(states, keys, first, count) -> states``.

        States and JAX keys have a leading axis of runs; ``i`` counts from ``first``. JAX runs all turns as one program,
        which may reuse the memory of the states. PyTorch runs a program for each turn; a count of 0 only compiles it.
        """
        ...

    def state_bytes(self, function, *shapes) -> int:
        """Bytes of the arrays that ``function`` returns, found by tracing it; 0 where it would have to be computed.

        Args:
            function: of trees of arrays.
            shapes: trees of objects with a shape and a dtype, in place of its arguments.
        """
        ...

    def map(self, function, xs, together: int = 1) -> Any:
        """``function`` of each entry of the trees ``xs``, in sequence, at most ``together`` of them vectorised."""
        ...

    def wait(self, tree) -> None:
        """Returns when the arrays of ``tree`` have been computed."""
        ...

    def form(self, function, *arguments) -> Any:
        """A tree like ``function(*arguments)`` in structure and shapes, for ``rebuilt``; JAX does not compute it."""
        ...

    def leaves(self, tree) -> list:
        """The arrays of ``tree`` as NumPy, in a fixed order; random keys by their data."""
        ...

    def shapes(self, tree) -> list:
        """Shape and dtype of each array of ``leaves(tree)``; of a tree of ``form`` as well."""
        ...

    def rebuilt(self, leaves, like) -> Any:
        """A tree with the structure of ``like`` and copies of ``leaves``, from ``leaves``, as arrays."""
        ...

    def tree_map(self, function, *trees) -> Any:
        """``function`` of every leaf."""
        ...

    def asarray(self, value, like=None) -> Any:
        """``value`` as an array of this backend, with the dtype and device of ``like`` if it is floating."""
        ...

    def from_jax(self, tree) -> Any:
        """``tree`` of JAX arrays, such as noise, as arrays of this backend."""
        ...

    def to_numpy(self, tree) -> Any:
        """``tree`` with NumPy arrays."""
        ...


@cache
def get(name: str) -> Backend:
    """The backend called ``name``; its library is imported only by this call.

    Raises:
        UserError: the name is unknown, or the library is not installed, or it is a version that lacks what is used
            here: programs in PyTorch are traced by parts of it that are not public.
    """
    check_known("backend", name, (*BACKENDS, HOST))
    try:
        return importlib.import_module(f"lowvar.core.{name}").BACKEND
    except ImportError as error:
        if isinstance(error, ModuleNotFoundError) and error.name == name:
            raise UserError(f"backend {name!r} needs the package {name}: pip install 'lowvar[{name}]'") from error
        if (error.name or "").partition(".")[0] != name:
            raise
        raise UserError(
            f"backend {name!r}: the installed version of {name} lacks something that lowvar uses ({error}); "
            f"pip install --upgrade lowvar, or a version of {name} that constraints.txt names"
        ) from error
