"""Loading and checking an experiment file at a scale.

An experiment file (``workflow/experiments/*.yaml``) has problems, methods and settings; its ``scales`` override parts
of it, and its ``family`` says what it estimates. Unknown keys are errors. A job's spec contains exactly the settings
that its result depends on, so its hash tells whether a result is stale.
"""

from pathlib import Path
from typing import Any

from lowvar.errors import UserError, check_known, file_error, nearest, unknown_name
from lowvar.registry import look_in
from lowvar_studies.jobs.common_spec import SCALES, merged, validated
from lowvar_studies.jobs.integral.spec import IntegralExperiment
from lowvar_studies.jobs.search.spec import SearchExperiment
from lowvar_studies.jobs.variational.experiment import VariationalExperiment
from lowvar_studies.reports.declarations import Family
from lowvar_studies.reports.integral.family import FAMILY as INTEGRAL
from lowvar_studies.reports.search.family import FAMILY as SEARCH
from lowvar_studies.reports.variational.family import FAMILY as VARIATIONAL
from lowvar_studies.yaml_files import read_yaml

Experiment = VariationalExperiment | SearchExperiment | IntegralExperiment

FAMILIES = {family.name: family for family in (VARIATIONAL, SEARCH, INTEGRAL)}
FIGURES = dict.fromkeys(name for family in FAMILIES.values() for name in family.figures)


def load_experiment(path: str | Path, scale: str) -> "Experiment":
    """The experiment of a YAML file at a scale; the file is checked at every scale.

    Args:
        path: e.g. ``workflow/experiments/quickstart.yaml``.
        scale: one of ``smoke``, ``quick``, ``paper``.

    Raises:
        UserError: no such file, not YAML, an unknown key or name, or a value out of range; the message names
            the file and the key.
    """
    path = Path(path)
    try:
        there = path.is_file()
        known = [p.stem for p in path.parent.glob("*.yaml")] if not there and path.parent.is_dir() else []
    except OSError as error:
        raise file_error(error) or error from error
    if not there:
        if nearest(path.stem, known) is None:
            raise UserError(f"{path}: no such experiment file")
        raise unknown_name("experiment", path.stem, known, where=str(path.parent), see=f"ls {path.parent}")
    check_known("scale", scale, SCALES)
    content = read_yaml(path)
    if not isinstance(content, dict):
        raise UserError(f"{path}: an experiment must be a mapping of keys, see: lowvar schema --page")
    scales = content.pop("scales", None) or {}
    for key, value in (("scales", scales), ("methods", content.get("methods"))):
        if not isinstance(value or {}, dict):
            raise UserError(f"{path}: {key} = {value!r}: it must be a mapping of names")
    family = content.get("family", "variational")
    if not isinstance(family, str) or family not in FAMILIES:
        raise unknown_name("family", str(family), FAMILIES, where=f"{path}: family")
    if "family" not in content:
        keys = {name: one.experiment.model_fields for name, one in FAMILIES.items()}
        meant = max(keys, key=lambda name: sum(key in keys[name] for key in content))
        if meant != family:
            key = next(key for key in content if key in keys[meant] and key not in keys[family])
            raise UserError(f"{path}: an experiment with the key {key!r} needs the key family: {meant}")
    what = FAMILIES[family].method
    for name, method in (content.get("methods") or {}).items():
        if isinstance(method, dict):
            method.setdefault(what, name)
        elif method is None:
            content["methods"][name] = {what: name}
    for name, override in scales.items():
        check_known("scale", name, SCALES, where=str(path))
        if not isinstance(override or {}, dict):
            raise UserError(f"{path}: scales.{name} = {override!r}: it must be a mapping of keys")
    look_in(path.parent)
    experiment = _checked(FAMILIES[family], merged(content, scales.get(scale) or {}), path, str(path))
    for other in SCALES:  # a mistake is found before its scale runs
        if scales.get(other) != scales.get(scale):
            where = f"{path}: at scale {other}"
            _checked(FAMILIES[family], merged(content, scales.get(other) or {}), path, where)
    return experiment


def _checked(family: Family, content: dict[str, Any], path: Path, where: str) -> "Experiment":
    """The experiment of a family with this content."""
    experiment = validated(family.experiment, content, where=where)
    if experiment.name != path.stem:
        raise UserError(f"{where}: name {experiment.name!r} must equal the file's name, {path.stem!r}")
    experiment.check_names(where)
    family.figures_of(experiment, where)
    return experiment


def json_schema() -> dict[str, Any]:
    """The JSON schema of experiment files, for editors, including ``scales`` and methods without options."""
    schemas, definitions = [], {}
    for family in FAMILIES.values():
        schema = family.experiment.model_json_schema(ref_template="#/$defs/{model}")
        definitions |= schema.pop("$defs")
        methods = schema["properties"]["methods"]
        of_method = methods["additionalProperties"]["$ref"].rpartition("/")[2]
        definitions[of_method]["required"] = [key for key in definitions[of_method]["required"] if key != family.method]
        methods["additionalProperties"] = {"anyOf": [methods["additionalProperties"], {"type": "null"}]}
        schema["properties"]["scales"] = {
            "type": "object",
            "description": "keys that each scale overrides",
            "propertyNames": {"enum": list(SCALES)},
            "additionalProperties": {"type": "object"},
        }
        schema["title"] = f"Experiment of the family {family.name}"
        schemas.append(schema)
    return {"anyOf": schemas, "$defs": definitions}
