"""The environment of tests and doctests, set before JAX is imported."""

import os
import tempfile
from importlib.metadata import version

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Most tests compile a program and run it once: XLA's and LLVM's optimisations cost more than they save.
# `make test-long` and `make kernels` run as users do.
QUICK = (
    "--xla_cpu_multi_thread_eigen=false --xla_backend_optimization_level=0"
    " --xla_cpu_parallel_codegen_split_count=1 --xla_llvm_disable_expensive_passes=true"
)
if tuple(map(int, version("jaxlib").split(".")[:2])) < (0, 11):  # later ones end at a flag that they do not know
    QUICK += " --xla_cpu_use_fusion_emitters=false"
os.environ.setdefault("XLA_FLAGS", QUICK)
# The same small programs are compiled by many tests, in both workers and in the processes that tests start.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", os.path.join(tempfile.gettempdir(), f"lowvar-tests-{os.getuid()}"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")

if __name__ == "__main__":
    print(QUICK)  # for `make smoke`
