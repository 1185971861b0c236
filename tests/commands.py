"""Runs of command lines in processes of their own, forked from one that has imported the libraries."""

import importlib
import multiprocessing
import os
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path

IMPORTED = ["lowvar.cli", "lowvar.user", "lowvar_studies.jobs.commands", "lowvar.vi.run.engine", "jax", "numpyro",
            "pandas", "pyarrow.parquet", "matplotlib.figure", "snakemake.cli"]  # fmt: skip
_FORK = multiprocessing.get_context("forkserver")
_FORK.set_forkserver_preload(IMPORTED)


def lowvar(folder, *words):
    """As ``lowvar WORDS`` in ``folder``: exit code, stdout and stderr."""
    return _ended(folder, words, "lowvar.cli")


def snakemake(folder, *words):
    """As ``snakemake WORDS`` in ``folder``."""
    return _ended(folder, words, "snakemake.cli")


def started(folder, *words, stdout=os.devnull, stderr=os.devnull, module="lowvar.cli"):
    """The process of ``lowvar WORDS`` in ``folder``, which goes on by itself."""
    process = _FORK.Process(target=_main, args=(folder, [str(word) for word in words], stdout, stderr, module))
    process.start()
    return process


def _ended(folder, words, module):
    with tempfile.TemporaryDirectory() as place:
        out, err = Path(place, "stdout"), Path(place, "stderr")
        process = started(folder, *words, stdout=out, stderr=err, module=module)
        process.join()
        return subprocess.CompletedProcess(words, process.exitcode, out.read_text(), err.read_text())


def _main(folder, words, out, err, module):
    os.chdir(folder)
    for number, path in ((1, out), (2, err)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", closefd=False)
    sys.argv = [module.partition(".")[0], *words]
    code = 1
    try:
        code = importlib.import_module(module).main(words)
    except SystemExit as done:
        code = done.code
        if isinstance(code, str):  # as the interpreter does
            sys.stderr.write(f"{code}\n")
            code = 1
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code or 0)
