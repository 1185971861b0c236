# Checks before anything is read. They exit with one sentence; a WorkflowError would add files and lines.

import sys
from pathlib import Path

ROOT = Path(workflow.current_basedir.get_path_or_uri(secret_free=True)).parents[1].resolve()


def workflow_profile(arguments):
    """The value of ``--workflow-profile`` or an abbreviation that argparse allows; None if missing."""
    values = []
    for position, argument in enumerate(arguments):
        option, equals, value = argument.partition("=")
        if option.startswith("--workflow-p") and "--workflow-profile".startswith(option):
            values += [value] if equals else arguments[position + 1 : position + 2]
    return values[-1] if values else None


def check_profile(name, started_in, snakefile_in):
    """Exits if a workflow profile does not exist: Snakemake would ignore it and run everything on this machine."""
    places = [Path(started_in) / name, Path(started_in) / "profiles" / name, Path(snakefile_in) / "profiles" / name]
    if name != "none" and not any(place.exists() for place in places):
        known = sorted({path.parent.name for path in (ROOT / "profiles").glob("*/profile.yaml")})
        sys.exit(f"lowvar: --workflow-profile {name}: no such profile (known: {', '.join(known)}, none)")


if workflow.is_main_process:
    if (given := workflow_profile(sys.argv[1:])) is not None:
        check_profile(given, workflow.rundir, Path(workflow.rundir, workflow.main_snakefile).parent)

try:
    import lowvar  # noqa: F401
except ModuleNotFoundError:
    sys.exit(
        f"lowvar is not installed for {sys.executable}, which runs Snakemake: "
        f"run `make install` in {ROOT}, then `source .venv/bin/activate`"
    )

# Whether Snakemake was started with a Snakefile of ours. If it is another workflow that uses ours, the working directory
# is that workflow's: results go there, and experiments are read from here.
OWN = Path(workflow.rundir, workflow.main_snakefile).resolve() in (ROOT / "Snakefile", ROOT / "workflow/Snakefile")
HERE = Path() if OWN else ROOT
if not (ROOT / "workflow/experiments").is_dir():
    sys.exit(f"lowvar: {ROOT} has no workflow/experiments: name the Snakefile of a clone on this machine")

# `snakemake -s FOLDER/Snakefile` works from any folder and runs in FOLDER
if OWN and not Path("params.yaml").is_file():
    if workflow.overwrite_workdir is not None or not (ROOT / "params.yaml").is_file():
        sys.exit(
            f"lowvar: {Path.cwd()} has no params.yaml: run Snakemake in lowvar's folder; for other folders of results and data, use "
            "--config results=FOLDER data=FOLDER"
        )

    workdir: str(ROOT)
