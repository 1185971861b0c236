# make        the virtual environment, the quickstart, the report
# make help   the rest

CORES ?= 2
CONSTRAINTS ?= constraints.txt
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
BIN := .venv/bin
# of pyproject.toml: EXTRAS= for the library alone, EXTRAS=torch,plot
EXTRAS ?= dev
INSTALLED := .venv/installed$(if $(filter dev,$(EXTRAS)),,-$(or $(EXTRAS),library))
export PATH := $(CURDIR)/$(BIN):$(PATH)
# Modules are compiled when they are first imported (see `install`): byte code must be kept.
unexport PYTHONDONTWRITEBYTECODE
SMOKE := scale=smoke
LOG := logs/make.log
MAKE_RESULTS := python .ci/progress.py $(LOG) snakemake --cores $(CORES) --quiet host
REPORT := snakemake --report report.html --quiet all
PART := @python .ci/part.py
PYTEST := pytest -q --durations=25
WORKERS := -n $(CORES) --dist loadfile --no-loadscope-reorder
# of the processors of .ci/cpus.py
CPUS ?= sse4 avx2 avx512
NUMERIC := $(addprefix tests/lowvar/, core vi integrals search) \
	$(addprefix tests/lowvar_studies/, models functions integrals integrators peers reports) \
	tests/lowvar/test_formulas.py \
	$(addprefix tests/project/, test_results_without_times.py test_trust.py test_worked_examples.py)
ESTIMATORS := $(addprefix tests/lowvar/integrals/, test_auto.py test_bfgs.py test_chain_coverage.py test_cross_fitting.py test_exact_integrators.py test_kernels.py test_simple_integrators.py) \
	tests/lowvar/vi/test_gradient_extras.py \
	$(addprefix tests/lowvar_studies/integrators/, test_functions_of_all_tasks.py test_paper_integrators.py test_task_relation.py)

.DEFAULT_GOAL := report
.PHONY: report results install hashes test test-long test-cpus kernels test-mutants test-slurm test-slurm-long faults lint types workflow smoke wheel doctests unit docs pull check evidence check-claims stale checkout push clean distclean help

report: results  ## run what params.yaml selects, write report.html and print its findings (the default)
	@$(REPORT) 2>> $(LOG) || { tail -20 $(LOG); echo "no report; full output: $(LOG)"; exit 1; }
	@echo "report:  $(CURDIR)/report.html"
	@echo "results: $(CURDIR)/results (its README.md says what is what)"
	@echo "logs:    $(CURDIR)/logs"

results: install
	@$(MAKE_RESULTS)

# The modules that are used are compiled as they are imported: to compile all of them takes half of the time.
install: $(INSTALLED)  ## make .venv and install lowvar in it, with the versions of constraints.txt; EXTRAS= for the library alone

$(INSTALLED): pyproject.toml $(CONSTRAINTS) $(wildcard $(CONSTRAINTS:.txt=-hashes.txt))
	@test -n "$(PYTHON)" || { echo "make: lowvar needs Python 3.11 or newer; name one with: make PYTHON=..."; exit 2; }
	@echo "installing into .venv$(if $(filter dev,$(EXTRAS)), (about 2.5 GB))"
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(BIN)/python .ci/installing.py logs/install.log $(BIN)/python -c $(CONSTRAINTS) -e '.$(if $(EXTRAS),[$(EXTRAS)])'
	@touch $@

# Without PyTorch's: its builds for CPUs and GPUs have one version and different files.
hashes: install  ## make constraints-hashes.txt of constraints.txt: the hashes of its files on PyPI, for Python 3.11 and newer
	@echo uv | uv pip compile --quiet --no-config --universal --python-version 3.11 --generate-hashes --no-emit-package torch \
		--no-annotate --custom-compile-command 'make hashes' -c constraints.txt --extra dev \
		pyproject.toml - -o constraints-hashes.txt

# A line for each part as it ends; their output is in logs/test. The unit tests wait now and then, so the other parts
# run beside them.
test: lint  ## all tests but the long ones, as .ci/run runs them
	@$(MAKE) --no-print-directory -j $(CORES) unit smoke doctests kernels types wheel workflow

lint: install  ## ruff
	$(PART) $@ 'ruff check --quiet . && ruff format --quiet --check .'

types: install  ## pyright
	$(PART) $@ pyright

# Snakemake's lint, and dry runs
workflow: install  ## Snakemake's lint, and plans of the workflow
	$(PART) $@ .ci/workflow

# Its programs run for a moment, so they are compiled as in the other tests; `make` and `make kernels` optimise theirs.
smoke: install  ## the quickstart end to end, at the smallest scale: its costs, and its report in a browser
	$(PART) $@ 'export XLA_FLAGS="$$(python conftest.py)"; snakemake --cores $(CORES) --config $(SMOKE) && mkdir -p build && \
		snakemake --report build/smoke.html --quiet all --config $(SMOKE) && python workflow/costs.py logs/smoke && \
		python .ci/browser.py build/smoke.html results/smoke build/report.png'

wheel: install  ## build the wheel, install it in an empty environment, use it there
	$(PART) $@ .ci/wheel

doctests: install  ## of the docstrings, the README and docs
	$(PART) $@ $(PYTEST) --doctest-modules "--doctest-glob='*.md'" src README.md docs

unit: install  ## unit and contract tests
	$(PART) $@ $(PYTEST) $(WORKERS)

test-long: install  ## the long tests alone: statistics that take minutes, as CI runs them each week
	$(PART) $@ XLA_FLAGS=--xla_cpu_multi_thread_eigen=false $(PYTEST) $(WORKERS) -m "'long and not slurm'"

test-cpus: install  ## the numeric tests as on other processors, with more threads, in other orders: CPUS="sse4 avx2 avx512"
	@python .ci/cpus.py "$(CPUS)" $(PYTEST) $(WORKERS) $(NUMERIC)

kernels: install  ## the tests of estimators again, as on a processor without AVX
	@python .ci/cpus.py sse4 $(PYTEST) $(ESTIMATORS)

test-slurm: install  ## the workflow on a Slurm of its own, with its faults (Debian, as root; skipped elsewhere)
	$(PART) slurm .ci/slurm $(PYTEST) -s -m "'slurm and not long'" tests/slurm

test-slurm-long: install  ## many short runs on it, RUNS of them (1000)
	$(PART) slurm-long .ci/slurm $(PYTEST) -s -m "'slurm and long'" tests/slurm

faults: install  ## the fault matrix of docs/reliability.md with its long budgets (hours), and its counts
	@python .ci/faults.py

test-mutants: install  ## do the tests notice wrong mathematics? Small mutations of it, and the share that is noticed
	@python tests/mutants -n $(CORES)

docs: install  ## the site of the pages, notebooks (run anew) and docstrings, in build/site; a warning is an error
	@mkdir -p docs/generated && lowvar schema > docs/generated/experiments.json && \
		lowvar schema --page > docs/generated/files.md
	@rm -rf build/site && sphinx-build -E -W --keep-going -q -d build/doctrees docs build/site
	@echo "site:    $(CURDIR)/build/site/index.html"

pull: install  ## results from the DVC remote, as dvc.lock records them, and report.html
	dvc pull
	@python .ci/artifacts.py adopt
	@$(MAKE) report

check: install  ## whether tables, figures and verdicts are as lowvar made them
	@python .ci/artifacts.py check

evidence: install  ## run the experiments PAGES at scale paper from this commit, and keep their pages (hours)
	@test -n "$(PAGES)" || { echo 'PAGES is empty: name pages, such as PAGES="ingo joint"'; exit 2; }
	@for page in $(PAGES); do snakemake --cores $(CORES) --quiet all --config scale=paper experiments="[$$page]" && \
		lowvar keep workflow/experiments/$$page.yaml --scale paper > /dev/null && lowvar pages $$page || exit 1; done

check-claims: install  ## judge all claims of docs/reproduction again from the rows in git, and draw their figures in build/kept
	@lowvar pages --check --draw build/kept

stale: install  ## which pages of docs/reproduction used code that has changed since, and how many CPU minutes they took
	@lowvar pages

checkout: install  ## results of another dvc.lock (after git checkout), from DVC's cache
	dvc checkout
	@python .ci/artifacts.py adopt

push: install  ## record the results in dvc.lock, and send them to the DVC remote
	@python .ci/artifacts.py record
	dvc push

clean:  ## remove results, report and logs; keep data and .venv
	@test ! -d results || find results/ -mindepth 1 -maxdepth 1 ! -name README.md -exec rm -rf {} +
	rm -rf logs report.html .snakemake dvc_plots dist build docs/generated

distclean: clean  ## and data, DVC's cache and .venv
	@test ! -d data || find data/ -mindepth 1 -maxdepth 1 ! -name README.md -exec rm -rf {} +
	rm -rf .dvc/cache .dvc/tmp .venv

help:
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## */\t/' | while IFS='	' read -r a b; do \
		printf '  make %-10s %s\n' "$$a" "$$b"; done
