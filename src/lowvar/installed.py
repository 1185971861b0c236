"""The entry points of installed packages, which a process looks up once."""

import functools
import importlib.metadata


@functools.cache
def entry_points() -> importlib.metadata.EntryPoints:
    """Those of all groups."""
    return importlib.metadata.entry_points()
