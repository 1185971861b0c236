"""The command ``lowvar decompose MODEL.py:FUNCTION``: a user's model from a file, its data from an npz."""

import hashlib
import importlib.util
import json
import sys
from pathlib import Path

from lowvar.errors import UserError, unknown_name
from lowvar.files import all_or_none, sha256


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
    except Exception as error:
        raise UserError(f"{file}: cannot be imported: {type(error).__name__}: {error}") from error
    if not callable(getattr(module, function, None)):
        known = [name for name, value in vars(module).items() if callable(value) and not name.startswith("_")]
        raise unknown_name("function", function, known, where=file)
    return getattr(module, function)


def decompose(args) -> None:
    """Runs ``lowvar.decompose`` as the command line asks, prints its summary, writes table and figure."""
    from lowvar.api.decompose import decompose as call
    from lowvar.datasets.load import load
    from lowvar.runs import artifact

    model, prepared = load_model(args.target), load(args.data)
    data = {
        name: value.astype(args.dtype) if value.dtype.kind == "f" else value for name, value in prepared.arrays.items()
    }
    found = call(
        model, data, estimators=tuple(name.strip() for name in args.estimators.split(",")),
        batch_size=args.batch_size, step_size=args.step_size, num_steps=args.steps, seed=args.seed,
        name=Path(args.target).name,
    )  # fmt: skip
    print(found.summary())
    file, _, function = args.target.rpartition(":")
    name = Path(file).stem if function == "model" else f"{Path(file).stem}-{function}"
    out = Path(args.out or "results")
    table, stem = out / "decomposition" / f"{name}.parquet", out / "figures" / name
    options = {key: value for key, value in vars(args).items() if key not in ("do", "debug", "out", "data")}
    text = json.dumps(options | {"model": sha256(file)}, sort_keys=True)
    mark = artifact.stamp(hashlib.sha256(text.encode()).hexdigest()[:16], {name: prepared.sha256})
    with all_or_none(table, table.with_suffix(".json")):
        artifact.write_provenance(table.with_suffix(".json"), mark, options)
        artifact.write_table(table, found.table, mark)
    if importlib.util.find_spec("matplotlib") is None:
        print(f"wrote {table}; for the figure: pip install 'lowvar[workflow]'")
        return
    found.plot(stem)
    print(f"wrote {table}, {stem}.png")


def integrate(args) -> None:
    """Runs ``lowvar.integrate`` on an npz as the command line asks, and prints its table."""
    import warnings

    from lowvar.api.integral import integrate as call
    from lowvar.files import write_text

    arrays, path = _arrays(args.samples), args.samples
    given = {}
    for name in ("samples", "scores", "values"):
        of_tasks = sorted((key for key in arrays if key.startswith(f"{name}_")), key=lambda key: int(key.split("_")[1]))
        if name not in arrays and not of_tasks:
            raise UserError(
                f"{path}: it has no array {name!r} (it has: {', '.join(arrays)}); "
                "numpy.savez(path, samples=..., scores=..., values=...) writes such files"
            )
        numbers = [int(key.split("_")[1]) for key in of_tasks]
        if (name in arrays and of_tasks) or numbers != list(range(len(numbers))):
            raise UserError(f"{path}: write {name!r} alone, or {name}_0, {name}_1, ... without a gap: {sorted(arrays)}")
        given[name] = arrays[name] if name in arrays else [arrays[key] for key in of_tasks]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the notes are printed with the table
        found = call(**given, method=args.method, chain=args.chain, folds=args.folds, seed=args.seed)
    print(found)
    if args.out:
        try:
            write_text(args.out, found.table.to_csv(index=False))
        except OSError as error:
            raise UserError(f"--out {args.out}: it cannot be written: {error.strerror}") from error
        print(f"wrote {args.out}")


def _arrays(path) -> dict:
    """The numeric arrays of an npz, NaN included: what is wrong with them, `integrate` says."""
    import re
    import zipfile

    import numpy as np

    try:
        loaded = np.load(path, allow_pickle=False)
        if not isinstance(loaded, np.lib.npyio.NpzFile):
            raise UserError(
                f"{path}: it is one array; numpy.savez(path, samples=..., scores=..., values=...) writes three"
            )
        with loaded as stored:
            found = {name: stored[name] for name in stored.files}
    except FileNotFoundError as error:
        raise UserError(f"{path}: no such file; give an npz with samples, scores and values") from error
    except UserError:
        raise
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise UserError(f"{path}: it is not an npz file of numbers, or only a part of one") from error
    known = re.compile(r"(samples|scores|values)(_\d+)?$")
    for name in found:
        if not known.match(name):
            raise UserError(f"{path}: array {name!r}: the names must be samples, scores and values, or samples_0, ...")
    return found
