"""Files of all families."""

from lowvar_studies.reports.declarations import File, columns

STAMP = File(
    "stamp",
    "Every parquet file has a JSON text under the key `lowvar` of its schema metadata; `samples.npz`, `params.npz` and "
    "`checkpoint.npz` have it in an array `__lowvar__`. `lowvar.core.artifact.read_table(path)` and "
    "`read_arrays(path)` read both kinds. The workflow's readers expect a `spec` and `inputs` and refuse a file with "
    "others, or of another `place`: the message names the file and the command that rebuilds it. Results of another "
    "version of lowvar are read, with a warning; other `versions` are a record. "
    "The stamp does not cover lowvar's source code: after editing an estimator, force its jobs.",
    columns("""
    spec | string | | hash of the job's spec: 16 hexadecimal digits of SHA-256; in `tables/` of the experiment
    inputs.{problem} | string | | SHA-256 of the problem's prepared data, or of its samples in runs and tables of
    + integrals; `inputs` is empty for a function
    inputs.{problem}/{method}-{backend} | string? | | SHA-256 of the study that a run read, or of all studies behind a
    + table
    place | string | | the file's place among the results of its experiment, such as `tables/ends.parquet`; a whole file
    + in the place of another is refused
    beside | object? | | SHA-256 by place of the published files that were made with this one: the csv of a table; svg
    + files have a stamp too, in a comment at their end, with the png and the csv beside them and the table that they
    + show. `make check`, and `snakemake --report`, name a file that is another
    digest | string | | SHA-256 of the stamp and the decoded content; a file with another one is damaged, and refused
    versions.{package} | string | | version of lowvar, jax, jaxlib, numpy, numpyro, optax, torch and installed peers,
    + simulators and samplers; in `tables/` only of lowvar
    """),
)  # fmt: skip

PREPARED = File(
    "data/prepared/{dataset}-{scaling}.npz",
    "Made by `lowvar prepare`. Every array except `meta` is a keyword argument of the model; `meta` is a JSON text. "
    "The file has no stamp; stamps of other files contain its SHA-256.",
    columns("""
    x | float64 | scaled | features, (N, d)
    y | int64 or float64 | | labels, (N,); or k measurements in their own unit, (N, k)
    test_x | float64? | scaled | features of test rows, (N', d), if the dataset has them
    test_y | float64? | | measurements of test rows, (N', k)
    meta | string | | the keys below
    meta.format | int | | version of this layout
    meta.dataset | string | | name in the catalogue
    meta.title | string | | meaning of a row and a label
    meta.licence | string | | of the data
    meta.citation | string | | of the data
    meta.raw_sha256 | object | | SHA-256 of each raw file, by name; empty if a package ships the data
    meta.rows | int | rows | N
    meta.features | list of string | | names of the d columns of `x`
    meta.dtypes.{array} | string | | dtype of each array
    meta.scaling | string | | `minmax` (to [-1, 1]), `standard` (mean 0, deviation 1) or `none`
    meta.offset | list of float | raw | `x = (raw - offset) / scale`, (d,)
    meta.scale | list of float | raw | see `meta.offset`, (d,)
    meta.outputs | list of string? | | names of the k columns of `y`, if they are measurements
    meta.seed | int? | | seed of simulated data
    meta.mu | list of float? | | of `hlr`: true value in the simulation
    meta.sigma | float? | | of `hlr`: true value in the simulation
    meta.eps | float? | | of `hlr`: true value in the simulation
    """),
)  # fmt: skip

PROVENANCE = File(
    "*/provenance.json",
    "Records that do not repeat, and the job's full spec, with tuned settings if there are any.",
    columns("""
    stamp | object | | the stamp of the files beside it
    spec | object | | the job's spec: the keys of the experiment that its result depends on
    commit | string or null | | last commit that changed more than docs, with `-dirty` if files are edited; null
    + outside a checkout
    date | string | UTC | when the job ended, ISO 8601
    host | string | | name of the machine
    platform | string | | operating system and architecture
    python | string | | version
    command | list of string | | the command line
    device | string | | the backend's name of the device
    code.{module} | string | | hash of the code of each module of lowvar that the result can depend on, without comments
    + and docstrings
    cpu_seconds | float | seconds | of CPU, from the start of the process that ended the job
    """),
)  # fmt: skip

CHECKPOINT = File(
    "runs/{problem}/{method}-{backend}/checkpoint.npz",
    "Exists while a run is in progress, or after it was killed; the same command resumes it. Peers with state in "
    "objects have no checkpoints: a killed run of theirs starts again.",
    columns("""
    __lowvar__ | string | | the stamp; a checkpoint with another stamp is discarded
    done | int64 | | epochs, generations or chunks of repetitions done
    clock | float64 | s | time so far, and compilation time, (2,)
    laps | float64 | s | time at each measurement so far, (measurements,)
    measured_{column} | any | | measured columns of the trace, (measurements, ...): `elbo`,
    + `elbo_se` and `state_bytes`, perhaps `test_log_likelihood`, errors of gradients, `particles` and `taken`; `f`,
    + `best`, `sigma`, `condition` and `failures`; `value`, `standard_error`, `condition`, `refused`, `flag_{name}` and
    + `info_{name}`
    leaf{i} | any | | the arrays of the solver's state, in a fixed order
    """),
)  # fmt: skip

CLAIMS = File(
    "claims.csv",
    "Made by `lowvar claims`, as `claims.parquet` too. A row for each statement in "
    "`workflow/claims/{experiment}.yaml`; without that file "
    "there are no rows. Intervals are 95 %.",
    columns("""
    id | string | | name of the claim
    statement | string | | the claim
    source | string | | table, figure or section that states it; or `ours`
    published | float64 | the claim's | the published value, or the bound `at_least` or `at_most`; empty for a
    + comparison
    ours | float64 | the claim's | value of the effect in our results
    low | float64 | the claim's | lower end of its 95 % interval
    high | float64 | the claim's | upper end
    verdict | string | | `holds`, `fails` or `undecided`; `not made` if other scales alone make the rows that it needs
    more | float64 | | how many times as many repetitions would decide an undecided claim, if its values stayed;
    + infinite for a value at the bound; NaN if they do not shorten an interval (of a grid, of two evaluations, of runs
    + that do not arrive, of seconds), or if rounds of a benchmark take their place, which the note then counts
    cause | string | | why it fails, if its file says so: `paper` for the statement itself, `setting` for ours (CPU,
    + subset, implementation)
    note | string | | the claim's note, and what was compared: pairs, iterations, budgets, sizes
    """),
)  # fmt: skip

FILES = (STAMP, PREPARED, PROVENANCE, CHECKPOINT, CLAIMS)
