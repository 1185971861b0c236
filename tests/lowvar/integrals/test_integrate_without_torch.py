"""``lowvar.integrate`` in the core installation: ``import torch`` fails, and nothing needs it."""

import subprocess
import sys

import numpy as np
import pytest

import lowvar

METHODS = {
    "auto": {},
    "zero_variance": {},
    "control_functional": {},
    "sparse_control_functional": {"kernel": "preconditioned"},
    "vector_valued": {},
}
WORK = f"""
import sys, warnings

class Hides:  # PyTorch is not there: not for import, nor for importlib.util.find_spec
    def __init__(self, finder):
        self.finder = finder

    def find_spec(self, name, *rest):
        return None if name.partition(".")[0] == "torch" else self.finder.find_spec(name, *rest)

    def __getattr__(self, name):
        return getattr(self.finder, name)

sys.meta_path[:] = map(Hides, sys.meta_path)
warnings.simplefilter("ignore")
import numpy as np, lowvar
from lowvar.cli import main
x = np.random.default_rng(0).normal(size=(200, 2))
f = np.column_stack([x[:, 0] ** 2 + x[:, 1], np.exp(0.3 * x[:, 0])])
for method, options in {METHODS}.items():
    found = lowvar.integrate(x, -x, f, method, exact_scores=True, **options)
    print(*map(repr, found.value.tolist()), *map(repr, found.standard_error.tolist()))
lowvar.integrate(x, -x, f, "zero_variance", chain=True, objective="mcmc")
np.savez(sys.argv[1], samples=x, scores=-x, values=f[:, 0])
lowvar.TorchModel  # its name alone
print("cli", main(["integrate", sys.argv[1]]))
print("torch" in sys.modules)
"""


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_everything_runs_without_torch(tmp_path):
    done = subprocess.run([sys.executable, "-c", WORK, tmp_path / "mine.npz"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    x = np.random.default_rng(0).normal(size=(200, 2))
    f = np.column_stack([x[:, 0] ** 2 + x[:, 1], np.exp(0.3 * x[:, 0])])
    for (method, options), line in zip(METHODS.items(), lines, strict=False):
        here = lowvar.integrate(x, -x, f, method, exact_scores=True, **options)
        there = np.array(line.split(), float)
        np.testing.assert_allclose(there[:2], here.value, rtol=1e-9)
        np.testing.assert_allclose(there[2:], here.standard_error, rtol=1e-6, atol=1e-12)
        np.testing.assert_allclose(there[:2], [1, np.exp(0.045)], atol=3e-3)
    assert "cli 0" in lines[len(METHODS) :]
    assert lines[-1] == "False"


def test_a_call_loads_only_what_it_uses():
    """A first call is quick: PyTorch, JAX, pandas and SciPy's statistics take longer to load than it does to run."""
    heavy = "torch", "jax", "pandas", "scipy.stats"
    work = "import sys, numpy as np, lowvar; x = np.random.default_rng(0).normal(size=(300, 2));"
    work += f"lowvar.integrate(x, -x, np.sin(x[:, 0]) + x[:, 1]**2); print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", work], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr
