"""Runs each job as Kubernetes does: in an empty folder, with the deployed workflow and what the storage hands out.

``APART_KILL`` names a file: once it appears, the job that runs is killed, and a copy ``{name}.seen`` is kept.
"""

import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

from snakemake_interface_executor_plugins.executors.base import SubmittedJobInfo
from snakemake_interface_executor_plugins.executors.remote import RemoteExecutor
from snakemake_interface_executor_plugins.settings import CommonSettings

common_settings = CommonSettings(
    non_local_exec=True,
    implies_no_shared_fs=True,
    job_deploy_sources=True,
    auto_deploy_default_storage_provider=False,
)


class Executor(RemoteExecutor):
    def __post_init__(self):
        self.to_kill = os.environ.get("APART_KILL")

    def run_job(self, job):
        folder = tempfile.mkdtemp(prefix="apart-")
        process = subprocess.Popen(["bash", "-c", self.format_job_exec(job)], cwd=folder, start_new_session=True)
        self.report_job_submission(SubmittedJobInfo(job, aux={"process": process, "folder": folder}))

    async def check_active_jobs(self, active_jobs):
        for info in active_jobs:
            process = info.aux["process"]
            if self.to_kill and Path(self.to_kill).is_file():
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                shutil.copy(self.to_kill, f"{self.to_kill}.seen")
                self.to_kill = None
            if process.poll() is None:
                yield info
                continue
            shutil.rmtree(info.aux["folder"])
            if process.returncode == 0:
                self.report_job_success(info)
            else:
                self.report_job_error(info, msg=f"exit code {process.returncode}. ")

    def cancel_jobs(self, active_jobs):
        for info in active_jobs:
            os.killpg(info.aux["process"].pid, signal.SIGKILL)
