"""Fits on several devices: four virtual ones of a CPU, and two processes, give the parameters of one."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[2]
FIT = """
import json, re, sys, tempfile, warnings
import jax
jax.config.update("jax_enable_x64", True)
warnings.simplefilter("ignore")
{before}
import numpy as np
import lowvar
from short_fits import DATA, fitted, made_data, regression
from lowvar.vi.settings import problem_of
from lowvar.vi.devices import divided

assert jax.device_count() == {count}
folder = tempfile.mkdtemp()
mapped = {{}}
for name, value in DATA.items():
    np.save(f"{{folder}}/{{name}}.npy", value)
    mapped[name] = np.load(f"{{folder}}/{{name}}.npy", mmap_mode="r")
found = {{}}
for kind, data in {cases}:
    given = {{"memory": DATA, "files": mapped}}[data]
    settings = {{"data": given, "estimator": kind, "batch_size": 40, "num_steps": 17}}
    fits = fitted(devices={count}, **settings), fitted(**settings)  # on the first of this process's own
    on = [len(jax.tree.leaves(fit.run.copies[fit.run.epochs[1]])[0].sharding.device_set) for fit in fits]
    assert on == [{count}, 1], on
    both = [fit.guide_params | {{"elbo": fit.elbo["elbo"].to_numpy()}} for fit in fits]
    found[f"{{kind}} {{data}}"] = max(float(np.abs(both[0][b] / both[1][b] - 1).max()) for b in both[0])
problem = divided(problem_of(regression, made_data(n=2000)), {count}, 40)  # passes over all rows are in chunks of 1000
batch = np.arange(40), np.full(40, 1 / 40)
for function, rows, given in (  # the last is a draw of an ELBO
    (problem.gradient, 40, batch), (problem.full_gradient, 1000, ()), (problem.full_energy, 1000, ())
):
    program = jax.jit(function).lower(problem.start["mu"], *given).compile().as_text()
    part, whole = (f"f64[{{count}},2]" in program for count in (rows // {count}, rows))
    assert part and not whole and "all-reduce" in program, function.__name__
every = np.arange(2000), np.full(2000, 1 / 2000)
program = jax.jit(problem.gradient).lower(problem.start["mu"], *every).compile().as_text()
shapes = re.findall(r"= f64\\[([,\\d]*)\\]\\S* gather\\(", program)
gathered = [np.prod([int(size) for size in shape.split(",")]) for shape in shapes]
assert gathered and max(gathered) == 2 * 2000 // {count}, shapes  # two features of the device's rows
print(json.dumps(found), flush=True)
{after}
"""


def run(code, count):
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={count}"
    environment = {**os.environ, "XLA_FLAGS": flags, "PYTHONPATH": f"{TESTS}:{os.environ.get('PYTHONPATH', '')}"}
    return subprocess.Popen([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, text=True)


KINDS = [("joint_svrg", "files"), *((kind, "memory") for kind in ("naive", "cv", "joint_svrg", "joint_adaptive"))]


@pytest.mark.parametrize("cases", [KINDS[:1], pytest.param(KINDS[1:], marks=pytest.mark.long)])
def test_four_devices_give_the_parameters_of_one(cases):
    process = run(FIT.format(before="", after="", count=4, cases=cases), 4)
    out, _ = process.communicate()
    assert process.returncode == 0
    found = json.loads(out.splitlines()[-1])
    assert len(found) == len(cases)
    assert max(found.values()) < 1e-10, found


BEGIN = """
jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize("localhost:{port}", 2, {index})
"""


@pytest.mark.long
def test_two_processes_give_the_parameters_of_one():
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    end, cases = "jax.distributed.shutdown()", [("joint_svrg", "memory")]
    begin = [BEGIN.format(port=port, index=index) for index in range(2)]
    pair = [run(FIT.format(before=one, after=end, count=2, cases=cases), 1) for one in begin]
    for process in pair:
        found = json.loads(process.communicate(timeout=300)[0].splitlines()[-1])
        assert process.returncode == 0
        assert found["joint_svrg memory"] < 1e-10
