"""Runs of the command line in processes of their own, forked from one that has imported the libraries."""

import multiprocessing
import os
import subprocess
import sys
import traceback

_FORK = multiprocessing.get_context("forkserver")
_FORK.set_forkserver_preload(["lowvar.cli", "jax", "numpyro", "pandas", "pyarrow.parquet", "matplotlib.figure"])


def lowvar(folder, *words):
    """As ``lowvar WORDS`` in ``folder``: exit code, stdout and stderr."""
    out, err = (folder.parent / f"{folder.name}-{name}" for name in ("stdout", "stderr"))
    process = _FORK.Process(target=_main, args=(folder, [str(word) for word in words], out, err))
    process.start()
    process.join()
    return subprocess.CompletedProcess(words, process.exitcode, out.read_text(), err.read_text())


def _main(folder, words, out, err):
    os.chdir(folder)
    for number, path in ((1, out), (2, err)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", closefd=False)
    sys.argv = ["lowvar", *words]
    from lowvar.cli import main

    code = 1
    try:
        code = main(words)
    except SystemExit as done:
        code = done.code
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code or 0)
