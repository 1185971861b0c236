"""The laboratory's commands, which join ``lowvar`` by the entry point ``lowvar.commands``.

Their libraries are imported by the command that needs them, not here.
"""

import sys
import time
from functools import partial

from lowvar.cli import OWN, columns, command, configure, device_options, job_options, listed, only_for
from lowvar.errors import UserError, positive, require, whole
from lowvar_studies import PAGES

_NEEDED = "pydantic", "yaml", "pyarrow", "requests", "sklearn"  # of the extra `workflow`; the rest is named where used


def add(commands, lists) -> None:
    """Adds the commands to argparse's ``commands``, and the collections that ``lowvar list`` shows to ``lists``."""

    def new(name, do, help):
        return command(commands, name, partial(_checked, name, do), help)

    sub = new("fetch", _fetch, "download raw data files and check their hashes")
    sub.add_argument("datasets", nargs="+", metavar="DATASET", help="its name, see: lowvar list datasets")
    sub.add_argument("--raw", default="data/raw", help="folder of raw files (default: %(default)s)")

    sub = new("prepare", _prepare, "convert raw files to arrays")
    sub.add_argument("dataset", metavar="DATASET", help="its name, see: lowvar list datasets")
    sub.add_argument("--scaling", default="minmax", help="minmax, standard or none; for images unit or lenet")
    sub.add_argument("--raw", default="data/raw", help="folder of raw files (default: %(default)s)")
    sub.add_argument("--out", help="npz file (default: data/prepared/DATASET-SCALING.npz)")

    sub = new("run", partial(_job, "run"), "run one method on one problem of an experiment")
    _run_options(sub)
    sub.add_argument("--study", metavar="STUDY.parquet", help="study of a tuned method (default: the workflow's path)")
    sub.add_argument("--prepared", metavar="NPZ", help="prepared data behind samples (default: the workflow's path)")
    sub.add_argument("--checkpoint-every", type=float, default=10.0, metavar="SECONDS")

    sub = new("tune", partial(_job, "tune"), "tune the settings of a method of an experiment")
    _run_options(sub)
    sub.add_argument("--checkpoint-every", type=float, default=10.0, metavar="SECONDS", help="in each trial")

    sub = new("sample", partial(_job, "sample"), "draw the samples from which an experiment estimates its integrals")
    _experiment_options(sub)
    sub.add_argument("--problem", required=True, help="a key of the experiment's problems")
    job_options(sub)

    sub = commands.choices["decompose"]  # the library's, which takes a model of your own
    experiment = sub.add_argument_group("for an experiment")
    experiment.add_argument("--scale", help="smoke, quick or paper (default: quick)")
    experiment.add_argument("--problem", help="problem of the experiment (default: the only one)")
    sub.set_defaults(do=partial(_decompose, sub.get_default("do")))

    sub = new("table", _table, "gather an experiment's runs into tables")
    _experiment_options(sub)
    _result_options(sub)
    sub.add_argument("--seconds", action="store_true", help="write the table of wall times instead")

    sub = new("figure", _figure, "draw figures of an experiment")
    sub.add_argument("kinds", nargs="+", metavar="KIND", help="a figure of the experiment, see: lowvar list figures")
    _experiment_options(sub)
    _result_options(sub)

    sub = new("claims", _claims, "check published claims against an experiment's results")
    _experiment_options(sub)
    _result_options(sub)
    sub.add_argument(
        "--claims", help="YAML file (default: NAME.yaml in a folder claims beside the experiment or its folder)"
    )

    sub = new("keep", _keep, "write an experiment's claims, figures and wall times to a page")
    _experiment_options(sub)
    _result_options(sub)
    sub.add_argument("--out", default=PAGES, help="folder (default: %(default)s)")
    sub.add_argument(
        "--draft",
        action="store_true",
        help="also from several commits, changed files, or another scale than paper",
    )

    sub = new("pages", _pages, "list kept pages: verdicts, commit, CPU minutes, and whether code has changed since")
    sub.add_argument("pages", nargs="*", metavar="PAGE", help="default: all with rows")
    sub.add_argument("--folder", default=PAGES, help="of the pages (default: %(default)s)")
    sub.add_argument("--check", action="store_true", help="judge all claims again from the kept rows, and compare")
    sub.add_argument(
        "--judge", action="store_true", help="judge all claims as they are stated now, and write the verdicts"
    )
    sub.add_argument("--draw", metavar="FOLDER", help="draw all figures again from the kept rows")
    sub.add_argument("--redraw", action="store_true", help="write the pages' pictures and tables again from the rows")
    sub.add_argument("--fill", metavar="FILE.md", nargs="+", default=[], help="fill in the numbers that it names")

    sub = new("remake", _remake, "make a kept page, or one of its claims or figures, again from nothing, and compare")
    sub.epilog = "Jobs of an earlier remake that are current do not run again; for all, remove the folder --results."
    sub.add_argument("page", metavar="PAGE", help="its name, such as vvcv_step")
    sub.add_argument("--claim", metavar="ID", help="one claim of the page alone")
    sub.add_argument("--figure", metavar="KIND", help="one figure of the page alone")
    sub.add_argument("--seed", type=int, help="another seed than the page's: do the verdicts stand?")
    sub.add_argument("--folder", default=PAGES, help="of the pages (default: %(default)s)")
    sub.add_argument("--out", default="build/remade", help="folder of pictures (default: %(default)s)")
    sub.add_argument("--workers", type=int, default=1, help="number of processes at a time (default: %(default)s)")
    _result_options(sub, default="build/remade/results/PAGE")

    sub = new("new-study", _new_study, "write an experiment file of your own, with a comment for each key")
    sub.add_argument("experiment", metavar="EXPERIMENT.yaml", help="the file to write; its name is the study's")

    sub = new("study", _make_study, "run an experiment on this machine, without Snakemake")
    _experiment_options(sub)
    _result_options(sub)
    sub.add_argument("--workers", type=int, default=1, help="number of processes at a time (default: %(default)s)")
    device_options(sub)

    sub = new("schema", _schema, "print the JSON schema of experiment files, for editors")
    sub.add_argument("--page", action="store_true", help="print the page of all files and columns instead")

    lists |= {
        "datasets": (listed("lowvar_studies.datasets.catalogue", "DATASETS"), _datasets),
        "models": (listed("lowvar_studies.models.catalogue", "MODELS"), None),
        "functions": (listed("lowvar_studies.functions.catalogue", "FUNCTIONS"), None),
        "integrals": (listed("lowvar_studies.integrals.catalogue", "PROBLEMS"), None),
        "figures": (partial(_checked, "list figures", listed("lowvar_studies.jobs.load", "FIGURES")), None),
    }


def _checked(name, do, *args):
    """Runs a command, if its packages are installed."""
    for package in _NEEDED:
        require(f"lowvar {name}", package, "workflow")
    return do(*args)


def _experiment_options(sub):
    sub.add_argument("experiment", metavar="EXPERIMENT.yaml", help="the experiment's file")
    sub.add_argument("--scale", default="quick", help="smoke, quick or paper (default: %(default)s)")


def _run_options(sub):
    _experiment_options(sub)
    sub.add_argument("--problem", required=True, help="a key of the experiment's problems")
    sub.add_argument("--method", required=True, help="a key of the experiment's methods")
    sub.add_argument("--backend", help="jax or torch (default: the experiment's first)")
    sub.add_argument("--checkpoints", metavar="FOLDER", help="folder of the checkpoint (default: that of the results)")
    job_options(sub)


def _result_options(sub, default="results/SCALE/NAME"):
    sub.add_argument("--results", help=f"folder of the experiment's results (default: {default})")
    sub.add_argument("--data", default="data", help="folder of raw and prepared data (default: %(default)s)")


def _fetch(args):
    from lowvar_studies.datasets.catalogue import get
    from lowvar_studies.datasets.fetch import fetch

    for dataset in [get(name) for name in args.datasets]:  # reports a wrong name before any download
        for path in fetch(dataset, raw=args.raw):
            print(path)


def _prepare(args):
    from lowvar_studies.datasets.catalogue import get
    from lowvar_studies.datasets.fetch import verify
    from lowvar_studies.datasets.prepare import prepare

    if args.scaling == "lenet" and "lenet" in (dataset := get(args.dataset)).scalings:
        verify(dataset, args.raw)  # reports a missing file first
        print(f"lowvar: lenet trains a small network on {args.dataset}: about two minutes on a CPU", file=sys.stderr)
    print(prepare(args.dataset, scaling=args.scaling, raw=args.raw, out=args.out))


def _study(args, *where):
    """The study of a command; ``where`` are the folders of its results and data."""
    from lowvar_studies.jobs.study import Study

    return Study.load(args.experiment, args.scale, *where)


def _job(kind, args):
    """Runs the job that a command names; checks its names and sets up the numerical libraries first."""
    study, backend, names, more = _study(args), "jax", [args.problem], {}
    if kind in ("run", "tune"):
        positive("--checkpoint-every", args.checkpoint_every, or_zero=True)
        backend = args.backend or study.experiment.backends[0]
        names += [args.method, backend]
        more = {"checkpoints": args.checkpoints, "checkpoint_every": args.checkpoint_every}
    if kind == "run":
        more |= {"study": args.study, "prepared": args.prepared}
    spec = (job := study.job(kind, *names)).spec
    used = backend != "torch" or kind != "run" or _uses_torch(spec)
    configure(args, backend=backend, dtype=study.experiment.dtype(args.problem), used=used)
    from lowvar_studies.jobs import commands as jobs

    print(getattr(jobs, kind)(job, args.data, args.out, **more))


def _uses_torch(run) -> bool:
    """Whether a run with PyTorch as its backend computes with it: lowvar's integrators say which do."""
    from lowvar.integrals import INTEGRAL

    name = getattr(run.method, "integrator", None)
    return name not in INTEGRAL.own or "torch" in INTEGRAL.about(name).packages


def _decompose(of_model, args):
    """``of_model`` for a model of your own, else the decomposition of an experiment."""
    if ":" in args.target.replace(":\\", "") or args.target.endswith(".py"):
        instead = f"{args.target} is a model of your own: leave it out"
        only_for("an experiment", args, ("scale", "problem"), instead)
        of_model(args)
    else:
        only_for("a model of your own", args, OWN, f"the settings of {args.target} apply instead")
        _checked("decompose", _decompose_experiment, args)


def _decompose_experiment(args):
    args.experiment, args.scale = args.target, args.scale or "quick"
    if args.problem is None:
        problems = _study(args).experiment.decompositions()
        if len(problems) != 1:
            raise UserError(f"--problem: name one (known: {', '.join(problems)})" if problems
                            else f"{args.target}: this experiment has no decomposition")  # fmt: skip
        (args.problem,) = problems
    _job("decompose", args)


def _table(args):
    from lowvar_studies.jobs import commands as jobs

    if not args.seconds:
        configure(args, backend="jax", dtype="float64")
    for path in jobs.tables(_study(args, args.results, args.data), seconds=args.seconds):
        print(path)


def _figure(args):
    from lowvar_studies.jobs import commands as jobs

    for path in jobs.figures(_study(args, args.results, args.data), *args.kinds):
        print(path)


def _claims(args):
    from lowvar_studies.jobs import commands as jobs

    print(jobs.claims(_study(args, args.results, args.data), args.claims))


def _keep(args):
    from lowvar_studies.reports.keep import keep

    configure(args, backend="jax", dtype="float64")  # an optimum is not found in single precision
    for path in keep(_study(args, args.results, args.data), args.out, draft=args.draft):
        print(path)


def _pages(args):
    from pathlib import Path

    from lowvar_studies.reports.front import filled, picture
    from lowvar_studies.reports.pages import Page, listed, names, some_names, write_changed

    pages = [Page.load(args.folder, name) for name in args.pages or some_names(args.folder)]
    wrong, start = 0, (time.monotonic(), time.process_time())
    for page in pages:
        try:
            wrong += _check_page(page, args)
        except UserError as error:
            if len(pages) == 1:
                raise
            print(f"{page.name}: {error}")
            wrong += 1
    if args.check:
        wall, cpu = time.monotonic() - start[0], time.process_time() - start[1]
        jobs, minutes = sum(len(page.about["jobs"]) for page in pages), sum(page.minutes for page in pages)
        print(f"no run was made: all is from the kept rows, in {cpu:.1f} CPU seconds, {wall:.1f} s in all")
        again = f"lowvar remake {pages[0].name if len(pages) == 1 else 'PAGE'}{pages[0].option}"
        print(f"the {jobs} jobs behind these rows took {minutes:.1f} CPU minutes; to run them again: {again}")
    every = {name: Page.load(args.folder, name) for name in (names(args.folder) if args.fill else ())}
    for path in map(Path, args.fill):
        if not path.is_file():
            raise UserError(f"--fill {path}: no such file")
        text = path.read_text(encoding="utf-8")
        now = filled(text, every, f"--fill {path}")
        beside = {path.with_name(name): content for name, content in picture(now, every).items()}
        for file in write_changed({path: now.encode(), **beside}):
            print(file)
    if not (args.judge or args.draw or args.redraw or args.check or args.fill):
        print(listed(pages))
    if wrong:
        sys.exit(1)


def _check_page(page, args) -> bool:
    """Judges, draws and checks a page, as the options say; returns whether a check found something."""
    if args.judge:
        for path in page.judge():
            print(path)
    for path in page.redraw() if args.redraw else ():
        print(path)
    if args.draw:
        print(f"{page.name}: {len(page.draw(args.draw)) // 3} figures drawn in {args.draw}")
    start = time.monotonic()
    found = page.check() if args.check else []
    if args.check:
        same, claims = "not all the same" if found else "the same", len(page.verdicts)
        said = f"{claims} verdicts and intervals computed again" if claims else "no claims; its figures' rows read"
        source = "kept rows (those of its own table are not)" if page.lacks_rows_of_its_own_table else "kept rows"
        print(f"{page.name}: {said} from the {source}, in {time.monotonic() - start:.1f} s: {same}")
        print(*(f"  {text}" for text in found), sep="\n", end="\n" if found else "")
    return bool(found)


def _remake(args):
    from lowvar_studies.reports.pages import Page
    from lowvar_studies.reports.remake import remake

    configure(args, backend="jax", dtype="float64")
    workers = whole("--workers", args.workers, 1)
    seed = None if args.seed is None else whole("--seed", args.seed, 0)
    made = remake(Page.load(args.folder, args.page), args.claim, args.figure, seed=seed, out=args.out,
                  results=args.results, data=args.data, workers=workers)  # fmt: skip
    print(*made.lines, sep="\n")
    if not made.agree:
        sys.exit(1)


def _new_study(args):
    import re
    from pathlib import Path

    from lowvar.core.files import write_text
    from lowvar_studies.jobs.common_spec import NAME

    path = Path(args.experiment)
    if path.suffix != ".yaml" or not re.fullmatch(NAME, path.stem):
        raise UserError(f"{path}: name the file with letters, digits and underscores, and the ending .yaml")
    if path.exists() or path.is_symlink():
        raise UserError(f"{path}: it exists, and stays as it is; give another name")
    text = Path(__file__).with_name("new_study.yaml").read_text(encoding="utf-8")
    write_text(path, re.sub(r"\bNAME\b", path.stem, text))
    print(path)


def _make_study(args):
    from lowvar_studies.jobs.local import make
    from lowvar_studies.reports.claims import load

    workers, study = whole("--workers", args.workers, 1), _study(args, args.results, args.data)
    if study.claims:
        load(study.claims)  # a mistake in them is said before anything runs
    ran, total = make(study, workers=workers, options=("--device", args.device, "--threads", str(args.threads)))
    print(f"{study.name} at scale {study.scale}: {ran} commands ran, {total - ran} had nothing to do")
    for what in ("tables", "figures"):
        print(f"{what + ':':9}{study.results / what}")
    if study.claims:
        print(f"claims:  {study.verdicts}")


def _schema(args):
    import json

    from lowvar_studies.jobs.load import json_schema
    from lowvar_studies.reports.schema import page

    print(page().rstrip("\n") if args.page else json.dumps(json_schema(), indent=2))


def _datasets():
    """The data sets with their scalings and titles."""
    from lowvar_studies.datasets.catalogue import DATASETS

    scalings = {name: ", ".join(one.scalings) for name, one in DATASETS.items()}
    width = max(map(len, scalings.values()))
    return columns({name: f"{scalings[name]:{width}}  {one.title}" for name, one in DATASETS.items()})
