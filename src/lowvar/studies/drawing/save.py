"""A figure on disk: a vector, a bitmap, and the rows that were drawn."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import TYPE_CHECKING

from lowvar.files import write_bytes
from lowvar.studies.drawing.style import styled
from lowvar.studies.drawing.tables import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_METADATA = {"svg": {"Date": None, "Creator": "lowvar"}, "png": {"Software": "lowvar"}}


@styled
def save(figure: Figure, stem: str | os.PathLike, data: Table) -> list[Path]:
    """Writes ``stem.svg``, ``stem.png`` (200 dpi) and ``stem.csv``; equal input gives equal bytes.

    All three are made in memory first, so a failure on the way leaves no file.

    Args:
        figure: what a function of this package returned.
        stem: path without its ending; missing folders are made.
        data: the rows behind the picture, see `lowvar.studies.drawing.DATA`.

    Returns:
        The three paths, in that order.

    Raises:
        UserError: the folder cannot be written, or the disk is full.
    """
    figure.draw_without_rendering()
    figure.set_layout_engine("none")  # the layout that was just found stays: vector and bitmap share it
    content = {}
    for ending, metadata in _METADATA.items():
        stream = io.BytesIO()
        figure.savefig(stream, format=ending, dpi=200, metadata=metadata)
        content[ending] = stream.getvalue()
    content["csv"] = data.to_csv(index=False, lineterminator="\n").encode()
    paths = []
    for ending, blob in content.items():
        paths.append(Path(f"{os.fspath(stem)}.{ending}"))
        write_bytes(paths[-1], blob)
    return paths
