"""The reader of YAML files: those of experiments, claims and parameters."""

import functools
import os
import re
from pathlib import Path
from typing import Any

import yaml

from lowvar.errors import UserError

_LONGEST, _DEEPEST = 2**24, 64  # characters and levels of a file


def read_yaml(path: str | os.PathLike) -> Any:
    """The content of a YAML file, in plain Python types.

    Raises:
        UserError: the file cannot be read, is not YAML, or has a duplicate key.
    """
    try:
        with Path(path).open(encoding="utf-8") as stream:
            text = stream.read(_LONGEST + 1)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}; give a YAML file") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not YAML: {error}") from error
    if len(text) > _LONGEST:
        raise UserError(f"{path}: longer than {_LONGEST} characters; give a YAML file of settings")
    level, deep = 0, f"{path}: its levels are nested too deeply, more than {_DEEPEST}"
    try:
        for event in yaml.parse(text, _yaml_loader()):  # the loader is in C, and many levels overflow its stack
            level += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if level > _DEEPEST:
                raise UserError(deep)
        content = _yaml_loader()(text).get_single_data()
    except UserError:
        raise
    except (yaml.YAMLError, ValueError) as error:  # a date with month 13 and a number without digits are ValueErrors
        said = " ".join(str(error).replace('in "<unicode string>", ', "at ").split())
        raise UserError(f"{path}: not YAML: {said}") from error
    if _deeper(content, _DEEPEST):
        raise UserError(deep)
    return content


def _deeper(content: Any, most: int) -> bool:
    """Whether lists and dicts are nested in more than ``most`` levels; parts that occur again are seen once."""
    level, seen = [content], set()
    for _ in range(most + 1):
        inner = [one for one in level if isinstance(one, dict | list) and id(one) not in seen]
        seen.update(map(id, inner))
        level = [part for one in inner for part in (one.values() if isinstance(one, dict) else one)]
        if not level:
            return False
    return True


@functools.cache
def _yaml_loader() -> Any:
    """PyYAML's loader (its fast one, if it has been built) without duplicate keys and with the numbers of YAML 1.2."""
    base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

    class Strict(base):
        def construct_mapping(self, node, deep=False):
            seen = set()
            for key, _ in node.value:
                if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                    if key.value in seen:
                        raise yaml.MarkedYAMLError(problem=f"duplicate key {key.value!r}", problem_mark=key.start_mark)
                    seen.add(key.value)
            return super().construct_mapping(node, deep)

    # YAML 1.1, which PyYAML reads, takes 1e-3 for text
    number = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?$")
    Strict.add_implicit_resolver("tag:yaml.org,2002:float", number, list("-+.0123456789"))
    return Strict
