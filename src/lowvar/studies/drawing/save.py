"""Saving a figure as vector graphics and bitmap, with the rows that it shows."""

from __future__ import annotations

import io
import os
from pathlib import Path

from lowvar.files import write_bytes
from lowvar.studies.declarations import Frame
from lowvar.studies.drawing.panels import Picture
from lowvar.studies.drawing.style import styled

_METADATA = {"svg": {"Date": None, "Creator": "lowvar"}, "png": {"Software": "lowvar"}}


@styled
def save(figure: Picture, stem: str | os.PathLike, rows: Frame) -> list[Path]:
    """Writes ``stem.svg``, ``stem.png`` (200 dpi) and ``stem.csv``; equal input gives equal bytes.

    All three are rendered in memory first, so a failure leaves no file.

    Args:
        figure: returned by ``Figure.draw``.
        stem: path without its ending; missing folders are created.
        rows: the rows that the figure shows.

    Returns:
        The three paths, in that order.

    Raises:
        UserError: the folder cannot be written, or the disk is full.
    """
    figure.draw_without_rendering()
    figure.set_layout_engine("none")  # vector and bitmap share the layout that was just computed
    content = {}
    for ending, metadata in _METADATA.items():
        stream = io.BytesIO()
        figure.savefig(stream, format=ending, dpi=200, metadata=metadata)
        content[ending] = stream.getvalue()
    content["csv"] = rows.to_csv(index=False, lineterminator="\n").encode()
    paths = []
    for ending, blob in content.items():
        paths.append(Path(f"{os.fspath(stem)}.{ending}"))
        write_bytes(paths[-1], blob)
    return paths
