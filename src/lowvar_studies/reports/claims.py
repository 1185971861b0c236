"""Claims: published statements tested on our results, by an effect, bounds on its value, and a verdict.

A claim in ``workflow/claims/{experiment}.yaml`` names an effect of the experiment's family with its arguments, and
bounds on its value::

    - id: lowest-sonar
      statement: joint has a lower gradient variance than naive
      source: Table 1
      test: {effect: variance_ratio, problem: sonar, method: joint, others: [naive], below: 1}

``Test`` lists the bounds. ``lowvar schema --page`` lists the effects.
"""

import functools
import inspect
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pydantic
from pydantic import Field

from lowvar.core.intervals import share_interval
from lowvar.errors import UserError, check_known, unknown_name
from lowvar_studies.jobs.common_files import CLAIMS
from lowvar_studies.jobs.common_spec import SCALES, Strict, validated
from lowvar_studies.jobs.load import FAMILIES
from lowvar_studies.jobs.study import Job, Study
from lowvar_studies.reports.effect import SHARED, Effect, Effects, Missing, Positive, select
from lowvar_studies.yaml_files import read_yaml

EFFECTS = SHARED | {name: effect for family in FAMILIES.values() for name, effect in family.effects.items()}

NOT_MADE = "not made"
VERDICTS = ("holds", "fails", "undecided", NOT_MADE)
STANDARD_ERRORS = 2.0  # largest difference of our value and a published one
_FEWEST = 5  # least repetitions for a verdict by standard errors
_MOST = 1e6  # times as many repetitions: a claim that these leave undecided has its value at the bound
_RATIO = (0.0, math.inf)
_RANGES = {"share": (0.0, 1.0), "coverage": (0.0, 1.0), "same_side": (0.5, 1.0), "linearity": _RATIO}


def _text(text: str) -> str:
    if not text.strip():
        raise ValueError("it must not be empty")
    return text


def _identifier(name: str) -> str:
    if not re.fullmatch(r"\S+", name):
        raise ValueError(f"{name!r}: it must be a name without spaces")
    return name


def _standard_error(given: Any, validate) -> Any:
    """Validates, with one message; pydantic's would have a part for each type."""
    try:
        return validate(given)
    except pydantic.ValidationError as error:
        raise ValueError(f"{given!r}: it must be a number, 0 or more, or the word ours") from error


NotNegative = Annotated[float, Field(ge=0)]
StandardError = Annotated[NotNegative | Literal["ours"] | None, pydantic.WrapValidator(_standard_error)]
Text = Annotated[str, pydantic.AfterValidator(_text)]
Identifier = Annotated[str, pydantic.AfterValidator(_identifier)]


class Test(Strict):
    """An effect and bounds on its value; a subclass for each effect adds the effect's arguments.

    The 95 % interval decides: the claim holds if all of it meets every bound, fails if all of it violates one, and is
    undecided otherwise. A published value without another bound must be met within its tolerance. Beside another
    bound, it is only shown.

    A claim holds only where it could have failed. Bounds that every value of the effect meets, or none, are refused: no
    share is above 1. An interval that meets a bound as a whole is narrow enough: as far on the other side of the bound,
    it would have failed. Three tests have a condition of their own:

    * ``published_se``: our value and the published one may be two combined standard errors apart. These must be
      smaller than ``detectable``, by default half of the published value.
    * ``detectable`` beside a bound: the bound is a hypothesis, such as the 95 % that an interval promises. It fails if
      the interval excludes it. Otherwise it holds if both ends of the interval are nearer to the value than
      ``detectable``: a value so far beyond the bound would have been excluded.
    * shares of repetitions, with a bound of 0 or 1, so of all or none: the value itself must meet the bound, and the
      worst result of as many repetitions must fail.
    """

    model_config = pydantic.ConfigDict(strict=True, allow_inf_nan=False)  # else true and "1" would count as 1
    __test__ = False  # not a pytest class

    effect: str
    below: float | None = None
    above: float | None = None
    at_most: float | None = None
    at_least: float | None = None
    published: float | None = None
    tolerance: NotNegative = Field(0.0, description="relative, of a published value or a strict bound")
    plus_minus: NotNegative | None = Field(None, description="absolute tolerance of a published value")
    published_se: StandardError = Field(None, description="ours if none was published")
    detectable: Positive | None = Field(None, description="absolute deviation from the bound that would have failed")

    @pydantic.model_validator(mode="before")
    @classmethod
    def _listed(cls, values: Any) -> Any:
        """YAML's lists as tuples, which strict models take for them."""
        return {key: tuple(one) if isinstance(one, list) else one for key, one in values.items()}

    @pydantic.model_validator(mode="after")
    def _bounded(self):
        uppers, lowers = self.upper, self.lower
        if not uppers and not lowers and self.published is None:
            raise ValueError("a bound is missing: below, above, at_most, at_least or published")
        if len(uppers) > 1 or len(lowers) > 1:
            raise ValueError("at most one upper and one lower bound")
        if (self.published is None or uppers or lowers) and (self.plus_minus, self.published_se) != (None, None):
            raise ValueError("plus_minus and published_se belong to a published value without another bound")
        if getattr(self, "published_repetitions", None) and self.published_se != "ours":
            raise ValueError("published_repetitions belongs to published_se: ours")
        if self.detectable is not None and self.published_se is None and len(uppers) + len(lowers) != 1:
            raise ValueError("detectable belongs to published_se, or to a single bound")
        if self.published_se is not None and self.published == 0 and self.detectable is None:
            raise ValueError("published: half of 0 is no deviation that could be detected: give detectable")
        return self

    @pydantic.model_validator(mode="after")
    def _decidable(self):
        """The claim can hold, and it can fail."""
        bottom, top = self.range
        ends = {1: (top, True), -1: (-bottom, True)}  # the largest value that meets all bounds, and whether it does
        for sign, limit, slack, strict in self.limits():
            ends[sign] = min(ends[sign], (limit + slack, not strict))
        (most, with_most), (least, with_least) = ends[1], (-ends[-1][0], ends[-1][1])
        keys = ("below", "above", "at_most", "at_least") if self.upper or self.lower else ("published",)
        given = ", ".join(key for key in keys if getattr(self, key) is not None)
        known = f"every {self.effect} is between {bottom:g} and {top:g}, and " if math.isfinite(bottom) else ""
        if not (least < most or (least == most and with_most and with_least)):
            raise ValueError(f"{given}: {known}no value can meet this: choose other bounds")
        if not any(limit + slack < (top if sign > 0 else -bottom) for sign, limit, slack, _ in self.limits()):
            raise ValueError(f"{given}: {known}no value can violate this: choose a bound that could fail")
        return self

    @pydantic.model_validator(mode="after")
    def _compared(self):
        """No method is its own rival, unless it is another quantity of its own, or on another problem."""
        given = dict(self)
        rivals = [(key, given[key]) for key in ("other", "reference") if given.get(key)]
        rivals += [("others", name) for name in given.get("others", ())]
        of = given.get("of"), given.get("moment"), given.get("problem"), None
        to = (given.get(key) for key in ("to", "to_moment", "others_on", "weights"))
        parts = given.get("parts", ())
        another = any(one not in (None, own) for own, one in zip(of, to, strict=True))
        another |= bool(parts) and given.get("source") not in parts
        met = [] if another else [given.get("method")]
        for key, name in rivals:
            if name in met:
                raise ValueError(f"{key}: {name!r} is compared with itself: name another method")
            met.append(name)
        return self

    @property
    def range(self) -> tuple[float, float]:
        """The smallest and the largest value that the effect can have."""
        if self.effect == "problems_solved":
            return 0.0, float(len(dict(self)["problems"]))
        return _RATIO if self.effect.endswith("_ratio") else _RANGES.get(self.effect, (-math.inf, math.inf))

    @property
    def upper(self) -> list[float]:
        """The upper bound, if there is one."""
        return [bound for bound in (self.below, self.at_most) if bound is not None]

    @property
    def lower(self) -> list[float]:
        """The lower bound, if there is one."""
        return [bound for bound in (self.above, self.at_least) if bound is not None]

    @property
    def shown(self) -> float:
        """The value of the column ``published``: the published value, or an inclusive bound; NaN for a comparison."""
        return next((x for x in (self.published, self.at_least, self.at_most) if x is not None), math.nan)

    def limits(self):
        """``(sign, limit, slack, strict)`` of each bound: ``sign * value`` must be below ``limit + slack``."""
        if not self.upper and not self.lower:
            value: Any = self.published
            low, high = sorted((value * (1 - self.tolerance), value * (1 + self.tolerance)))
            if self.plus_minus is not None:
                low, high = value - self.plus_minus, value + self.plus_minus
            yield from ((1, high, 0.0, False), (-1, -low, 0.0, False))
        for sign, bounds, strict in ((1, self.upper, self.below), (-1, self.lower, self.above)):
            yield from ((sign, sign * bound, self.tolerance * abs(bound), strict is not None) for bound in bounds)

    def badness(self, effect: Effect) -> float:
        """A key that sorts effects from best to worst for the claim; infinite for an effect without a value."""
        value = effect.value if effect.rank is None else effect.rank
        return math.inf if math.isnan(value) else -value if self.lower else value


class Claim(Strict):
    """A published statement, its source, and its test."""

    id: Identifier
    statement: Text
    source: Text
    test: Test
    note: str = ""
    cause: Literal["", "paper", "setting"] = ""  # if it fails: the statement itself, or our setting

    def measure(self, tables: Mapping[str, Any]) -> Effects:
        """The effect in an experiment's tables."""
        function = EFFECTS[self.test.effect]
        arguments = {name: getattr(self.test, name) for name in _arguments(function)}
        effect = function(tables, **arguments)
        return effect if isinstance(effect, Effects) else Effects((effect,))


def load(path: str | Path) -> list[Claim]:
    """The claims of a YAML file.

    Raises:
        UserError: the file is missing or has no claims, a claim has an unknown effect, argument or value, or two have
            the same ``id``; the message names the file and the claim.
    """
    path = Path(path)
    if not path.is_file():
        raise UserError(f"{path}: no such claims file")
    content = read_yaml(path)
    if not isinstance(content, list) or not content:
        raise UserError(f"{path}: it must be a list of claims")
    claims = [parse(entry, f"{path}: claim {number}") for number, entry in enumerate(content, 1)]
    first: dict[str, int] = {}
    for number, claim in enumerate(claims, 1):
        if first.setdefault(claim.id, number) != number:
            raise UserError(
                f"{path}: claim {number} {claim.id!r}: id: claim {first[claim.id]} has it too; choose another"
            )
    return claims


def parse(entry: Any, where: str = "claim") -> Claim:
    """A claim from an entry of a claims file.

    Args:
        entry: a mapping with the keys of ``Claim``; ``test`` is a mapping with ``effect``, its arguments and bounds.
        where: the file and the claim's number, for messages.

    Raises:
        UserError: an unknown effect, key or value.
    """
    if not isinstance(entry, dict) or not isinstance(entry.get("test"), dict):
        raise UserError(f"{where}: a claim must be a mapping, and so must its key 'test'")
    where = f"{where} {entry['id']!r}" if "id" in entry else where
    test = entry["test"]
    if "effect" not in test:
        raise UserError(f"{where}: test: key 'effect' is missing")
    if (effect := str(test["effect"])) not in EFFECTS:
        raise unknown_name("effect", effect, EFFECTS, where=where)
    model = _model(EFFECTS[effect])
    return validated(Claim, {**entry, "test": validated(model, test, where=f"{where}: test")}, where=where)


def judge(claims: Iterable[Claim], tables: Mapping[str, Any], study: Any = None):
    """A row for each claim: ``id, statement, source, published, ours, low, high, verdict, more, cause, note``.

    Args:
        claims: as returned by ``load``.
        tables: the experiment's tables by name.
        study: the experiment at the tables' scale. With it, the verdict on a claim about rows that only other scales
            make is ``not made``.

    Raises:
        UserError: a claim needs a table or row that does not exist.
    """
    import pandas as pd

    rows = []
    for claim in claims:
        try:
            try:
                judged = _judged(claim, claim.measure(tables))
            except Missing as lacking:
                judged = _not_made(claim, lacking, tables, study)
        except UserError as error:
            raise UserError(f"claim {claim.id!r}: {error}") from error
        except ValueError as error:
            said = "test: a column of numbers is compared with a text, or one of texts read as numbers"
            raise UserError(f"claim {claim.id!r}: {said} ({error})") from error
        cause = claim.cause if judged["verdict"] == "fails" else ""
        rows.append({"id": claim.id, "statement": claim.statement, "source": claim.source, "cause": cause, **judged})
    return pd.DataFrame(rows, columns=[one.name for one in CLAIMS.columns])


def _not_made(claim, lacking, tables, study):
    """The verdict on a claim about rows that only other scales make.

    Raises:
        UserError: this scale should have made them, or no scale does.
    """
    made = made_at(study, lacking) if study else {}
    if not made:
        raise lacking
    test, known = dict(claim.test), {name for one in (study, *made.values()) for name in one.experiment.methods}
    named = [*(test.get(key) for key in ("method", "other", "reference")), test.get("at", {}).get("method")]
    for method in filter(None, [*named, *test.get("others", ())]):
        check_known("method", method, known)
    job, shown = makes(next(iter(made.values())), lacking)[0], tables.get(lacking.table)
    if shown is not None and "problem" in lacking.wanted and "problem" in shown:
        shown = select(shown, problem=lacking.wanted["problem"])
        for column in shown.columns.intersection(list(lacking.wanted)):  # no setting tells tasks and blocks
            if not known_values(job, column) and len(shown) and lacking.wanted[column] not in set(shown[column]):
                raise lacking
    note = "; ".join(filter(None, (claim.note, f"not made at scale {study.scale}, but at {' and '.join(made)}")))
    nothing = {"published": claim.test.shown, "ours": math.nan, "low": math.nan, "high": math.nan, "more": math.nan}
    return {**nothing, "verdict": NOT_MADE, "note": f"{note}: {lacking}"}


# rows that an experiment makes at some of its scales, as its settings tell -------------------------------------------


def makes(study: Study, lacking: Missing) -> list[Job]:
    """The jobs of a study whose rows have the values that an effect wants of a table."""
    kinds = [one.rows_of for one in study.family.tables if one.name == lacking.table and one.when(study.experiment)]
    return [job for job in study.jobs(*kinds) if _has(job, lacking.wanted)] if kinds else []


def made_at(study: Study, lacking: Missing) -> dict[str, Study]:
    """The other scales at which the experiment makes a table or rows that it lacks; none if its own should have."""
    others = [] if makes(study, lacking) else [scale for scale in SCALES if scale != study.scale]
    studies = {scale: Study.load(study.path, scale) for scale in others}
    return {scale: one for scale, one in studies.items() if makes(one, lacking)}


def known_values(job: Job, column: str) -> list[Any]:
    """The values of a table's column that a job's names and settings tell; none if they do not."""
    return [job.names[column]] if column in job.names else job.spec.values_of(column)


def _has(job: Job, wanted: Mapping[str, Any]) -> bool:
    return all(_among(value, known_values(job, column)) for column, value in wanted.items())


def _among(value: Any, values: list[Any]) -> bool:
    """Whether a value is one of those that settings state, or they state none."""
    if isinstance(value, float):
        return not values or any(math.isclose(value, float(one), rel_tol=1e-9) for one in values)
    return not values or value in values


# verdicts ------------------------------------------------------------------------------------------------------------


def _judged(claim, effects):
    from lowvar_studies.reports.text import would_decide  # it needs this module

    test = claim.test
    worst, holds, fails, agreed = _decided(test, effects.each)
    times = math.nan if holds or fails else more(test, effects.each)
    notes = [claim.note, *effects.before, agreed, worst.note, *effects.after]
    if getattr(test, "unit", None) == "step" and not math.isnan(times):  # no repetitions: rounds of a benchmark
        notes, times = [*notes, would_decide(times).replace("repetitions", "rounds")], math.nan
    return {
        "published": test.shown,
        "ours": worst.value,
        "low": worst.low,
        "high": worst.high,
        "verdict": "holds" if holds else "fails" if fails else "undecided",
        "more": times,
        "note": "; ".join(text for text in notes if text),
    }


def _decided(test, each):
    """The effect that a claim's row shows, whether the claim holds, whether it fails, and a note."""
    worst = max(each, key=test.badness)
    if test.published_se is not None:
        return worst, *_agreement(test, worst)
    verdicts = [_verdict(test, effect) for effect in each]
    holds, fails = all(one for one, _ in verdicts), any(one for _, one in verdicts)
    decisive = [one for one, found in zip(each, verdicts, strict=True)
                if found == (holds, fails) and not math.isnan(one.value)]  # fmt: skip
    if decisive and not math.isnan(worst.value):
        worst = max(decisive, key=test.badness)
    return worst, holds, fails, ""


def _verdict(test, effect):
    """Whether all bounds hold for an effect, and whether one fails."""
    low, high = effect.bounds or (effect.low, effect.high)
    holds, fails = effect.reach is None or _reachable(test, effect.reach), False
    for sign, bound, slack, strict in test.limits():
        limit = bound + slack
        bottom, top = (low, high) if sign > 0 else (-high, -low)
        excluded = bottom > limit or (bottom == limit and strict and effect.bounds is not None)
        top = sign * effect.value if effect.counted and abs(bound) in (0, 1) else top  # of all or none
        met = top < limit or (top == limit and not strict)
        if test.detectable is not None:
            met |= not excluded and max(effect.value - low, high - effect.value) < test.detectable
        holds, fails = holds and met, fails or excluded
    return holds, fails


def more(test: Test, each: Sequence[Effect]) -> float:
    """How many times as many repetitions would decide an undecided claim, if all values stayed where they are.

    The least number with whose intervals the judge decides: those of all rivals if the values meet the bounds, that of
    one rival if its value violates one. Infinite for a value at a bound; NaN if an interval that repetitions do not
    shorten leaves the claim undecided.
    """

    def repeated(times):
        return [_repeated(test, one, times) for one in each]

    def decided(times):
        return any(_decided(test, repeated(times))[1:3])

    if not decided(_MOST):
        left = [one for one, shrunk in zip(each, repeated(_MOST), strict=True) if not any(_verdict(test, shrunk))]
        fixed = test.published_se is not None or not all(_shrinks(test, one) for one in left)
        return math.nan if fixed else math.inf
    low, high = 0.0, math.log(_MOST)
    while high - low > 1e-9:
        middle = (low + high) / 2
        low, high = (low, middle) if decided(math.exp(middle)) else (middle, high)
    return math.exp(high)


def _shrinks(test, effect):
    """Whether more repetitions shorten an interval, as they do not a grid, a hull, or the error of the truth."""
    cut = test.range == _RATIO and effect.low <= 0  # a ratio's interval that ends at 0, or at infinity, is a bound
    other = getattr(test, "truth", False) or getattr(test, "unit", None) == "seconds"  # steps, and seconds of each
    known = np.isfinite([effect.value, effect.low, effect.high]).all()
    return bool(known) and effect.bounds is None and not cut and not other


def _repeated(test, effect, times):
    """An effect with the interval of ``times`` as many repetitions, if its value stayed where it is.

    Halves of intervals shrink with the root of repetitions, on a logarithmic scale where the interval is more symmetric
    there; the intervals of shares are those of so many.
    """
    value, low, high, n = effect.value, effect.low, effect.high, effect.pairs
    if effect.errors:  # the first is that over our repetitions, and perhaps that over the published ones
        share = n / published if (published := getattr(test, "published_repetitions", None)) else 0.0
        own = effect.errors[0] * math.sqrt((1 / times + share) / (1 + share))
        effect = replace(effect, errors=(own, *effect.errors[1:]))
    effect = replace(effect, pairs=n and times * n)
    if not _shrinks(test, effect):
        return effect
    bottom, top = test.range
    if top == 1 and n:
        low, high = (float(end) for end in share_interval(value * times * n, times * n))
        worst = float(share_interval(times * n, times * n)[0]), float(share_interval(bottom * times * n, times * n)[1])
        return replace(effect, low=low, high=high, reach=effect.reach and worst)
    ends = np.array([low, value, high])
    logs = np.log(ends) if low > 0 else ends
    logarithmic = low > 0 and _skew(logs) < _skew(ends)
    scaled = logs if logarithmic else ends
    low, high = (scaled[1] + (scaled[[0, 2]] - scaled[1]) / math.sqrt(times)).tolist()
    return replace(effect, low=math.exp(low) if logarithmic else low, high=math.exp(high) if logarithmic else high)


def _skew(ends):
    """The difference of an interval's halves."""
    low, value, high = ends
    return abs(high + low - 2 * value) / (high - low) if high > low else 0.0


def _reachable(test, reach):
    """Whether the worst result of as many repetitions fails."""
    return any(sign * reach[0 if sign > 0 else 1] > limit + slack for sign, limit, slack, _ in test.limits())


def combined_error(test, effect) -> float:
    """The standard error of the difference between an effect and a published value that has a standard error."""
    theirs = effect.errors[0] if test.published_se == "ours" else test.published_se
    return math.hypot(theirs, *effect.errors)


def _agreement(test, effect):
    """Whether an effect agrees with a published value that has a standard error, whether it disagrees, and a note.

    It is undecided if the standard errors are so large that a value ``detectable`` away would agree as well.
    """
    if not effect.errors:
        raise UserError(f"the effect {test.effect!r} has no standard errors: give a tolerance instead of published_se")
    combined = combined_error(test, effect)
    apart, allowed = abs(effect.value - test.published), STANDARD_ERRORS * combined
    note = f"{apart / combined:.2g} combined standard errors apart" if combined > 0 else ""
    if math.isinf(effect.value):
        return False, True, note
    if effect.pairs < _FEWEST or math.isnan(combined):
        return False, False, note
    detectable = test.detectable or abs(test.published) / 2
    return apart <= allowed < detectable, apart > allowed, note


def _arguments(function) -> dict[str, inspect.Parameter]:
    """The parameters of an effect that a claim specifies: all except the tables."""
    return dict(list(inspect.signature(function).parameters.items())[1:])


@functools.cache
def _model(function) -> type[Test]:
    """The test model of an effect, from the effect's signature."""
    fields: dict[str, Any] = {
        name: (one.annotation, ... if one.default is one.empty else one.default)
        for name, one in _arguments(function).items()
    }
    return pydantic.create_model(function.__name__, __base__=Test, **fields)
