"""Files that all families have."""

from lowvar.studies.base import File, columns

STAMP = File(
    "stamp",
    "Every parquet file carries a JSON text under the key `lowvar` of its schema metadata; `samples.npz`, "
    "`params.npz` and `checkpoint.npz` have it in an array `__lowvar__`. `lowvar.runs.artifact.read_table(path)` and "
    "`read_arrays(path)` read files of both kinds. A reader in the workflow says which `spec` and `inputs` it "
    "expects, and refuses a file with others: the message names the file and the command that makes it anew. "
    "`versions` is a record and is not compared. The stamp does not know the source code: after an edit of an "
    "estimator, force its jobs.",
    columns("""
    spec | string | | hash of the job's spec: 16 hexadecimal digits of SHA-256; of the whole experiment in `tables/`
    inputs.{problem} | string | | SHA-256 of the problem's prepared data, or of its samples in runs and tables of
    + integrals; `inputs` is empty for a function
    inputs.{problem}/{method}-{backend} | string? | | SHA-256 of the study that a run read, or of those that stand
    + behind a table
    versions.{package} | string | | version of lowvar, jax, jaxlib, numpy, numpyro, optax, torch and the peers,
    + simulators and samplers that are installed; in `tables/` of lowvar alone
    """),
)  # fmt: skip

PREPARED = File(
    "data/prepared/{dataset}-{scaling}.npz",
    "Made by `lowvar prepare`. Every array but `meta` is a keyword argument of the model; `meta` is a JSON text. The "
    "file has no stamp: its own SHA-256 is what stamps name as input.",
    columns("""
    x | float64 | scaled | features, (N, d)
    y | int64 or float64 | | labels, (N,); or k measurements in their own unit, (N, k)
    test_x | float64? | scaled | features of rows to predict, (N', d), where the dataset has its own
    test_y | float64? | | their measurements, (N', k)
    meta | string | | the keys below
    meta.format | int | | version of this layout
    meta.dataset | string | | name in the catalogue
    meta.title | string | | what a row and a label are
    meta.licence | string | | of the data
    meta.citation | string | | of the data
    meta.raw_sha256 | object | | SHA-256 of each raw file, by its name; empty where a package brings the data
    meta.rows | int | rows | N
    meta.features | list of string | | names of the d columns of `x`
    meta.dtypes.{array} | string | | dtype of each array
    meta.scaling | string | | `minmax` (to [-1, 1]), `standard` (mean 0, deviation 1) or `none`
    meta.offset | list of float | raw | `x = (raw - offset) / scale`, (d,)
    meta.scale | list of float | raw | see `meta.offset`, (d,)
    meta.outputs | list of string? | | names of the k columns of `y`, where they are measurements
    meta.seed | int? | | of data that were drawn
    meta.mu | list of float? | | of `hlr`: what its rows were drawn with
    meta.sigma | float? | | the same
    meta.eps | float? | | the same
    """),
)  # fmt: skip

PROVENANCE = File(
    "*/provenance.json",
    "What cannot repeat, and the job's spec in full. That of a run that tuned its settings has those that were "
    "chosen.",
    columns("""
    stamp | object | | the stamp of the files beside it
    spec | object | | the job's spec: the keys of the experiment that its result depends on
    commit | string or null | | of the checkout that ran it, `-dirty` if it was edited; null outside of one
    date | string | UTC | when the job ended, ISO 8601
    host | string | | name of the machine
    platform | string | | operating system and architecture
    python | string | | version
    command | list of string | | the command line
    device | string | | where the arrays were, as the backend names it
    """),
)  # fmt: skip

CHECKPOINT = File(
    "runs/{problem}/{method}-{backend}/checkpoint.npz",
    "Only while a run is under way, or after it was killed. The same command goes on from it. Peers that keep their "
    "state in an object of their own leave none: a killed run of theirs starts anew.",
    columns("""
    __lowvar__ | string | | the stamp; a checkpoint with another one is dropped
    done | int64 | | epochs, generations or chunks of repetitions done
    clock | float64 | s | time so far, and time spent compiling, (2,)
    laps | float64 | s | time at each measurement so far, (measurements,)
    measured_{column} | any | | the columns of the trace that are measured, (measurements, ...): `elbo` and
    + `elbo_se`, perhaps `test_log_likelihood`, errors of gradients, `particles` and `taken`; `f`, `best`, `sigma`,
    + `condition` and `failures`; `value`, `standard_error`, `condition`, `refused`, `flag_{name}` and `info_{name}`
    leaf{i} | any | | the arrays of the solver's state, in a fixed order
    """),
)  # fmt: skip

CLAIMS = File(
    "claims.csv",
    "Made by `lowvar claims`. A row for each statement in `workflow/claims/{experiment}.yaml`; without that file "
    "there are no rows. Intervals are 95 %.",
    columns("""
    id | string | | the claim's own name
    statement | string | | what is claimed
    source | string | | where it is published: table or figure; or `ours`
    published | float64 | the claim's | the published value, or the bound `at_least` or `at_most`; empty for a
    + comparison
    ours | float64 | the claim's | the effect in our results
    low | float64 | the claim's | lower end of its 95 % interval
    high | float64 | the claim's | upper end
    verdict | string | | `holds`, `fails` or `undecided`
    note | string | | a remark from the file of claims, and what was compared: pairs, iterations, budgets, sizes
    """),
)  # fmt: skip

FILES = (STAMP, PREPARED, PROVENANCE, CHECKPOINT, CLAIMS)
