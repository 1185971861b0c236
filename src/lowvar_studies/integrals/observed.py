"""Measurements of a prepared dataset, by column name."""

from collections.abc import Sequence

import numpy as np

from lowvar.errors import UserError
from lowvar_studies.datasets.load import Prepared


def measurements(data: Prepared | None, dataset: str, columns: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Times ``(n,)`` and measurements ``(n, len(columns))``.

    Args:
        data: the prepared dataset, with unscaled times.
        dataset: the required dataset.
        columns: names of the measurements, in the order of the result.

    Raises:
        UserError: no data, or those of another dataset or scaling.
    """
    command = f"make it with `lowvar fetch {dataset}` and `lowvar prepare {dataset} --scaling none`"
    if data is None:
        raise UserError(f"the problem needs the dataset {dataset}: {command}")
    if (data.meta.get("dataset"), data.meta.get("scaling")) != (dataset, "none"):
        actual = f"{data.meta.get('dataset', 'unnamed arrays')} with scaling {data.meta.get('scaling', 'unknown')}"
        raise UserError(f"the problem needs the dataset {dataset} with scaling none, not {actual}: {command}")
    names = data.meta["outputs"]
    return data.arrays["x"][:, 0], data.arrays["y"][:, [names.index(column) for column in columns]]
