"""Where lowvar is installed without extras: its calls work, and a call that needs an extra names it in a sentence.

`.ci/wheel` runs it in an environment with the wheel and the library's own dependencies, in an empty folder.
"""

import importlib.util
import io
import pickle
import sys
import tomllib
import warnings
from contextlib import redirect_stderr
from pathlib import Path

import numpy as np
import numpyro
import numpyro.distributions as dist

import lowvar
from lowvar.cli import main
from lowvar.search.solvers import SEARCH

warnings.simplefilter("ignore")
TOOLS = {"posteriors", "docs", "dev"}  # for benchmarks, the site and tests: no call of lowvar needs them
rng = np.random.default_rng(0)
x = rng.normal(size=(60, 2))


def model(y):
    """A mean, in batches."""
    mean = numpyro.sample("mean", dist.Normal(0, 1))
    with numpyro.plate("rows", len(y), subsample_size=10) as index:
        numpyro.sample("y", dist.Normal(mean, 1), obs=y[index])


def valley(z):
    """A function to minimise."""
    return float(z @ z)


def command(*words):
    """Runs a command; the line that it ends with is raised."""
    with redirect_stderr(said := io.StringIO()):
        code = main(list(words))
    if code:
        raise lowvar.UserError(said.getvalue())


def searched(method):
    """Runs a search over its own domain."""
    if "real" in SEARCH.about(method).domains:
        return lowvar.minimize(valley, np.ones(2), 0.5, method=method)
    return lowvar.minimize(valley, domain="binary", dim=5, method=method)


def catalogued(where, registry, name):
    """Looks up a problem of the laboratory."""
    return getattr(importlib.import_module(where), registry).get(name)


fit = lowvar.fit(model, {"y": x[:, 0]}, num_steps=50, progress=False)
decomposition = lowvar.decompose(model, {"y": x[:, 0]}, fit, estimators=["naive", "cv"], progress=False)
assert abs(fit.summary()["mean"].iloc[0] - x[:, 0].mean()) < 0.5
assert abs(lowvar.integrate(x, -x, x[:, 0] ** 2, method="zero_variance", exact_scores=True).value - 1) < 1e-6
assert lowvar.minimize(valley, np.ones(2), 0.5, budget=2000, target=1e-8, seed=0).success
assert len(decomposition.table)
fit.save("fit.npz")
assert lowvar.load("fit.npz", model, {"y": x[:, 0]}).params.keys() == fit.params.keys()

CALLS = [
    ("torch", lambda: lowvar.TorchModel(lambda z, i: z, lambda z: z, N=3, dim=2)),
    ("torch", lambda: lowvar.integrate(x, -x, x[:, 0], method="neural")),
    ("plot", lambda: fit.plot("fit.png")),
    ("plot", lambda: decomposition.plot("shares.png")),
    ("files", lambda: lowvar.Parquet("rows.parquet", x="x")),
    ("workers", lambda: pickle.dumps(fit)),
    ("workers", lambda: lowvar.minimize(valley, np.ones(2), 0.5, budget=50, workers=2)),
    ("arviz", fit.to_arviz),
    ("optuna", lambda: importlib.import_module("lowvar.search.optuna")),
    *(("peers", lambda one=one: searched(one)) for one in SEARCH if SEARCH.about(one).extra == "peers"),
    ("workflow", lambda: command("run", "a.yaml", "--problem", "p", "--method", "m")),
    ("workflow", lambda: command("list", "figures")),
    ("integrals", lambda: catalogued("lowvar_studies.integrals.catalogue", "PROBLEMS", "van_der_pol")),
    ("rl", lambda: catalogued("lowvar_studies.functions.catalogue", "FUNCTIONS", "swimmer")),
    ("bbob", lambda: catalogued("lowvar_studies.functions.catalogue", "FUNCTIONS", "bbob")),
    # of JAX, whose build for a GPU the extra is
    ("gpu", lambda: command("decompose", "model.py:model", "--data", "d.npz", "--device", "gpu")),
]
np.savez("d.npz", y=x[:, 0])
Path("model.py").write_text("def model(y): ...\n")
failed = []
for position, (extra, call) in enumerate(CALLS):
    try:
        call()
        failed.append(f"{position}: no error without the extra {extra}")
    except lowvar.UserError as error:
        if f"lowvar[{extra}]" not in str(error) or len(str(error).strip().splitlines()) != 1:
            failed.append(f"{position}: {extra} is not named in a line: {error}")
extras = set(tomllib.loads(Path(sys.argv[1]).read_text())["project"]["optional-dependencies"])
if extras - TOOLS != {extra for extra, _ in CALLS}:
    failed.append(f"extras without a call: {extras - TOOLS}")
print(*failed or [f"{len(CALLS)} calls name their extra"], sep="\n")
sys.exit(bool(failed))
