"""The commands for a user's own model or samples: ``decompose MODEL.py:FUNCTION`` and ``integrate SAMPLES.npz``."""

import hashlib
import importlib.util
import json
import sys
from pathlib import Path

from lowvar.core import npz
from lowvar.core.files import all_or_none, sha256
from lowvar.errors import UserError, unknown_name
from lowvar.terminal import as_options


def load_model(target: str):
    """The function named by ``path/to/file.py:function``.

    Raises:
        UserError: no such file or function, or the file raises when it is imported.
    """
    file, _, function = target.rpartition(":")
    path = Path(file)
    if not path.is_file():
        raise UserError(f"{file}: no such file; write MODEL.py:FUNCTION")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise UserError(f"{file}: not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(path.stem, module)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise UserError(f"{file}: cannot be imported: {type(error).__name__}: {error}") from error
    if not callable(getattr(module, function, None)):
        functions = [name for name, value in vars(module).items() if callable(value) and not name.startswith("_")]
        raise unknown_name("function", function, functions, where=file)
    return getattr(module, function)


def decompose(args, own) -> None:
    """Runs ``lowvar.decompose`` with the command line's options; prints the summary, writes table and figure.

    Args:
        args: all options.
        own: the names of those that the stamp of the table holds.
    """
    from lowvar.core import artifact
    from lowvar.core.files import write_text
    from lowvar.vi.decompose import decompose as call

    model, (arrays, _, digest) = load_model(args.target), npz.model_arrays(args.data)
    data = {name: value.astype(args.dtype) if value.dtype.kind == "f" else value for name, value in arrays.items()}
    guide = {"guide": args.guide} | ({} if args.rank is None else {"rank": args.rank})
    estimators = None if args.estimators is None else tuple(name.strip() for name in args.estimators.split(","))
    result = call(
        model, data, guide=guide, estimators=estimators,
        batch_size=args.batch_size, step_size=args.step_size, num_steps=args.steps, seed=args.seed,
        name=Path(args.target).name,
    )  # fmt: skip
    print(result.summary())
    file, _, function = args.target.rpartition(":")
    name = Path(file).stem if function == "model" else f"{Path(file).stem}-{function}"
    out = Path(args.out or "results")
    suffix = "csv" if importlib.util.find_spec("pyarrow") is None else "parquet"
    table, stem = out / "decomposition" / f"{name}.{suffix}", out / "figures" / name
    options = {name: getattr(args, name) for name in ("target", "device", "threads", *own)}
    text = json.dumps(options | {"model": sha256(file)}, sort_keys=True)
    mark = artifact.stamp(hashlib.sha256(text.encode()).hexdigest()[:16], {name: digest})
    with all_or_none():
        artifact.write_provenance(table.with_suffix(".json"), mark, options, commit=artifact.commit())
        if suffix == "parquet":
            artifact.write_table(table, result.table, mark)
        else:
            write_text(table, result.table.to_csv(index=False))
    if importlib.util.find_spec("matplotlib") is None:
        print(f"wrote {table}; for the figure: pip install 'lowvar[plot]'")
        return
    stem.parent.mkdir(parents=True, exist_ok=True)
    result.plot(stem)
    print(f"wrote {table}, {stem}.png")


def integrate(args) -> None:
    """Runs ``lowvar.integrate`` on an npz with the command line's options, and prints its table."""
    import warnings

    from lowvar.core.files import write_text
    from lowvar.integrals.integrate import integrate as call

    arrays, path = _arrays(args.samples), args.samples
    inputs = {}
    for name in ("samples", "scores", "values"):
        task_keys = sorted(
            (key for key in arrays if key.startswith(f"{name}_")), key=lambda key: int(key.split("_")[1])
        )
        if name not in arrays and not task_keys:
            raise UserError(
                f"{path}: there is no array {name!r} (known: {', '.join(arrays)}); "
                "write the file with numpy.savez(path, samples=..., scores=..., values=...)"
            )
        numbers = [int(key.split("_")[1]) for key in task_keys]
        if (name in arrays and task_keys) or numbers != list(range(len(numbers))):
            raise UserError(f"{path}: give either {name!r} or {name}_0, {name}_1, ... without a gap: {sorted(arrays)}")
        inputs[name] = arrays[name] if name in arrays else [arrays[key] for key in task_keys]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the notes are printed with the table
        result = call(
            **inputs, method=args.method, chain=args.chain, folds=args.folds, seed=args.seed,
            exact_scores=args.exact_scores, polynomial=args.polynomial,
        )  # fmt: skip
    print(as_options(str(result), vars(args)))
    if args.out:
        try:
            write_text(args.out, result.table.to_csv(index=False))
        except OSError as error:
            raise UserError(f"--out {args.out}: cannot write the file: {error.strerror}") from error
        print(f"wrote {args.out}")


def _arrays(path) -> dict:
    """The numeric arrays of an npz; `integrate` checks their values."""
    import re

    try:
        arrays = npz.read(path)
    except FileNotFoundError as error:
        raise UserError(f"{path}: no such file; give an npz with samples, scores and values") from error
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror or error}") from error
    except npz.DamagedFile as error:
        raise UserError(
            f"{path}: not an npz file of numeric arrays: {error}; write it with numpy.savez(path, samples=..., "
            "scores=..., values=...)"
        ) from error
    allowed = re.compile(r"(samples|scores|values)(_\d+)?$")
    for name in arrays:
        if not allowed.match(name):
            raise UserError(f"{path}: array {name!r}: the names must be samples, scores and values, or samples_0, ...")
    return arrays
