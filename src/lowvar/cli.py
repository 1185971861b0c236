"""The command line. Heavy libraries are imported by the command that needs them, not here."""

import argparse
import importlib
import importlib.util
import os
import sys

from lowvar import __version__, xla
from lowvar.errors import UserError, positive, unknown_name, whole
from lowvar.terminal import exit_code

_LISTS = {  # modules and names of the collections that `list` shows
    "datasets": ("lowvar.datasets.catalogue", "DATASETS"),
    "models": ("lowvar.problems.catalogue", "MODELS"),
    "functions": ("lowvar.problems.blackbox.catalogue", "FUNCTIONS"),
    "integrals": ("lowvar.problems.integrals.catalogue", "PROBLEMS"),
    "estimators": ("lowvar.estimators", "GRADIENT"),
    "searches": ("lowvar.solvers.search", "SEARCH"),
    "integrators": ("lowvar.estimators", "INTEGRAL"),
    "guides": ("lowvar.problems.guides", "GUIDES"),
    "optimizers": ("lowvar.solvers.optimizers", "OPTIMIZERS"),
    "backends": ("lowvar.backends", "BACKENDS"),
    "figures": ("lowvar.studies.load", "FIGURES"),
}
# defaults of the options of `decompose` for a model of your own
_OWN = {"estimators": "naive,stl,cv,joint,joint_svrg,joint_adaptive", "batch_size": None, "steps": 5000,
        "step_size": 0.01, "seed": 0, "dtype": "float64", "guide": "mean_field", "rank": None}  # fmt: skip
_MOST_THREADS = 1024


def main(argv: list[str] | None = None) -> int:
    """Runs one command; returns the exit code: 0, or 2 for a ``UserError``."""
    args = argparse.Namespace(debug=False)

    def do():
        _parser().parse_args(argv, args)
        args.threads = _limit_threads(getattr(args, "threads", None))  # libraries read it when first imported
        args.do(args)

    return exit_code(do, debug=lambda: args.debug)


class _Parser(argparse.ArgumentParser):
    """Suggests the closest valid choice."""

    def error(self, message):
        if "invalid choice: " in message and "(choose from" in message:
            choice = message.split("invalid choice: ")[1].split(" (")[0].strip("'")
            choices = [word.strip(" '") for word in message.split("(choose from ")[1].rstrip(")").split(",")]
            kind = message.split(":")[0].removeprefix("argument ").lower()
            message = str(unknown_name(kind, choice, choices))
        print(f"lowvar: {message}", file=sys.stderr)
        sys.exit(2)


def _parser():
    parser = _Parser(prog="lowvar", description="Low-variance estimation, and the sources of the variance.")
    parser.add_argument("--version", action="version", version=f"lowvar {__version__}")
    parser.add_argument("--debug", action="store_true", help="show the traceback of a user error")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True, parser_class=_Parser)

    def command(name, do, help):
        sub = commands.add_parser(name, help=help, description=help)
        sub.set_defaults(do=do)
        return sub

    sub = command("fetch", _fetch, "download raw data files and check their hashes")
    sub.add_argument("datasets", nargs="+", metavar="DATASET")
    sub.add_argument("--raw", default="data/raw", help="folder of raw files (default: %(default)s)")

    sub = command("prepare", _prepare, "convert raw files to arrays")
    sub.add_argument("dataset")
    sub.add_argument("--scaling", default="minmax", help="minmax, standard or none; for images unit or lenet")
    sub.add_argument("--raw", default="data/raw", help="folder of raw files (default: %(default)s)")
    sub.add_argument("--out", help="npz file (default: data/prepared/DATASET-SCALING.npz)")

    sub = command("run", _run, "run one method on one problem of an experiment")
    _run_options(sub)
    sub.add_argument("--study", metavar="STUDY.parquet", help="study of a tuned method (default: the workflow's path)")
    sub.add_argument("--prepared", metavar="NPZ", help="prepared data behind samples (default: the workflow's path)")
    sub.add_argument("--checkpoint-every", type=float, default=10.0, metavar="SECONDS")

    sub = command("tune", _tune, "tune the settings of a method of an experiment")
    _run_options(sub)
    sub.add_argument("--checkpoint-every", type=float, default=10.0, metavar="SECONDS", help="in each trial")

    sub = command("sample", _sample, "draw the samples from which an experiment estimates its integrals")
    _experiment_options(sub)
    sub.add_argument("--problem", required=True)
    _job_options(sub)

    sub = command("decompose", _decompose, "decompose the variance of a gradient by source")
    sub.add_argument("target", metavar="TARGET", help="EXPERIMENT.yaml, or MODEL.py:FUNCTION with --data")
    sub.add_argument("--scale", help="scale of the experiment: smoke, quick or paper (default: quick)")
    sub.add_argument("--problem", help="problem of the experiment (default: the only one)")
    _job_options(sub)
    own = sub.add_argument_group("for a model of your own")
    own.add_argument("--estimators", help="comma-separated (default: {estimators})".format(**_OWN))
    own.add_argument("--batch-size", type=int, help="data rows in a batch (default: 100, or all if fewer)")
    own.add_argument("--steps", type=int, help="number of updates of the fit (default: {steps})".format(**_OWN))
    own.add_argument("--step-size", type=float, help="step size of Adam (default: {step_size})".format(**_OWN))
    own.add_argument("--seed", type=int, help="seed of fit and designs (default: {seed})".format(**_OWN))
    own.add_argument("--guide", help="variational family, see lowvar list guides (default: {guide})".format(**_OWN))
    own.add_argument("--rank", type=int, help="of the guide low_rank (default: the square root of the dimension)")
    own.add_argument("--dtype", choices=["float64", "float32"], help="precision (default: {dtype})".format(**_OWN))

    sub = command("integrate", _integrate, "estimate expectations from your own samples, with control variates")
    sub.add_argument("samples", metavar="SAMPLES.npz", help="with the arrays samples, scores and values")
    sub.add_argument("--method", default="auto", help="one of: lowvar list integrators (default: %(default)s)")
    sub.add_argument("--folds", type=int, help="number of folds for cross-fitting (default: 5 for auto only)")
    sub.add_argument("--chain", action="store_true", help="the samples are successive states of a Markov chain")
    sub.add_argument("--exact-scores", action="store_true", help="the scores are known to be right")
    sub.add_argument("--polynomial", action="store_true", help="the integrands are known to be polynomials")
    sub.add_argument("--seed", type=int, default=0)
    sub.add_argument("--out", metavar="TABLE.csv", help="also write the table to this file")
    sub.add_argument("--device", default="auto", choices=["auto", "cpu", "gpu"])
    sub.add_argument("--threads", type=int, help="threads of the numerical libraries (default: 1)")

    sub = command("table", _table, "gather an experiment's runs into tables")
    _experiment_options(sub)
    _result_options(sub)
    sub.add_argument("--seconds", action="store_true", help="write the table of wall times instead")

    sub = command("figure", _figure, "draw one figure of an experiment")
    sub.add_argument("kind", help="a figure of the experiment, see: lowvar list figures")
    _experiment_options(sub)
    _result_options(sub)

    sub = command("claims", _claims, "check published claims against an experiment's results")
    _experiment_options(sub)
    _result_options(sub)
    sub.add_argument("--claims", help="YAML file of claims (default: ../claims/NAME.yaml beside the experiments)")

    sub = command("keep", _keep, "write an experiment's claims, figures and wall times to a page")
    _experiment_options(sub)
    _result_options(sub)
    sub.add_argument("--out", default="docs/reproduction", help="folder (default: %(default)s)")

    sub = command("list", _list, "list the known names: " + ", ".join(_LISTS))
    sub.add_argument("what", nargs="?", choices=_LISTS, metavar="LIST")

    sub = command("schema", _schema, "print the JSON schema of experiment files, for editors")
    sub.add_argument("--page", action="store_true", help="print the page of all files and columns instead")
    return parser


def _experiment_options(sub):
    sub.add_argument("experiment", metavar="EXPERIMENT.yaml")
    sub.add_argument("--scale", default="quick", help="smoke, quick or paper (default: %(default)s)")


def _run_options(sub):
    _experiment_options(sub)
    sub.add_argument("--problem", required=True)
    sub.add_argument("--method", required=True)
    sub.add_argument("--backend", help="jax or torch (default: the experiment's first)")
    sub.add_argument("--checkpoints", metavar="FOLDER", help="folder of the checkpoint (default: that of the results)")
    _job_options(sub)


def _result_options(sub):
    sub.add_argument("--results", help="folder of the experiment's results (default: results/SCALE/NAME)")
    sub.add_argument("--data", default="data", help="folder of raw and prepared data (default: %(default)s)")


def _job_options(sub):
    sub.add_argument("--data", help="npz file")
    sub.add_argument("--out", help="folder for the results")
    sub.add_argument("--device", default="auto", choices=["auto", "cpu", "gpu"])
    sub.add_argument("--threads", type=int, help="threads of the numerical libraries (default: 1)")


def _fetch(args):
    from lowvar.datasets.catalogue import get
    from lowvar.datasets.fetch import fetch

    for dataset in [get(name) for name in args.datasets]:  # reports a wrong name before any download
        for path in fetch(dataset, raw=args.raw):
            print(path)


def _prepare(args):
    from lowvar.datasets.catalogue import get
    from lowvar.datasets.fetch import verify
    from lowvar.datasets.prepare import prepare

    if args.scaling == "lenet" and "lenet" in (dataset := get(args.dataset)).scalings:
        verify(dataset, args.raw)  # reports a missing file first
        print(f"lowvar: lenet trains a small network on {args.dataset}: about two minutes on a CPU", file=sys.stderr)
    print(prepare(args.dataset, scaling=args.scaling, raw=args.raw, out=args.out))


def _study(args, *where):
    """The study of a command; ``where`` are the folders of its results and data."""
    from lowvar.studies.study import Study

    return Study.load(args.experiment, args.scale, *where)


def _run_job(args, kind):
    """The job that a command names; checks its names and sets up the numerical libraries."""
    positive("--checkpoint-every", args.checkpoint_every, or_zero=True)
    study = _study(args)
    backend = args.backend or study.experiment.backends[0]
    (job := study.job(kind, args.problem, args.method, backend)).spec  # noqa: B018
    _configure(args, backend=backend, dtype=study.experiment.dtype(args.problem))
    return job


def _run(args):
    job = _run_job(args, "run")
    from lowvar.studies import jobs

    more = {"checkpoints": args.checkpoints, "checkpoint_every": args.checkpoint_every}
    print(jobs.run(job, args.data, args.out, args.study, prepared=args.prepared, **more))


def _tune(args):
    job = _run_job(args, "tune")
    from lowvar.studies import jobs

    more = {"checkpoints": args.checkpoints, "checkpoint_every": args.checkpoint_every}
    print(jobs.tune(job, args.data, args.out, **more))


def _sample(args):
    from lowvar.studies import jobs

    job = _study(args).job("sample", args.problem)
    _configure(args, backend="jax", dtype="float64")
    print(jobs.sample(job, args.data, args.out))


def _decompose(args):
    if ":" in args.target.replace(":\\", ""):
        _decompose_model(args)
        return
    if args.target.endswith(".py"):
        raise UserError(f"{args.target}: no function is named; write {args.target}:FUNCTION")
    from lowvar.studies import jobs
    from lowvar.studies.study import Study

    _only_for("a model of your own", args, _OWN, f"the settings of {args.target} apply instead")
    study = Study.load(args.target, args.scale or "quick")
    if args.problem is None:
        problems = study.experiment.decompositions()
        if len(problems) != 1:
            raise UserError(f"--problem: name one (known: {', '.join(problems)})" if problems
                            else f"{args.target}: this experiment has no decomposition")  # fmt: skip
        (args.problem,) = problems
    job = study.job("decompose", args.problem)
    job.spec  # noqa: B018
    _configure(args, backend="jax", dtype=study.experiment.dtype(args.problem))
    print(jobs.decompose(job, args.data, args.out))


def _only_for(whom, args, options, instead):
    """Rejects options that do not apply to this target."""
    names = [f"--{name.replace('_', '-')}" for name in options if getattr(args, name) is not None]
    if names:
        raise UserError(f"{', '.join(names)}: only for {whom}; {instead}")


def _decompose_model(args):
    instead = f"{args.target} is a model of your own: leave it out"
    _only_for("an experiment", args, ("scale", "problem"), instead)
    if args.data is None:
        raise UserError("--data: give an npz file whose names are the model's keyword arguments")
    vars(args).update({name: value for name, value in _OWN.items() if getattr(args, name) is None})
    _configure(args, backend="jax", dtype=args.dtype)
    from lowvar import user

    user.decompose(args)


def _integrate(args):
    torch = importlib.util.find_spec("torch") is not None  # kernels need it, polynomials do not
    _configure(args, backend="torch" if torch else "jax", dtype="float64")
    from lowvar import user

    user.integrate(args)


def _table(args):
    from lowvar.studies import jobs

    if not args.seconds:
        _configure(args, backend="jax", dtype="float64")
    for path in jobs.tables(_study(args, args.results, args.data), seconds=args.seconds):
        print(path)


def _figure(args):
    from lowvar.studies import jobs

    for path in jobs.figure(_study(args, args.results, args.data), args.kind):
        print(path)


def _claims(args):
    from lowvar.studies import jobs

    print(jobs.claims(_study(args, args.results, args.data), args.claims))


def _keep(args):
    from lowvar.studies.keep import keep

    for path in keep(_study(args, args.results, args.data), args.out):
        print(path)


def _list(args):
    for what, (module, collection) in _LISTS.items():
        if args.what not in (None, what):
            continue
        names = list(getattr(importlib.import_module(module), collection))
        print("\n".join(_described(what, names)) if args.what else f"{what}: {', '.join(names)}")


def _described(what, names):
    """One line for each name, with its description."""
    if what == "datasets":
        from lowvar.datasets.catalogue import DATASETS

        scalings = {name: ", ".join(DATASETS[name].scalings) for name in names}
        width = max(map(len, scalings.values()))
        descriptions = {name: f"{scalings[name]:{width}}  {DATASETS[name].title}" for name in names}
    elif what == "estimators":
        descriptions = {name: _estimates(name) for name in names}
    else:
        return names
    width = max(map(len, names))
    return [f"{name:{width}}  {descriptions[name].replace('``', '').replace('`', '')}" for name in names]


def _estimates(name):
    """The first line of an estimator's docstring, or why it cannot be used: it may be of another package."""
    import inspect

    from lowvar.estimators import GRADIENT

    try:
        return (inspect.getdoc(GRADIENT.get(name)) or "").split("\n")[0]
    except UserError as error:
        return f"cannot be used: {error}"


def _schema(args):
    import json

    from lowvar.studies.load import json_schema
    from lowvar.studies.schema import page

    print(page().rstrip("\n") if args.page else json.dumps(json_schema(), indent=2))


def _limit_threads(threads: int | None) -> int:
    """The number of threads, by default 1; put where libraries look when imported, over what is exported if given."""
    number = whole("--threads", 1 if threads is None else threads, 1)
    if number > _MOST_THREADS:  # libraries crash without a word
        raise UserError(f"--threads {number}: it must be at most {_MOST_THREADS}")
    flag, flags = "--xla_cpu_multi_thread_eigen", xla.flags()
    if threads is not None or flag not in flags:
        os.environ["XLA_FLAGS"] = f"{flags} {flag}={'false' if number == 1 else 'true'}".strip()  # the last one counts
    for name in ("OMP_NUM_THREADS", "NPROC"):  # NPROC is of XLA's thread pool
        if threads is not None or name not in os.environ:
            os.environ[name] = str(number)
    return number


def _configure(args, *, backend: str, dtype: str) -> None:
    """Sets up the numerical libraries."""
    import jax

    from lowvar.backends import get

    device = getattr(args, "device", "auto")
    jax.config.update("jax_enable_x64", dtype == "float64")
    # JAX draws only noise for PyTorch: on a GPU it would reserve most of the memory
    if device == "cpu" or (backend == "torch" and "JAX_PLATFORMS" not in os.environ):
        jax.config.update("jax_platforms", "cpu")
    xla.keep()
    get(backend)
    if backend == "torch":
        import torch

        torch.set_num_threads(args.threads)
        if device == "gpu" or (device == "auto" and torch.cuda.is_available()):
            if not torch.cuda.is_available():
                raise UserError("--device gpu: PyTorch finds no GPU; use --device cpu")
            torch.set_default_device("cuda")
    elif device == "gpu" and jax.default_backend() == "cpu":
        raise UserError("--device gpu: JAX finds no GPU; use --device cpu, or install 'lowvar[gpu]'")


if __name__ == "__main__":
    sys.exit(main())
