"""The rows behind kept pages: tables that claims and figures read, in git, so that a clone can judge and draw again.

``docs/reproduction/rows/PAGE`` has, for each page of ``keep``:

    TABLE.parquet         each table that a claim, or the page's own table, reads, but none of ``BESIDE``, and without
                          the columns ``_UNREAD``
    KIND.figure.parquet   the rows that a figure shows, if its table is not there
    claims.csv            the verdicts
    about.json            experiment, scale, commit, jobs with their CPU seconds, and the code that they used
"""

import io
import json
import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from lowvar.core import artifact
from lowvar.core.files import all_or_none, write_bytes, write_text
from lowvar.errors import UserError, check_known
from lowvar_studies import PAGES
from lowvar_studies.jobs import code
from lowvar_studies.jobs.common_files import CLAIMS
from lowvar_studies.jobs.study import Study
from lowvar_studies.reports import claims as judging
from lowvar_studies.reports.gathered import Gathered
from lowvar_studies.reports.text import opening, own_table, page_parts, pictures

ROWS = "rows"  # below the folder of the pages
_WIDEST = 1000  # pixels of a picture
BESIDE = ("times",)  # tables of files beside the experiments, which are in git: a copy could contradict them
_UNREAD = {"estimates": ["value", "standard_error"]}  # by no claim and no figure: two thirds of the bytes of all pages
_COUNTED = (("holds", 6), ("fails", 6), ("undecided", 7))
_WORDS = ("verdict", "statement", "source", "cause", "note")
_SAME = 1e-6  # relative difference of numbers that another processor may give
_ROUNDING = 1e-3  # and of those of a long run, as a part of their intervals
_ABOUT = ("experiment", "scale", "spec", "commit", "dates", "versions", "jobs", "code")


def write_rows(study: Study, folder: Path, about: Mapping[str, Any]) -> tuple[list[Path], Any]:
    """Writes the rows behind a study's claims and figures; ``about`` is the content of ``about.json``.

    Returns:
        The files, and the verdicts.
    """
    folder, gathered = folder / ROWS / study.name, Gathered(study, study.family.tables, made=False)
    verdicts = judging.judge(judging.load(study.claims) if study.claims else [], gathered, study)
    if study.family.summary:
        study.family.summary(gathered)  # reads its tables
    read = [name for name in gathered.used if name not in BESIDE]
    frames = {f"{name}.parquet": gathered[name].drop(columns=_UNREAD.get(name, [])) for name in read}
    for kind, figure in study.figures.items():
        if f"{figure.table}.parquet" not in frames:
            frames[f"{kind}.figure.parquet"] = figure.rows(gathered[figure.table], **study.options(kind))
    mark = artifact.stamp(study.experiment.hash, {}, packages=("lowvar",))
    for name, frame in frames.items():
        artifact.write_table(folder / name, frame, mark | {"place": name})
    write_text(folder / "claims.csv", verdicts.to_csv(index=False))
    write_text(folder / "about.json", json.dumps(about, indent=1, sort_keys=True) + "\n")
    return [folder / name for name in (*frames, "claims.csv", "about.json")], verdicts


class NotKept(UserError):
    """Rows that are not among those of a page."""


@dataclass(frozen=True)
class Page(Mapping):
    """A kept page: its tables by name, and what ``about.json`` says.

    Attributes:
        folder: of its rows.
        about: the content of ``about.json``.
    """

    folder: Path
    about: Mapping[str, Any]

    @classmethod
    def load(cls, folder: str | Path, name: str) -> "Page":
        """The page of a name in a folder of pages.

        Raises:
            UserError: there is none, it or the whole folder has no rows, or its record is damaged.
        """
        known, name = some_names(folder), Path(name).stem if name.endswith(".md") else name  # a path to it, too
        path = Path(folder) / ROWS / name / "about.json"
        if name not in known and (Path(folder) / f"{name}.md").is_file():
            raise UserError(
                f"page {name!r}: {folder}/{name}.md is kept without its rows; pages with rows: {', '.join(known)}"
            )
        see = "lowvar pages" + ("" if Path(folder) == Path(PAGES) else f" --folder {folder}")
        check_known("page", name, known, where=f"{folder}", see=see)
        try:
            about = json.loads(path.read_text(encoding="utf-8"))
            lacking = [key for key in _ABOUT if key not in about]
            sum(about.get("jobs", {}).values(), 0.0)
            lacking += [key for key in ("jobs", "code") if not lacking and not len(about[key].keys())]
        except (OSError, ValueError, TypeError, AttributeError) as error:
            raise UserError(f"{path}: damaged; restore it: git checkout {path}") from error
        if lacking:
            raise UserError(f"{path}: it lacks {lacking[0]!r}; keep the page again, or restore it: git checkout {path}")
        return cls(path.parent, about)

    @property
    def name(self) -> str:
        """Its name, which is the experiment's."""
        return self.folder.name

    @property
    def option(self) -> str:
        """The option of commands that names the folder of the pages, after a space; none for the default one."""
        folder = self.folder.parents[1]
        return "" if folder == Path(PAGES) else f" --folder {folder}"

    @property
    def text(self) -> Path:
        """The file of its text."""
        return self.folder.parents[1] / f"{self.name}.md"

    @cached_property
    def study(self) -> Study:
        """The study that it was made of."""
        return Study.load(self.about["experiment"], self.about["scale"])

    @property
    def experiment(self) -> Any:
        """The experiment of the study."""
        return self.study.experiment

    @property
    def verdicts(self) -> Any:
        """The kept verdicts, a row for each claim."""
        import pandas as pd

        texts: Any = {one.name: str for one in CLAIMS.columns if one.dtype == "string"}
        path = self.folder / "claims.csv"
        try:
            table = pd.read_csv(path, dtype=texts)
            if list(table) != [one.name for one in CLAIMS.columns] or not set(table["verdict"]) <= {*judging.VERDICTS}:
                raise ValueError("other columns or verdicts")
        except (OSError, ValueError) as error:  # a ParserError is a ValueError
            raise UserError(
                f"{path}: missing, damaged or of another version; restore it: git checkout {path}"
            ) from error
        return table.fillna({"cause": "", "note": ""})

    @property
    def minutes(self) -> float:
        """CPU minutes of all jobs."""
        return sum(self.about["jobs"].values()) / 60

    @property
    def draft(self) -> bool:
        """Whether it is of another scale than ``paper``, or not of one commit without changes."""
        return self.about["scale"] != "paper" or not re.fullmatch("[0-9a-f]+", self.about["commit"])

    @property
    def changed(self) -> list[str]:
        """The modules that its jobs used and whose code has changed since; the experiment's file, if its hash has."""
        experiment = [] if self.experiment.hash == self.about["spec"] else [self.about["experiment"]]
        return experiment + code.changed(self.about["code"])

    def check_settings(self) -> None:
        """Refuses an experiment whose settings are no longer those of the page.

        Raises:
            UserError: they are others; the message says how to make the page of them, or to restore those of the page.
        """
        if self.experiment.hash == self.about["spec"]:
            return
        file, scale, commit = (self.about[key] for key in ("experiment", "scale", "commit"))
        back = f"; or restore the file: git checkout {commit} -- {file}" if re.fullmatch("[0-9a-f]+", commit) else ""
        said = f"at scale {scale} its settings are not those of the page {self.name}"
        raise UserError(f"{file}: {said}; make the page of them: {self._made_by}{back}")

    @property
    def _made_by(self) -> str:
        """The command that makes the page anew."""
        if self.text.parent == Path(PAGES):
            return f"make evidence PAGES={self.name}"
        of = f"{self.about['experiment']} --scale {self.about['scale']}"
        return f"lowvar study {of} && lowvar keep {of} --out {self.text.parent}"

    def __getitem__(self, name: str) -> Any:
        if name not in self:
            raise KeyError(name)
        return Gathered(self.study, self.study.family.tables)[name] if name in BESIDE else self._read(name)

    def _read(self, name: str) -> Any:
        self.check_settings()
        expect, path = {"spec": self.about["spec"], "place": f"{name}.parquet"}, self.folder / f"{name}.parquet"
        if not path.is_file():
            raise NotKept(f"{path}: no such rows; restore them: git checkout {path}, or make the page: {self._made_by}")
        state = path.stat()
        key = name, state.st_mtime_ns, state.st_size
        if key not in self._tables:  # claims ask for the same table again and again
            self._tables[key] = artifact.read_table(path, expect=expect, rebuild=f"git checkout {path}")
        return self._tables[key]

    @cached_property
    def _tables(self) -> dict[tuple[str, int, int], Any]:
        """The tables that were read, by name and state of the file."""
        return {}

    def __contains__(self, name: object) -> bool:
        return name in Gathered(self.study, self.study.family.tables)

    def __iter__(self) -> Iterator[str]:
        return (path.stem for path in sorted(self.folder.glob("*.parquet")) if "." not in path.stem)

    def __len__(self) -> int:
        return len(list(iter(self)))

    def rows(self, kind: str) -> Any:
        """The rows that a figure shows."""
        figure = self.study.figures[kind]
        if figure.table in list(self):
            return figure.rows(self[figure.table], **self.study.options(kind))
        return self._read(f"{kind}.figure")

    def figure(self, kind: str) -> Any:
        """The ``matplotlib.figure.Figure`` of a kind, from the kept rows."""
        return self.study.figures[kind].drawn(self.rows(kind), **self.study.options(kind))

    def judged(self) -> Any:
        """The verdicts on the claims as they are stated now, from the kept rows."""
        return judging.judge(judging.load(self.study.claims) if self.study.claims else [], self, self.study)

    def check(self) -> list[str]:
        """How verdicts computed again, the page and its pictures differ from the kept ones; reads all rows.

        Returns:
            A sentence for each difference.
        """
        for kind in self.study.figures:
            self.rows(kind)
        now, before = (table.set_index("id") for table in (self.judged(), self.verdicts))
        gone = self.gone(now.index)
        new = [f"claim {name!r} is stated, and not on the page" for name in now.index.difference(before.index)]
        found = [*gone, *new, *self._apart_from_text()]
        for name in now.index.intersection(before.index):
            found += [f"claim {name!r}: {text}" for text in apart(now.loc[name], before.loc[name])]
        return found

    def gone(self, stated: Collection[str]) -> list[str]:
        """The kept claims that are none of those stated, a sentence each."""
        kept = [name for name in self.verdicts["id"] if name not in stated]
        return [f"claim {name!r} is on the page, and no longer stated" for name in kept]

    def _apart_from_text(self) -> list[str]:
        """How the page and its pictures differ from those of the kept rows; wall times are not among these."""
        page = self.text
        if not page.is_file():
            return [f"{page}: it is missing; restore it: git checkout {page}"]
        text = page.read_text(encoding="utf-8")
        parts = self._parts(text, self.verdicts)
        lines = set(text.splitlines())
        lacking = [next((line for line in part.splitlines() if line not in lines), part)
                   for part in parts if part not in text]  # fmt: skip
        found = [f"{page}: it lacks this, or has another: {opening(one)}" for one in lacking]
        if not found and text != self._whole(text, parts):
            found = [f"{page}: between its parts, or behind its figures, it has a text that is not of its rows"]
        files = [page.with_name(f"{self.name}-{kind}.png") for kind in pictures(self.study, list(self))]
        lost = [file for file in files if not whole_png(file)]
        return found + [f"{file}: missing or damaged; restore it: git checkout {file}" for file in lost]

    def _parts(self, text: str, verdicts) -> list[str]:
        """The parts of the page, from the kept rows; ``text``, as it is, says its folder, and tables without rows."""
        stated = re.search(rf"^`lowvar remake {self.name} --folder ([^`]*)`", text, re.MULTILINE)
        own = self._own_table() or _section_before_figures(text)
        folder = self.option.removeprefix(" --folder ")
        if stated and Path(stated[1]).resolve() == self.text.parent.resolve():
            folder = stated[1]
        return page_parts(self.study, self.about, verdicts, own, list(self), folder)

    @staticmethod
    def _whole(text: str, parts: list[str]) -> str:
        """A page of these parts and of the wall times in ``text``, which are in no rows."""
        _, wall, times = text.partition("\n\n## Wall time\n\n")
        return "\n\n".join(parts) + (wall + times or "\n")

    @property
    def lacks_rows_of_its_own_table(self) -> bool:
        """Whether the page has a table of its family whose rows are not kept, as an older one may."""
        text = self.text.read_text(encoding="utf-8") if self.text.is_file() else ""
        return not self._own_table() and bool(_section_before_figures(text))

    def _own_table(self) -> list[str]:
        """The family's own table from the kept rows; nothing without them."""
        try:
            return own_table(self.study, self)
        except NotKept:
            return []

    def judge(self) -> list[Path]:
        """Writes the verdicts on the claims as they are stated now, from the kept rows, into the rows and the page.

        Returns:
            The files.

        Raises:
            UserError: a claim reads a table that is not kept, or the page is missing.
        """
        now, text = self.judged(), self._there()
        if not len(now) and not len(self.verdicts):
            return []
        with all_or_none():
            write_text(self.folder / "claims.csv", now.to_csv(index=False))
            write_text(self.text, self._whole(text, self._parts(text, now)))
        return [self.folder / "claims.csv", self.text]

    def redraw(self) -> list[Path]:
        """Writes the page's text and pictures again from the kept rows, with the verdicts as they are.

        Returns:
            The files whose content changed; others are not written.

        Raises:
            UserError: the page is missing.
        """
        from lowvar.core.drawing import png

        text = self._there()
        now = {self.text: self._whole(text, self._parts(text, self.verdicts)).encode()}
        for kind in pictures(self.study, list(self)):
            now[self.text.with_name(f"{self.name}-{kind}.png")] = small(png(self.figure(kind)))
        return write_changed(now)

    def _there(self) -> str:
        """The page as it is; refuses one that is missing."""
        if not self.text.is_file():
            raise UserError(f"{self.text}: it is missing; restore it: git checkout {self.text}, or keep it again")
        return self.text.read_text(encoding="utf-8")

    def draw(self, out: str | Path) -> list[Path]:
        """Draws all figures from the kept rows into a folder."""
        from lowvar.core.drawing import save

        written = []
        for kind in self.study.figures:
            written += save(self.figure(kind), Path(out) / f"{self.name}-{kind}", self.rows(kind))
        return written


def write_changed(contents: Mapping[Path, bytes]) -> list[Path]:
    """Writes files whose content is another, all or none; returns these."""
    changed = [path for path, content in contents.items() if not path.is_file() or path.read_bytes() != content]
    with all_or_none():
        for path in changed:
            write_bytes(path, contents[path])
    return changed


def small(png: bytes) -> bytes:
    """A PNG file of the same picture in 256 colours, at most 1000 pixels wide: about a sixth of the bytes."""
    from PIL import Image

    stream, picture = io.BytesIO(), Image.open(io.BytesIO(png)).convert("RGB")
    if picture.width > _WIDEST:
        picture = picture.resize((_WIDEST, round(picture.height * _WIDEST / picture.width)), Image.Resampling.LANCZOS)
    picture.quantize(256, dither=Image.Dither.NONE).save(stream, "PNG", optimize=True)
    return stream.getvalue()


def _section_before_figures(text: str) -> list[str]:
    """The title and the table that stand before the figures and behind the claims, if there are any."""
    found = re.search(r"^(## (?!Claims\n).*)\n\n((?:\|.*\n)*\|.*)\n\n## Figures\n", text, re.MULTILINE)
    return list(found.groups()) if found else []


def whole_png(path: Path) -> bool:
    """Whether a file is there and a picture without damage."""
    from PIL import Image

    try:
        with Image.open(path) as picture:
            picture.verify()
    except (OSError, SyntaxError):  # Pillow's error of a chunk with another checksum
        return False
    return True


def names(folder: str | Path) -> list[str]:
    """The pages in a folder that have rows."""
    return sorted(path.name for path in (Path(folder) / ROWS).glob("*") if path.is_dir())


def some_names(folder: str | Path) -> list[str]:
    """As ``names``; raises UserError if there are none."""
    if not (found := names(folder)):
        raise UserError(f"{folder}: no pages with rows; run it in a clone of the repository, or give their --folder")
    return found


def listed(pages: Sequence[Page]) -> str:
    """Pages with their verdicts, jobs, CPU minutes and commits, and what has changed since, as text."""
    lines = [f"{'page':<22}{'holds':>6}{'fails':>6}{'undec.':>7}{'jobs':>6}{'CPU min':>9}  commit"]
    for page in pages:
        counts, changed = page.verdicts["verdict"].value_counts(), page.changed
        shown = "".join(f"{counts.get(word, 0):>{width}}" for word, width in _COUNTED)
        stale = f"  stale: {', '.join(changed[:3])}{' and more' if len(changed) > 3 else ''}" if changed else ""
        jobs = len(page.about["jobs"])
        lines.append(f"{page.name:<22}{shown}{jobs:>6}{page.minutes:>9.1f}  {page.about['commit']}{stale}")
    stale_pages = sum(bool(page.changed) for page in pages)
    spent = [sum(page.minutes for page in some) for some in (pages, [page for page in pages if page.changed])]
    total = f"pages: {len(pages)}, {spent[0]:.1f} CPU minutes; stale: {stale_pages}, {spent[1]:.1f} CPU minutes"
    return "\n".join([*lines, total])


def apart(now, before, only: Sequence[str] | None = None, *, again: bool = False) -> list[str]:
    """How a verdict differs from a kept one, in words; none if it does not.

    Args:
        now: a row of verdicts.
        before: the kept row.
        only: the columns to compare; None for all.
        again: whether jobs ran again, perhaps on another processor: numbers may then differ by a thousandth of their
            interval.
    """
    width = before["high"] - before["low"] if again else 0.0
    found = [f"its {key} was {before[key]!r}, and is {now[key]!r}" for key in only or _WORDS if now[key] != before[key]]
    numbers = () if only else ("ours", "low", "high", "published")
    if not only and not again and not same(now["more"], before["more"]):
        found.append(f"{before['more']:.3g} times as many repetitions would have decided it, and {now['more']:.3g} now")
    if not all(same(now[key], before[key], width) for key in numbers):
        was, is_ = (f"{row['ours']:.6g} [{row['low']:.6g}, {row['high']:.6g}]" for row in (before, now))
        found.append(f"{was} on the page, {is_} now")
    return found


def same(a: float, b: float, width: float = 0.0) -> bool:
    """Whether two numbers agree up to rounding on another processor.

    Args:
        a: a number.
        b: the other.
        width: of the interval of a number that a long run made, where rounding grows.

    >>> same(1.0, 1.0001), same(1.0, 1.0001, width=1.0), same(1.0, 1.01, width=1.0)
    (False, True, False)
    """
    slack = _ROUNDING * width if 0 < width < math.inf else 0.0
    return math.isclose(a, b, rel_tol=_SAME, abs_tol=max(slack, 1e-300)) or (math.isnan(a) and math.isnan(b))
