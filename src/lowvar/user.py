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
    from lowvar.api import variational
    from lowvar.datasets.load import load
    from lowvar.runs import artifact

    model, prepared = load_model(args.target), load(args.data)
    data = {
        name: value.astype(args.dtype) if value.dtype.kind == "f" else value for name, value in prepared.arrays.items()
    }
    found = variational.decompose(
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
