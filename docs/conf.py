"""The site of these pages and of the docstrings: ``make docs``."""

import re
from os.path import normpath
from pathlib import Path

import lowvar

HERE = Path(__file__).parent
GITHUB = "https://github.com/lowvar/lowvar/blob/main"
SUBPAGES = "\n```{toctree}\n:hidden:\n:glob:\n\n*\n```\n"

project = "lowvar"
release = lowvar.__version__
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
html_theme = "furo"
html_title = f"lowvar {release}"
html_static_path = html_css_files = ["site.css"]
html_copy_source = html_show_copyright = False
myst_heading_anchors = 6
# The notebooks run anew in every build; a cell that fails, as one whose assertion does, fails the build.
nb_execution_mode = "force"
nb_execution_raise_on_error = True
nb_execution_timeout = 600
nb_execution_show_tb = True
nb_merge_streams = True
nb_render_markdown_format = "myst"  # of outputs, which may be tables
nb_output_stderr = "remove"  # warnings are notes of results, which the notebooks print where they matter
napoleon_use_ivar = True
autodoc_default_options = {"members": True, "member-order": "bysource"}
python_maximum_signature_line_length = 88


def adapt(app, page, source):
    """Leads links out of ``docs`` to GitHub; lists the pages of a folder below its README."""

    def target(match):
        path = Path(normpath(HERE / page / ".." / match[1]))
        outside = path.exists() and not path.is_relative_to(HERE)
        return f"]({GITHUB}/{path.relative_to(HERE.parent).as_posix()}" if outside else match[0]

    source[0] = re.sub(r"\]\((\.\./[^)#\s]+)", target, source[0]) + SUBPAGES * page.endswith("/README")


def link(app, kind, name, found, options, lines):
    """Lets docstrings link to the pages that they name."""
    lines[:] = [re.sub(r"docs/([\w-]+)\.md", r":doc:`/\1`", line) for line in lines]


def setup(app):
    """Connects the two functions to Sphinx."""
    app.connect("source-read", adapt)
    app.connect("autodoc-process-docstring", link)
