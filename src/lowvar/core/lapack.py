"""Batches of matrices on CPUs, whose programs some versions of JAX do not finish.

jaxlib 0.10 to 0.11.1 divide a large batch among the threads that run the program's operations, and wait for them there:
a program that reaches as many batches at once as there are threads, such as second derivatives of Gaussian processes
at several draws, waits forever. Here such batches are worked through in parts too small to be divided; later versions
divide none.
"""

import math

import jax
import jax.numpy as jnp
from jax.extend.core import Primitive

FAULTY = (0, 10, 0), (0, 11, 2)  # from the first on, before the second
_DIVIDED = 200_000  # operations of a batch, from which on it is divided
# at most so many times the size of a matrix and its longer side are the operations that jaxlib counts
_MOST, _FEW = 10, {"cholesky": 1, "lu": 1, "triangular_solve": 1}


def bound_batches() -> None:
    """Makes JAX compile such batches in parts, in the whole process, where its version needs it."""
    if not FAULTY[0] <= jax.__version_info__ < FAULTY[1]:
        return
    from jax._src.interpreters import mlir
    from jax._src.lax import linalg

    rules = mlir._platform_specific_lowerings["cpu"]
    own = [one for one in vars(linalg).values() if isinstance(one, Primitive) and one in rules]
    for primitive in own:
        mlir.register_lowering(primitive, _in_parts(primitive, rules[primitive].rule, mlir), platform="cpu")


def _in_parts(primitive, rule, mlir):
    """The rule by which a primitive is compiled, of which large batches are divided here."""
    vectors = primitive.name == "tridiagonal_solve"  # whose first operands are diagonals

    def of_batch(context, *operands, **parameters):
        shapes = [aval.shape for aval in context.avals_in]
        if not all(isinstance(size, int) and size for shape in shapes for size in shape):
            return rule(context, *operands, **parameters)  # symbols of jax.export, and nothing to do
        if any(axis is not None for aval in context.avals_in for axis in aval.sharding.spec):
            return rule(context, *operands, **parameters)  # of several devices, which have a part each
        batch = shapes[0][: len(shapes[0]) - (1 if vectors else 2)]
        matrices = context.avals_in[-1:] if vectors else context.avals_in
        together = max(_DIVIDED // max(_operations(aval, primitive.name) for aval in matrices), 1)
        count = math.prod(batch)
        if count <= together:
            return rule(context, *operands, **parameters)

        def one(parts):
            found = primitive.bind(*parts, **parameters)
            return found if primitive.multiple_results else [found]

        def all_parts(*arrays):
            rows = [jnp.reshape(array, (count, *array.shape[len(batch) :])) for array in arrays]
            found = jax.lax.map(one, rows, batch_size=together if together > 1 else None)
            return [jnp.reshape(array, (*batch, *array.shape[1:])) for array in found]

        return mlir.lower_fun(all_parts, multiple_results=True)(context, *operands)

    return of_batch


def _operations(aval, name: str) -> int:
    """A bound of the operations for a matrix, the last two axes of an operand, as jaxlib counts them."""
    sides = aval.shape[-2:]
    factor = _FEW.get(name, _MOST) * (3 if jnp.issubdtype(aval.dtype, jnp.complexfloating) else 1)
    return factor * math.prod(sides) * max(sides)
