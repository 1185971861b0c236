"""The README's example runs as it stands, and its claims about itself are true."""

import re

import numpy as np
import torch


def test_the_examples_run(repository, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", (repository / "README.md").read_text(), flags=re.DOTALL)
    assert len(blocks) == 2
    scope: dict = {}
    torch.manual_seed(0)
    for block in blocks:
        exec(compile(block, "README.md", "exec"), scope)
    fit, where = scope["fit"], scope["where"]
    assert set(fit.params) == {"scale_auto_loc", "scale_auto_scale", "w_auto_loc", "w_auto_scale"}
    np.testing.assert_allclose(fit.sample()["w"].mean(0), [0.5, -0.3, 0.1], atol=0.15)
    assert set(where.table["method"]) == {"naive", "cv", "joint", "joint_svrg", "joint_adaptive"}
    np.testing.assert_allclose(scope["torch_fit"].params["z_auto_loc"], [0.5, -0.3, 0.1], atol=0.15)


def test_named_examples_exist(repository):
    text = (repository / "README.md").read_text()
    for path in re.findall(r"`(examples/[^:`\s]+)", text):
        assert (repository / path).exists(), path


def test_every_estimator_is_in_the_readme(repository):
    from lowvar.estimators import GRADIENT

    text = (repository / "README.md").read_text()
    for name in GRADIENT:
        assert re.search(rf"(?m)^\| [^|]*`{name}`[^|]*\|", text), name
