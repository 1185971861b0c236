# make        the virtual environment, the quickstart, the report
# make help   the rest

CORES ?= 2
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
BIN := .venv/bin
INSTALLED := .venv/installed
export PATH := $(CURDIR)/$(BIN):$(PATH)
SNAKEMAKE := snakemake --cores $(CORES) --quiet host reason
SMOKE := scale=smoke

# shows what a command says only if it fails
quietly = @said=$$($(1) 2>&1) && echo "ok: $(1)" || { echo "$$said"; echo "failed: $(1)"; exit 1; }

.DEFAULT_GOAL := report
.PHONY: report install test lint types workflow smoke wheel doctests unit pull clean distclean help

report: install  ## run what params.yaml picks, and write report.html (the default)
	$(SNAKEMAKE)
	snakemake --report report.html --quiet all
	@echo
	@echo "report:  $(CURDIR)/report.html"
	@echo "results: $(CURDIR)/results"

install: $(INSTALLED)  ## make .venv and install lowvar in it, with the versions of constraints.txt

$(INSTALLED): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "make: lowvar needs Python 3.11 or newer; name one with: make PYTHON=..."; exit 2; }
	@echo "installing into .venv (some minutes, about 2.5 GB)"
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

# The tests, cheapest first; pytest's last line comes last.
test: lint types workflow smoke wheel doctests unit  ## all tests, as .ci/run runs them

lint: install  ## ruff
	ruff check --quiet .
	ruff format --quiet --check .

types: install  ## pyright
	pyright

workflow: install  ## Snakemake's lint (but for its wish for conda or containers), and dry runs
	@snakemake --lint 2>&1 | awk '/^Lints for/ {where = $$0} \
		/^    \* / && !/Specify a conda environment or container/ {print where, $$0; bad = 1} \
		END {if (where == "") print "snakemake --lint failed"; exit bad || where == ""}'
	$(call quietly,snakemake -n --config scale=quick experiments=quickstart)
	$(call quietly,snakemake -n joint --config scale=paper)
	$(call quietly,snakemake -n --workflow-profile gpu)
	$(call quietly,snakemake -n --workflow-profile slurm)

smoke: install  ## the quickstart end to end, at the smallest scale
	$(SNAKEMAKE) --config $(SMOKE)
	@mkdir -p build
	snakemake --report build/smoke.html --quiet all --config $(SMOKE)

wheel: install  ## build the wheel, install it in an empty environment, use it there
	rm -rf dist build/wheel-venv
	python -m build --wheel --no-isolation --outdir dist . > /dev/null
	python -m venv build/wheel-venv
	build/wheel-venv/bin/python -m pip install -q --disable-pip-version-check -c constraints.txt dist/lowvar-*.whl
	cd build && PYTHONSAFEPATH=1 wheel-venv/bin/python -c 'import lowvar; print(lowvar.__version__, lowvar.__file__)'
	cd build && wheel-venv/bin/lowvar --help > /dev/null && wheel-venv/bin/lowvar list estimators > /dev/null
	rm -rf build/wheel-venv

doctests: install  ## of the docstrings, the README and docs
	pytest -q --durations=0 --doctest-modules --doctest-glob='*.md' src README.md $(wildcard docs)

unit: install  ## unit and contract tests
	pytest -q -n $(CORES) --dist worksteal

pull: install  ## results from the DVC remote, right after a fresh clone, before any edit
	dvc pull
	snakemake --cores 1 --touch --forceall --quiet all
	$(SNAKEMAKE)
	snakemake --report report.html --quiet all

clean:  ## remove results, report and logs; keep data and .venv
	rm -rf results logs report.html .snakemake dvc_plots dist build

distclean: clean  ## and data, DVC's cache and .venv
	rm -rf data .dvc/cache .dvc/tmp .venv

help:
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## */\t/' | while IFS='	' read -r a b; do \
		printf '  make %-10s %s\n' "$$a" "$$b"; done
