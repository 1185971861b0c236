"""The site of these pages and of the docstrings: ``make docs``."""

import json
import re
from os.path import normpath
from pathlib import Path

import lowvar
from lowvar_studies.jobs.load import json_schema
from lowvar_studies.reports import schema

HERE = Path(__file__).parent
GITHUB = "https://github.com/lowvar/lowvar/blob/main"
SUBPAGES = "\n```{toctree}\n:hidden:\n:glob:\n\n*\n```\n"

project, release = "lowvar", lowvar.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
html_theme, html_title, html_copy_source = "furo", f"lowvar {release}", False
myst_heading_anchors = 6
napoleon_use_ivar = True
autodoc_default_options = {"members": True, "member-order": "bysource"}
autodoc_typehints_format = "short"
python_maximum_signature_line_length = 88


def generate(app):
    """Writes the pages of result files and of experiment files."""
    (HERE / "generated").mkdir(exist_ok=True)
    (HERE / "generated/files.md").write_text(schema.page(), encoding="utf-8")
    text = f"# JSON schema of experiment files\n\n```json\n{json.dumps(json_schema(), indent=2)}\n```\n"
    (HERE / "generated/experiments.md").write_text(text, encoding="utf-8")


def adapt(app, page, source):
    """Leads links out of ``docs`` to GitHub; lists the pages of a folder below its README."""

    def target(match):
        path = Path(normpath(HERE / page / ".." / match[1]))
        outside = path.exists() and not path.is_relative_to(HERE)
        return f"]({GITHUB}/{path.relative_to(HERE.parent).as_posix()}" if outside else match[0]

    source[0] = re.sub(r"\]\((\.\./[^)#\s]+)", target, source[0]) + SUBPAGES * page.endswith("/README")


def setup(app):
    """Connects the two functions to Sphinx."""
    app.connect("builder-inited", generate)
    app.connect("source-read", adapt)
