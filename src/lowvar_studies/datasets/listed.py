"""Data of a few published numbers, listed here in place of a file."""

from pathlib import Path

import numpy as np

from lowvar_studies.datasets.readers import Table

# u_1 at s = 0, 1, .., 10: parameter 1, u(0) = (0, 2), noise of standard deviation 0.1
_VAN_DER_POL = (
    -0.06490137651912407, 2.0253794833657275, 1.5234675467282532, 0.436423900725732, -1.7752475581746274,
    -1.8770352953664626, -1.0546515194496622, 0.9592328217532438, 1.9585505961295833, 1.4065533263342098,
    -0.15664748180816496,
)  # fmt: skip


def van_der_pol(raw: str | Path) -> Table:
    """Noisy observations of a van der Pol oscillator; ``raw`` is not used.

    Returns:
        ``x`` (11, 1), the times 0 to 10, and ``y`` (11, 1), the first coordinate; both float64.

    References:
        Oates, Girolami and Chopin, "Control functionals for Monte Carlo integration", JRSS B 2017, who drew them; the
        values are those of ``TI_Example/data.mat`` in github.com/jz-fun/Vector-valued-Control-Variates-Code.
    """
    seen = np.array(_VAN_DER_POL)[:, None]
    return Table({"x": np.arange(len(seen), dtype=float)[:, None], "y": seen}, ("time",))
