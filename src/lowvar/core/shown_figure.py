"""A figure that notebooks show; matplotlib is imported with this module."""

import io

from matplotlib.figure import Figure


class ShownFigure(Figure):
    """A matplotlib figure that a notebook shows where a cell ends with it, though pyplot is not imported."""

    def _repr_png_(self) -> bytes:
        stream = io.BytesIO()
        self.savefig(stream, format="png")
        return stream.getvalue()
