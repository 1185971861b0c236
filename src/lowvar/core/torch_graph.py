"""Graphs traced by ``make_fx`` for fixed shapes: simplified without a change of any rounding, and as Python code.

An operation on small arrays takes less time than its call, so a program is as fast as its operations are few and
their calls short. Nothing here changes what an operation computes.
"""

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch._C import _AutoDispatchBelowAutograd
from torch.fx import Graph, GraphModule, Interpreter, Node
from torch.fx.node import map_arg
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

_aten: Any = torch.ops.aten
_FOLDED = 2**14  # values of an array that may become a constant
_LIKE = [getattr(_aten, f"{name}_like").default for name in ("ones", "zeros", "full")]
_LIKE += [getattr(_aten, f"new_{name}").default for name in ("ones", "zeros", "full")]


def program(module: GraphModule, leaves) -> Callable:
    """The traced ``module`` as a function of tensors of the shapes, strides and types of ``leaves``.

    It returns a list of tensors. Treat them as read-only: they may share memory with arguments, with each other, or be
    constants of the program, which the next call returns again.
    """
    graph, constants = module.graph, _constants(module)
    for simplify in (_fold, _same):
        simplify(graph, constants)
        graph.eliminate_dead_code()
    return _code(graph, constants, _Calls(module, constants).chosen(leaves))


def _constants(module) -> dict[Node, torch.Tensor]:
    """The values of the arrays that a graph closes over."""
    return {node: getattr(module, node.target) for node in module.graph.nodes if node.op == "get_attr"}


def _pure(node: Node) -> bool:
    """Whether a node is an operation with the same result at every call, and no other effect."""
    if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
        return False
    return not node.target._schema.is_mutable and torch.Tag.nondeterministic_seeded not in node.target.tags


def _same(graph: Graph, constants) -> None:
    """Computes once what is computed several times; drops operations that return their argument."""
    seen: dict[Any, Node] = {}
    for node in list(graph.nodes):
        if node in constants:
            key: Any = "constant", id(constants[node])
        elif not _pure(node):
            continue
        elif (given := _unchanged(node, constants)) is not None:
            node.replace_all_uses_with(given)
            continue
        else:
            key = node.target, repr(node.args), repr(node.kwargs)
        if (first := seen.setdefault(key, node)) is not node:
            node.replace_all_uses_with(first)


def _unchanged(node: Node, constants) -> Node | None:
    """The argument whose values, shape, type and layout a node has, if there is one."""
    given = node.args[0] if node.args else None
    if not isinstance(given, Node) or not _alike(given.meta.get("val"), node.meta.get("val")):
        return None
    if node.target in (_aten.detach.default, _aten.alias.default, _aten.view.default, _aten.expand.default):
        return given
    other = constants.get(node.args[1]) if len(node.args) == 2 and isinstance(node.args[1], Node) else None
    if node.target is _aten.sub.Tensor and other is not None and not other.any() and not node.kwargs:
        return given
    return None


def _alike(one, other) -> bool:
    tensors = isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor)
    return tensors and (one.shape, one.dtype, one.stride()) == (other.shape, other.dtype, other.stride())


def _fold(graph: Graph, constants) -> None:
    """Computes small arrays that depend on nothing but constants and shapes now."""
    for node in list(graph.nodes):
        result = node.meta.get("val")
        if not _pure(node) or not isinstance(result, torch.Tensor) or result.numel() > _FOLDED:
            continue
        if node.target in _LIKE and node.args[0] not in constants:
            like = node.args[0].meta["val"]
            given = torch.empty_strided(like.shape, like.stride(), dtype=like.dtype, device=like.device)
            args = (given, *node.args[1:])
        elif all(one in constants for one in node.all_input_nodes):
            args = map_arg(node.args, constants.__getitem__)
        else:
            continue
        value = node.target(*args, **map_arg(node.kwargs, constants.__getitem__))
        setattr(graph.owning_module, f"_folded_{node.name}", value)
        with graph.inserting_before(node):
            folded = graph.create_node("get_attr", f"_folded_{node.name}")
        folded.meta, constants[folded] = dict(node.meta), value
        node.replace_all_uses_with(folded)


class _Recorder(TorchDispatchMode):
    """Notes the operations that a call makes."""

    def __init__(self):
        super().__init__()
        self.made = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.made.append(func)
        return func(*args, **(kwargs or {}))


class _Calls(Interpreter):
    """Finds the shortest call for each operation: of a public function of PyTorch, if it makes this operation alone.

    Which operation a function makes depends on the types and shapes of its arguments, which are fixed.
    """

    def __init__(self, module, constants):
        super().__init__(module)
        self._values, self._found = constants, {}

    def chosen(self, leaves) -> dict[Node, tuple]:
        """For each operation ``(function, args, kwargs)``, with nodes in place of arrays, by a run on ``leaves``."""
        with torch.no_grad():
            self.run(*leaves)
        return self._found

    def run_node(self, n) -> Any:
        target: Any = n.target
        if n in self._values:
            return self._values[n]
        if n.op != "call_function":
            return super().run_node(n)
        fetched = self.fetch_args_kwargs_from_env(n)
        result: Any = target(*fetched[0], **fetched[1])
        direct = getattr(target, "_op", target), n.args, n.kwargs
        calls = self._offered(n, result) if _pure(n) else ()
        self._found[n] = next((call for call in calls if self._makes(call, n, result)), direct)
        return result

    @staticmethod
    def _offered(n, result):
        name = n.target._schema.name.partition("::")[2]
        if n.target is _aten.index.Tensor and len(n.args[1]) == 1:
            yield operator.getitem, (n.args[0], n.args[1][0]), {}
        number = len(n.args) == 2 and isinstance(n.args[1], int | float) and isinstance(result, torch.Tensor)
        for call in (getattr(place, name, None) for place in (torch, torch.Tensor)):
            if call is not None and number and result.is_floating_point():
                # a call would make an array of the number
                yield call, (n.args[0], torch.tensor(n.args[1], dtype=result.dtype, device=result.device)), n.kwargs
            if call is not None:
                yield call, n.args, n.kwargs

    def _makes(self, call, n, result):
        function, (args, kwargs) = call[0], map_arg(call[1:], self.env.__getitem__)
        with _Recorder() as recorder:
            try:
                same = function(*args, **kwargs)
            except (TypeError, ValueError, RuntimeError, IndexError):
                return False
        pairs = list(zip(pytree.tree_leaves(same), pytree.tree_leaves(result), strict=True))
        return recorder.made == [n.target] and all(
            _alike(*pair) and torch.equal(*map(torch.nan_to_num, pair)) for pair in pairs
        )


def _code(graph: Graph, constants, calls) -> Callable:
    """A graph as a Python function, which drops each array after its last use."""
    names: dict[Node, str] = {}
    space: dict[str, Any] = {}
    last = {one: node for node in graph.nodes for one in node.all_input_nodes}

    def bound(value, kind):
        name = f"{kind}{len(space)}"
        space[name] = value
        return name

    def word(value):
        if isinstance(value, Node):
            return names[value]
        if isinstance(value, list | tuple):
            return "[" + "".join(f"{word(one)}, " for one in value) + "]"
        if value is None or isinstance(value, bool | int | str):
            return repr(value)
        return bound(value, "c")

    lines, given = [], []
    for node in graph.nodes:
        if node in constants:
            names[node] = bound(constants[node], "c")
        elif node.op == "placeholder":
            names[node] = f"a{len(given)}"
            given.append(names[node])
        elif node.op == "output":
            lines.append(f"return {word(node.args[0])}")
        else:
            function, args, kwargs = calls[node]
            words = [*map(word, args), *(f"{key}={word(value)}" for key, value in kwargs.items())]
            names[node] = f"v{len(lines)}"
            dead = [names[one] for one in node.all_input_nodes if last[one] is node and one not in constants]
            line = f"{names[node]} = {bound(function, 'f')}({', '.join(words)})"
            lines.append("; ".join([line, *(f"{name} = None" for name in dead)]))
    body = "".join(f"    {line}\n" for line in lines)
    exec(f"def run({', '.join(given)}):\n{body}", space)
    run = space["run"]

    def below_autograd(*leaves):
        with _AutoDispatchBelowAutograd():
            return run(*leaves)

    return below_autograd
