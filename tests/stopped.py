"""The reader of checkpoints of runs that stopped in the middle."""

import warnings

from lowvar.core import artifact
from lowvar.errors import UserError


def read_checkpoint(path, mark):
    """The arrays; a damaged checkpoint is put aside with a warning, which is raised here."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        found = artifact.read_checkpoint(path, mark)
    if said:
        raise UserError(str(said[0].message))
    return found
