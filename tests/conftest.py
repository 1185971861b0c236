"""Strict numerics for every test: float64 unless asked, no silent rank promotion."""

import contextlib
import ctypes
import gc
import os
import shutil
import signal
import subprocess
from pathlib import Path

import numpy as np
import pytest

REPOSITORY = Path(__file__).parents[1]
FORGETS_FROM = 1.8  # GB that a worker may hold before it forgets compiled programs
LIMIT = {"GB": FORGETS_FROM}
MOST = (
    4.5  # GB that a worker may take: 2.9 was measured, 3.7 of the long tests, and other machines allocate differently
)


def pytest_configure():
    import jax

    # a background job and `nohup` ignore them, and what tests start would inherit it
    for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)

    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_numpy_rank_promotion", "raise")


# A worker takes whole files (`--dist loadfile`), so fixtures are made once; the longest files go first.
LONGEST = (
    "test_workflow.py", "vi/test_estimators.py", "test_figures_contract.py", "test_docs.py", "test_fit.py",
    "test_api.py", "test_models.py", "test_example_package.py", "integrals/test_integrators.py", "test_auto.py",
    "test_local_latents.py", "test_torch_model.py", "test_fit_guides.py", "test_fit_memory.py", "test_fit_files.py",
    "test_fit_ends.py", "test_fit_life.py", "search/test_search_solvers.py",
    "test_kills.py", "test_search_engine.py", "test_minimize.py", "test_varying_particles.py", "test_tuning.py",
    "test_cli.py", "test_pages.py", "test_integrate.py", "test_minimize_loop.py",
)  # fmt: skip


def pytest_collection_modifyitems(items):
    ranks = {name: position for position, name in enumerate(LONGEST)}
    items.sort(
        key=lambda item: next((r for name, r in ranks.items() if item.path.as_posix().endswith(name)), len(ranks))
    )


def pytest_collection_finish():
    """The libraries' objects stay: a collection need not look at them again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


@pytest.fixture(autouse=True)
def _forget_compiled_programs():
    """Clears compiled programs, which take more memory than all arrays, once a worker holds too many of them."""
    yield
    if memory("VmRSS") < LIMIT["GB"]:
        return
    import jax

    jax.clear_caches()
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):  # glibc alone gives freed memory back on request
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    LIMIT["GB"] = max(FORGETS_FROM, memory("VmRSS") + 0.5)  # so that programs are kept for a while


def memory(what="VmHWM"):
    """The memory that this process holds (``VmRSS``), or the most that it has held (``VmHWM``), GB."""
    status = Path("/proc/self/status")
    if status.is_file():
        return int(status.read_text().split(f"{what}:")[1].split()[0]) / 2**20
    import resource  # macOS counts bytes

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**30


EARLIER = [0.0]  # GB, peaks that the system has been told to forget


@pytest.fixture
def most_taken():
    """``() -> GB``: the most that the process has held since the test began, beyond what it held then."""
    EARLIER.append(memory())
    with contextlib.suppress(OSError):  # where Linux does not forget the peak, this is by how much it grows
        Path("/proc/self/clear_refs").write_text("5")
    held = memory()
    return lambda: memory() - held


def peak():
    """The most memory that this process has held, GB."""
    return max(memory(), *EARLIER)


PEAKS = {}  # of the workers, as they end


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session):
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["peak"] = peak()
    elif any(gigabytes > MOST for gigabytes in PEAKS.values()) and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    if "peak" in getattr(node, "workeroutput", {}):
        PEAKS[node.gateway.id] = node.workeroutput["peak"]


def pytest_terminal_summary(terminalreporter):
    used = PEAKS or {"main": peak()}
    terminalreporter.write_line(f"peak memory: {', '.join(f'{used[one]:.1f}' for one in sorted(used))} GB")
    if max(used.values()) > MOST and PEAKS:
        terminalreporter.write_line(
            f"a worker took more than {MOST:g} GB: split or shrink the largest module", red=True
        )


THREADS = int(os.environ["OMP_NUM_THREADS"])  # before a test of the command line changes it


@pytest.fixture(autouse=True)
def _threads_of_torch():
    import sys

    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(THREADS)


@pytest.fixture
def rng():
    """Random numbers, the same in any order of the tests: no test draws from a generator that others draw from."""
    return np.random.default_rng(10)


@pytest.fixture
def repository():
    """The repository's root."""
    return REPOSITORY


@pytest.fixture
def mirror():
    """The folder of raw data files, or a skip."""
    folder = os.environ.get("LOWVAR_DATA_MIRROR")
    if not folder or not Path(folder).is_dir():
        pytest.skip("LOWVAR_DATA_MIRROR is not set to a folder")
    return Path(folder)


@pytest.fixture
def tiny_disk(tmp_path):
    """A folder with room for 16 KiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", str(folder)]
    if os.geteuid() != 0 or shutil.which("mount") is None or subprocess.run(command, check=False).returncode:
        pytest.skip("cannot mount a small file system here")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)
