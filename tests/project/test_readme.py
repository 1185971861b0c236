"""The README's examples run as they stand, and its claims about itself are true."""

import re
from types import SimpleNamespace

import numpy as np
import pytest
import torch


@pytest.fixture(scope="module")
def blocks(request):
    found = re.findall(r"```python\n(.*?)```", (request.config.rootpath / "README.md").read_text(), flags=re.DOTALL)
    assert len(found) == 2
    return found


def run(block):
    scope: dict = {}
    exec(compile(block, "README.md", "exec"), scope)
    return SimpleNamespace(**scope)


def test_the_first_example_runs(blocks, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = run(blocks[0])
    fit, table = found.fit, found.where.table
    assert set(fit.params) == {"scale_auto_loc", "scale_auto_scale", "w_auto_loc", "w_auto_scale"}
    np.testing.assert_allclose(fit.sample()["w"].mean(0), [0.5, -0.3, 0.1], atol=0.15)
    total = table[(table["block"] == "all") & (table["source"] == "total")].set_index("method")
    assert set(total.index) == {"naive", "stl", "cv", "joint", "joint_svrg", "joint_adaptive"}
    assert total.loc["joint", "high"] < total.loc["naive", "low"]
    assert str(found.where).startswith("gradient variance of model at")


@pytest.mark.long
def test_the_example_in_pytorch_runs(blocks):
    torch.manual_seed(0)
    found = run("import lowvar\n" + blocks[1])
    np.testing.assert_allclose(found.torch_fit.params["z_auto_loc"], [0.5, -0.3, 0.1], atol=0.15)


def test_named_examples_exist(repository):
    text = (repository / "README.md").read_text()
    for path in re.findall(r"`(examples/[^:`\s]+)", text):
        assert (repository / path).exists(), path


def test_every_estimator_is_in_the_readme(repository):
    from lowvar.vi.estimators import GRADIENT

    text = (repository / "README.md").read_text()
    for name in GRADIENT:
        assert re.search(rf"(?m)^\| [^|]*`{name}`[^|]*\|", text), name
