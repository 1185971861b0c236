"""``lowvar.integrate`` in the core installation: ``import torch`` fails, and polynomials do what they can."""

import subprocess
import sys

import numpy as np
import pytest

import lowvar

BLOCKED = """
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
try:
    import torch
except ModuleNotFoundError:
    pass
else:
    raise SystemExit("torch is not blocked")
"""
WORK = """
import numpy as np, lowvar
x = np.random.default_rng(0).normal(size=(300, 2))
f = np.column_stack([x[:, 0] ** 2 + x[:, 1], np.exp(0.3 * x[:, 0]), np.ones(300)])
for method, options in (("zero_variance", {}), ("zero_variance", {"folds": 5}), ("monte_carlo", {}), ("auto", {})):
    found = lowvar.integrate(x, -x, f, method, exact_scores=True, **options)
    print(method, *map(repr, found.value.tolist()), *map(repr, found.standard_error.tolist()))
print("note", *found.notes, sep="|")
along = lowvar.integrate(x, -x, f[:, 0], "zero_variance", chain=True, objective="mcmc")
print("mcmc", repr(along.value.item()))
try:
    lowvar.integrate(x, -x, f[:, 0], "control_functional")
except lowvar.UserError as error:
    print("refused", error)
from lowvar.cli import main
np.savez(sys.argv[1], samples=x, scores=-x, values=f[:, 0])
lowvar.TorchModel  # its name alone
print("cli", main(["integrate", sys.argv[1]]))
print("torch" in sys.modules)
"""


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    file = tmp_path_factory.mktemp("torchless") / "mine.npz"
    done = subprocess.run([sys.executable, "-c", BLOCKED + WORK, file], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_polynomials_are_those_with_torch(said):
    pytest.importorskip("torch")
    x = np.random.default_rng(0).normal(size=(300, 2))
    f = np.column_stack([x[:, 0] ** 2 + x[:, 1], np.exp(0.3 * x[:, 0])])
    with pytest.warns(UserWarning, match="equal at all samples"):
        here = lowvar.integrate(x, -x, np.column_stack([f, np.ones(300)]), "zero_variance", exact_scores=True)
    there = np.array(said[0].split()[1:], float)
    np.testing.assert_allclose(there[[0, 1, 2, 4]], [*here.value, here.standard_error[1]], rtol=1e-10)
    assert abs(there[0] - 1) < 1e-12
    assert abs(there[1] - np.exp(0.045)) < 1e-3


def test_auto_tries_what_can_run_and_says_so(said):
    auto, plain = (np.array(said[line].split()[1:], float) for line in (3, 2))
    assert said[3].startswith("auto")
    assert abs(auto[0] - 1) < 1e-12
    assert abs(auto[1] - np.exp(0.045)) < 3e-3
    assert auto[4] < 0.7 * plain[4]
    note = next(line for line in said if line.startswith("note"))
    assert "PyTorch is not installed, so no kernel was tried, polynomials alone: pip install 'lowvar[torch]'" in note


def test_kernels_are_refused_in_a_sentence(said):
    assert "refused control_functional needs torch: pip install 'lowvar[torch]'" in said


def test_the_command_runs_and_nothing_imports_torch(said):
    assert "cli 0" in said
    assert said[-1] == "False"
