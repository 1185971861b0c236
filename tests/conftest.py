"""Strict numerics for every test: float64 unless asked, no silent rank promotion."""

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")

import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]


def pytest_configure():
    import jax

    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_numpy_rank_promotion", "raise")
    # the same small programs are compiled by many tests
    jax.config.update("jax_compilation_cache_dir", str(Path(tempfile.gettempdir()) / f"lowvar-tests-{os.getuid()}"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)


@pytest.fixture(autouse=True)
def _one_torch_thread():
    import sys

    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)


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
