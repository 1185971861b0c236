"""``lowvar.integrate`` in the core installation: ``import torch`` fails, and polynomials do what they can."""

import subprocess
import sys

import numpy as np
import pytest

import lowvar

WORK = """
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
x = np.random.default_rng(0).normal(size=(300, 2))
f = np.column_stack([x[:, 0] ** 2 + x[:, 1], np.exp(0.3 * x[:, 0])])
for method in ("zero_variance", "monte_carlo", "auto"):
    found = lowvar.integrate(x, -x, f, method, exact_scores=True)
    print(*map(repr, found.value.tolist()), *map(repr, found.standard_error.tolist()))
print(found.notes)
lowvar.integrate(x, -x, f, "zero_variance", folds=5)
lowvar.integrate(x, -x, f, "zero_variance", chain=True, objective="mcmc")
try:
    lowvar.integrate(x, -x, f[:, 0], "control_functional")
except lowvar.UserError as error:
    print(error)
np.savez(sys.argv[1], samples=x, scores=-x, values=f[:, 0])
lowvar.TorchModel  # its name alone
print("cli", main(["integrate", sys.argv[1]]))
print("torch" in sys.modules)
"""


def test_what_runs_without_torch(tmp_path):
    pytest.importorskip("torch")
    done = subprocess.run([sys.executable, "-c", WORK, tmp_path / "mine.npz"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    polynomials, plain, auto, notes, refusal, *rest = done.stdout.splitlines()
    x = np.random.default_rng(0).normal(size=(300, 2))
    f = np.column_stack([x[:, 0] ** 2 + x[:, 1], np.exp(0.3 * x[:, 0])])
    here = lowvar.integrate(x, -x, f, "zero_variance", exact_scores=True)
    there = np.array(polynomials.split(), float)
    np.testing.assert_allclose(there[:2], here.value, rtol=1e-10)
    np.testing.assert_allclose(there[3], here.standard_error[1], rtol=1e-10)
    chosen, monte_carlo = (np.array(line.split(), float) for line in (auto, plain))
    np.testing.assert_allclose(chosen[:2], [1, np.exp(0.045)], atol=3e-3)
    assert chosen[3] < 0.7 * monte_carlo[3]
    for said in (notes, refusal):
        assert "pip install 'lowvar[torch]'" in said
    assert "cli 0" in rest
    assert rest[-1] == "False"
