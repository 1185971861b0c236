"""Runs tests as on other processors: ``cpus.py SETTINGS COMMAND``, such as ``cpus.py 'sse4 avx2' pytest tests/lowvar``.

The libraries choose the code of their sums and products by the processor: results differ in the last digits, and a test
that passes on one processor may fail on another. A setting limits all of them to the instructions of one kind of
processor; with it go a number of threads, and an order of the tests. Each setting prints one line, also one that this
processor cannot run; the output of the others is in logs/test, after the command with its environment. The exit code is
1 if one of them failed.
"""

import runpy
import shlex
import sys
from pathlib import Path
from typing import NamedTuple

import numpy._core._multiarray_umath as umath
from part import main as part


class Setting(NamedTuple):
    """A kind of processor.

    Attributes:
        needs: the instructions without which it cannot run, as NumPy names them.
        openblas: the kernel of NumPy's, SciPy's and, through SciPy, XLA's linear algebra.
        xla: the instructions of XLA's programs,
        optimised: which have multiplication and addition fused, as a user's have; without, they hardly differ between
            processors.
        aten: those of PyTorch's kernels,
        mkl: and of its linear algebra.
        numpy: beginnings of the names of those that NumPy's own loops may not use.
        threads: of all of them.
        seed: of the order of the tests; 0 for the usual order.
    """

    needs: str
    openblas: str
    xla: str
    optimised: bool
    aten: str
    mkl: str
    numpy: tuple[str, ...]
    threads: int
    seed: int

    def environment(self):
        """Variables, as words of a shell."""
        left = [name for name in umath.__cpu_dispatch__ if umath.__cpu_features__[name] and name.startswith(self.numpy)]
        threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NPROC"), self.threads)
        several = "true" if self.threads > 1 else "false"
        flags = [runpy.run_path(str(CONFTEST))["QUICK"], f"--xla_cpu_multi_thread_eigen={several}"]  # the last counts
        flags += ["--xla_backend_optimization_level=1"] * self.optimised
        values = {
            "OPENBLAS_CORETYPE": self.openblas,
            "XLA_FLAGS": " ".join([*flags, f"--xla_cpu_max_isa={self.xla}"]),
            "ATEN_CPU_CAPABILITY": self.aten,
            "MKL_CBWR": self.mkl,
            "MKL_DYNAMIC": "false",  # which would take no more threads than cores
            "NPY_DISABLE_CPU_FEATURES": " ".join(left),
            # else a thread spins while it waits for one that another worker has displaced: 90 times the CPU seconds
            "OMP_WAIT_POLICY": "PASSIVE",
            **threads,
        }
        return [f"{name}={shlex.quote(str(value))}" for name, value in values.items() if value != ""]


CONFTEST = Path(__file__).parents[1] / "conftest.py"
WIDEST = ("AVX512", "X86_V4")
WIDE = ("AVX", "FMA", "F16C", "XOP", "X86_V3", "X86_V4")
SETTINGS = {
    "sse4": Setting("SSE42", "Nehalem", "SSE4_2", False, "default", "COMPATIBLE", WIDE, 1, 0),
    "avx2": Setting("AVX2", "Haswell", "AVX2", True, "avx2", "AVX2", WIDEST, 2, 1),
    "avx512": Setting("AVX512_SKX", "SkylakeX", "AVX512", False, "avx512", "AUTO", (), 4, 2),
}


def main(names, command):
    """The exit code."""
    codes = []
    for name in names:
        setting = SETTINGS[name]
        if not umath.__cpu_features__.get(setting.needs):
            print(f"{'ok':<7}{name:<10}     0 s   skipped: this processor lacks {setting.needs}", flush=True)
            continue
        order = f" --random-order-seed={setting.seed}" if setting.seed and "pytest" in command else ""
        codes.append(part(name, f"set -x; env {' '.join(setting.environment())} {command}{order}"))
    return int(any(codes))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1].split(), " ".join(sys.argv[2:])))
