"""A mapping with lazily computed values."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any


class Lazy(Mapping):
    """A mapping whose values come from functions without arguments, each called once, on first access.

    >>> facts = Lazy({"answer": lambda: 42})
    >>> facts["answer"]
    42
    """

    def __init__(self, makers: Mapping[str, Callable[[], Any]]):
        self._makers = dict(makers)
        self._made: dict[str, Any] = {}

    def __getitem__(self, key: str) -> Any:
        if key not in self._made:
            self._made[key] = self._makers[key]()
        return self._made[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._makers)

    def __len__(self) -> int:
        return len(self._makers)
