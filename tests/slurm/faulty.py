"""`lowvar` as the jobs of test_slurm.py find it on their path: it keeps a record of each call, and has faults.

The folder LOWVAR_FAULTS has `plan.json`, the fault of each run by its folder, and gets a line in `calls` for each call.
"""

import json
import os
import shutil
import sys
import time
from pathlib import Path

HELD = 2500  # MB, more than the first attempt of a run may take and less than the second

place = Path(os.environ["LOWVAR_FAULTS"])
words = ["cpu" if before == "--device" else word for before, word in zip(sys.argv, sys.argv[1:], strict=False)]
out = Path(words[words.index("--out") + 1]) if "--out" in words else None
task = os.environ.get("SLURM_ARRAY_TASK_ID")
record = {
    "words": words,
    "of": "/".join(out.parts[-2:]) if out else words[0],
    "job": os.environ["SLURM_JOB_ID"],
    "task": f"{os.environ['SLURM_ARRAY_JOB_ID']}_{task}" if task else os.environ["SLURM_JOB_ID"],
    "gpus": os.environ.get("CUDA_VISIBLE_DEVICES"),
    "asked": sys.argv[sys.argv.index("--device") + 1] if "--device" in sys.argv else None,
    "resumes": bool(out and (out / "checkpoint.npz").exists()),
    "mark": os.environ.get("LOWVAR_SLURM"),
    "time": time.time(),
}
with (place / "calls").open("a") as file:
    file.write(json.dumps(record) + "\n")

fault = json.loads((place / "plan.json").read_text()).get(record["of"])
first = fault and not (place / fault).exists()
if first:
    (place / fault).write_text(record["task"])
if fault == "memory":
    held = b"\1" * (HELD * 2**20)
elif fault == "cancel" and first:
    time.sleep(10_000)
elif fault == "hang" and first:
    from lowvar.core import loop

    save = loop.Checkpoint.save

    def save_and_hang(self, state, at):
        save(self, state, at)
        shutil.copy(self._path, place / "checkpoint.npz")
        time.sleep(10_000)

    loop.Checkpoint.save = save_and_hang
    words += ["--checkpoint-every", "0"]

from lowvar.cli import main  # noqa: E402

sys.exit(main(words))
