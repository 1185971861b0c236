"""The command line. Heavy libraries are imported by the command that needs them, not here."""

import argparse
import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import partial

from lowvar import __version__
from lowvar.errors import UserError, unknown_name, whole
from lowvar.terminal import exit_code

# defaults of the options of `decompose` for a model of your own
OWN = {"estimators": None, "batch_size": None, "steps": 5000, "step_size": 0.01, "seed": 0, "dtype": "float64",
       "guide": "mean_field", "rank": None}  # fmt: skip
_MOST_THREADS = 1024


def main(argv: list[str] | None = None) -> int:
    """Runs one command; returns the exit code: 0, or 2 for a ``UserError``."""
    args = argparse.Namespace(debug=False)

    def do():
        words = sys.argv[1:] if argv is None else argv
        _parser(words).parse_args(words, args)
        args.threads = _limit_threads(getattr(args, "threads", None))  # libraries read it when first imported
        args.do(args)

    return exit_code(do, debug=lambda: args.debug, names=lambda: vars(args))


class _Parser(argparse.ArgumentParser):
    """Suggests the closest valid choice or option."""

    def parse_known_args(self, args=None, namespace=None):  # type: ignore[override]
        # before argparse looks: it would name the required option that is missing, not the misspelt one
        self._check_options(sys.argv[1:] if args is None else args)
        return super().parse_known_args(args, namespace)

    def _check_options(self, words):
        known = self._option_string_actions
        for word in words:
            name = word.partition("=")[0]
            if word == "--" or (self._subparsers is not None and not word.startswith("-")):
                return  # the rest are positional, or the command's own
            is_option = name.startswith("-") and " " not in name and not name[1:2].isdigit()  # -5 is a value
            if is_option and not any(option.startswith(name) for option in known):  # argparse accepts beginnings
                self.error(str(unknown_name("option", name, known)))

    def error(self, message):
        if "invalid choice: " in message and "(choose from" in message:
            choice = message.split("invalid choice: ")[1].split(" (")[0].strip("'")
            choices = [word.strip(" '") for word in message.split("(choose from ")[1].rstrip(")").split(",")]
            kind = message.split(":")[0].removeprefix("argument ").lower()
            message = str(unknown_name(kind, choice, choices))
        print(f"lowvar: {message}", file=sys.stderr)
        sys.exit(2)


def _parser(words):
    """The parser of the library's commands, and of the laboratory's unless the version alone is asked for."""
    parser = _Parser(prog="lowvar", description="Low-variance estimation, and the sources of the variance.")
    parser.add_argument("--version", action="version", version=f"lowvar {__version__}")
    parser.add_argument("--debug", action="store_true", help="show the traceback of a user error")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True, parser_class=_Parser)

    sub = command(commands, "decompose", _decompose, "decompose the variance of a gradient by source")
    sub.add_argument("target", metavar="TARGET", help="MODEL.py:FUNCTION with --data, or EXPERIMENT.yaml")
    job_options(sub)
    own = sub.add_argument_group("for a model of your own")
    own.add_argument("--estimators", help="comma-separated (default: as in Python, those that take the model)")
    own.add_argument("--batch-size", type=int, help="data rows in a batch (default: 100, or all if fewer)")
    own.add_argument("--steps", type=int, help="number of updates of the fit (default: {steps})".format(**OWN))
    own.add_argument("--step-size", type=float, help="step size of Adam (default: {step_size})".format(**OWN))
    own.add_argument("--seed", type=int, help="seed of fit and designs (default: {seed})".format(**OWN))
    own.add_argument("--guide", help="variational family, see lowvar list guides (default: {guide})".format(**OWN))
    own.add_argument("--rank", type=int, help="of the guide low_rank (default: the square root of the dimension)")
    own.add_argument("--dtype", choices=["float64", "float32"], help="precision (default: {dtype})".format(**OWN))

    sub = command(
        commands, "integrate", _integrate, "estimate expectations from your own samples, with control variates"
    )
    sub.add_argument("samples", metavar="SAMPLES.npz", help="with the arrays samples, scores and values")
    sub.add_argument("--method", default="auto", help="one of: lowvar list integrators (default: %(default)s)")
    sub.add_argument("--folds", type=int, help="number of folds for cross-fitting (default: 5 for auto only)")
    sub.add_argument("--chain", action="store_true", help="the samples are successive states of a Markov chain")
    sub.add_argument("--exact-scores", action="store_true", help="the scores are known to be right")
    sub.add_argument("--polynomial", action="store_true", help="the integrands are known to be polynomials")
    sub.add_argument("--seed", type=int, default=0)
    sub.add_argument("--out", metavar="TABLE.csv", help="also write the table to this file")
    device_options(sub)

    lists = dict(_LISTS)
    if "--version" not in words:
        _add_laboratory(commands, lists)
    sub = command(commands, "list", partial(_list, lists), "list the known names: " + ", ".join(lists))
    sub.add_argument("what", nargs="?", choices=lists, metavar="LIST")
    return parser


def _add_laboratory(commands, lists):
    """Adds the commands and lists of the laboratory, which are entry points of this distribution."""
    import importlib.metadata

    try:
        points = importlib.metadata.distribution("lowvar").entry_points
    except importlib.metadata.PackageNotFoundError:  # the source is not installed
        return
    for point in points.select(group="lowvar.commands"):
        point.load()(commands, lists)


def command(commands, name: str, do: Callable[[argparse.Namespace], None], help: str) -> argparse.ArgumentParser:
    """Adds a command to argparse's ``commands``; ``do`` runs it. Returns its parser, for its options."""
    sub = commands.add_parser(name, help=help, description=help)
    sub.set_defaults(do=do)
    return sub


def job_options(sub: argparse.ArgumentParser) -> None:
    """Adds the options of commands that compute from data and write files."""
    sub.add_argument("--data", help="npz file")
    sub.add_argument("--out", help="folder for the results")
    device_options(sub)


def device_options(sub: argparse.ArgumentParser) -> None:
    """Adds the options that ``configure`` reads."""
    sub.add_argument("--device", default="auto", choices=["auto", "cpu", "gpu"])
    sub.add_argument("--threads", type=int, help="threads of the numerical libraries (default: 1)")


def only_for(whom: str, args: argparse.Namespace, options: Iterable[str], instead: str) -> None:
    """Rejects options that do not apply to this target."""
    names = [f"--{name.replace('_', '-')}" for name in options if getattr(args, name) is not None]
    if names:
        raise UserError(f"{', '.join(names)}: only for {whom}; {instead}")


def _decompose(args):
    file, _, function = args.target.rpartition(":")
    if not file or function.startswith("\\"):  # the colon is of a drive
        model = args.target if args.target.endswith(".py") else "MODEL.py"
        raise UserError(f"{args.target}: no function is named; write {model}:FUNCTION")
    if args.data is None:
        raise UserError("--data: give an npz file whose names are the model's keyword arguments")
    vars(args).update({name: value for name, value in OWN.items() if getattr(args, name) is None})
    configure(args, backend="jax", dtype=args.dtype)
    from lowvar import user

    user.decompose(args, OWN)


def _integrate(args):
    from lowvar.integrals import INTEGRAL

    if args.device == "gpu" or args.method not in INTEGRAL.own or INTEGRAL.about(args.method).packages:
        torch = importlib.util.find_spec("torch") is not None  # a method of someone else may need it
        configure(args, backend="torch" if torch else "jax", dtype="float64")
    from lowvar import user

    user.integrate(args)


def _list(lists, args):
    for what, (names, described) in lists.items():
        if args.what == what:
            print("\n".join((described or names)()))
        elif args.what is None:
            try:
                print(f"{what}: {', '.join(names())}")
            except UserError as error:  # of a package that is not installed
                print(f"{what}: {error}")


def listed(module: str, collection: str) -> Callable[[], list[str]]:
    """The names of a collection, which is imported when they are asked for."""
    return lambda: list(getattr(importlib.import_module(module), collection))


def columns(descriptions: Mapping[str, str]) -> list[str]:
    """One line for each name, with its description."""
    width = max(map(len, descriptions))
    return [f"{name:{width}}  {text.replace('``', '').replace('`', '')}" for name, text in descriptions.items()]


def _estimators():
    from lowvar.vi.estimators import GRADIENT

    return columns({name: _estimates(name) for name in GRADIENT})


def _estimates(name):
    """The first line of an estimator's docstring, or why it cannot be used: it may be of another package."""
    import inspect

    from lowvar.vi.estimators import GRADIENT

    try:
        return (inspect.getdoc(GRADIENT.get(name)) or "").split("\n")[0]
    except UserError as error:
        return f"cannot be used: {error}"


# for `lowvar list`: a function that returns the names, and one that returns lines with their descriptions, if any
_LISTS: dict[str, tuple[Callable[[], list[str]], Callable[[], list[str]] | None]] = {
    "estimators": (listed("lowvar.vi.estimators", "GRADIENT"), _estimators),
    "searches": (listed("lowvar.search.solvers", "SEARCH"), None),
    "integrators": (listed("lowvar.integrals", "INTEGRAL"), None),
    "guides": (listed("lowvar.vi.guides.gaussian", "GUIDES"), None),
    "optimizers": (listed("lowvar.core.optimizers", "OPTIMIZERS"), None),
    "backends": (listed("lowvar.core.backend", "BACKENDS"), None),
}


def _limit_threads(threads: int | None) -> int:
    """The number of threads, by default 1; put where libraries look when imported, over what is exported if given."""
    number = whole("--threads", 1 if threads is None else threads, 1)
    if number > _MOST_THREADS:  # libraries crash without a word
        raise UserError(f"--threads {number}: it must be at most {_MOST_THREADS}")
    from lowvar.core import xla

    flag, flags = "--xla_cpu_multi_thread_eigen", xla.flags()
    if threads is not None or flag not in flags:
        os.environ["XLA_FLAGS"] = f"{flags} {flag}={'false' if number == 1 else 'true'}".strip()  # the last one counts
    for name in ("OMP_NUM_THREADS", "NPROC"):  # NPROC is of XLA's thread pool
        if threads is not None or name not in os.environ:
            os.environ[name] = str(number)
    return number


def configure(args: argparse.Namespace, *, backend: str, dtype: str, used: bool = True) -> None:
    """Sets up the numerical libraries, from the options of ``device_options``.

    Args:
        args: the options.
        backend: its name.
        dtype: JAX's precision.
        used: whether the backend computes; if not, it is imported only to look for the GPU that the options ask for.
    """
    import jax

    from lowvar.core import xla
    from lowvar.core.backend import get

    device = getattr(args, "device", "auto")
    jax.config.update("jax_enable_x64", dtype == "float64")
    # JAX draws only noise for PyTorch: on a GPU it would reserve most of the memory
    if device == "cpu" or (backend == "torch" and "JAX_PLATFORMS" not in os.environ):
        jax.config.update("jax_platforms", "cpu")
    xla.keep()
    if not used and device != "gpu":
        return
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
