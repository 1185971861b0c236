"""What a Slurm says of its jobs."""

import subprocess


def asked(*command):
    """What a command of Slurm says."""
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout


def accounting():
    """The jobs in accounting: a dictionary of columns each."""
    columns = ["JobIDRaw", "State", "ReqMem", "TimelimitRaw", "AllocTRES"]
    lines = asked("sacct", "-X", "--parsable2", "--noheader", "--starttime", "now-1day", "--format", ",".join(columns))
    return [dict(zip(columns, line.split("|"), strict=True)) for line in lines.splitlines()]


def cpu():
    """The seconds of CPU that all steps of all jobs took."""
    total = 0.0
    for line in asked("sacct", "--noheader", "--starttime", "now-1day", "--format", "JobID,TotalCPU").splitlines():
        job, *time = line.split()
        if "." in job and time:
            parts = [float(part) for part in time[0].replace("-", ":").split(":")]
            total += sum(part * 60**place for place, part in enumerate(reversed(parts)))
    return total
