"""What a step costs by estimator, beside the peers, and what it gains in nats."""

import numpy as np

from lowvar.studies.variational import published

from . import aims as bounds
from .common import NOT_PROFILED, Aim, Measurement, Section, number, ratio, rows_of, table

# --- steps ---------------------------------------------------------------------------------------------------


def steps_kept(found: dict) -> dict:
    kept = {}
    for name, section in found["sections"].items():
        kept[name] = rows_of(section["runs"])
        if "mapped" in section:
            kept[f"{name}, mapped"] = rows_of(section["mapped"])
    return kept


STEPS = Measurement("steps", "vi_step.py --only logistic_jax --only softmax_jax", steps_kept)
STEPS_TORCH = Measurement("steps_torch", "vi_step.py --only logistic_torch", steps_kept)
PEERS = (
    ("logistic_jax", "NumPyro svi.update", "JAX, breast cancer (569 x 30), batch 5", "NumPyro `svi.update`",
     bounds.NUMPYRO_STEP),
    ("logistic_jax", "NumPyro svi.update, batches given", "", "the same, handed lowvar's batches", bounds.NUMPYRO_STEP),
    ("softmax_jax", "NumPyro svi.update", "JAX, softmax regression (60000 x 784 x 10), batch 100",
     "NumPyro `svi.update`", bounds.NUMPYRO_STEP),
    ("softmax_jax", "NumPyro svi.update, batches given", "", "the same, handed lowvar's batches", bounds.NUMPYRO_STEP),
    ("logistic_torch", "Pyro svi.step", "PyTorch, breast cancer, batch 5", "Pyro `svi.step`", bounds.PYRO_STEP),
    ("logistic_torch", "Pyro svi.step, validation off", "", "the same, its validation off", bounds.PYRO_STEP),
)  # fmt: skip
COSTS = ("stl", "cv", "joint", "joint_svrg")


def peers(results: dict, aims: list[Aim]) -> str:
    found = results["steps"] | results["steps_torch"]
    rows = []
    for section, case, what, peer, bound in PEERS:
        one = found[section][case]
        aim = Aim(f"{section}: {case} over `naive`", one[0], bound, below=False)
        aims.append(aim)
        rows.append([what, peer, ratio(one), aim.word])
    speed = {
        name: number(1e6 / found[name]["naive"][3], 3) for name in ("logistic_jax", "softmax_jax", "logistic_torch")
    }
    costs = [
        [title, *(ratio(found[name][case]) if case in found[name] else "" for case in COSTS)]
        for name, title in (("logistic_jax", "JAX, breast cancer"),
                            ("logistic_jax, mapped", "JAX, breast cancer, 45 runs mapped"),
                            ("logistic_torch", "PyTorch, breast cancer"))
    ]  # fmt: skip
    return f"""Time of the peer's step over that of `naive`: above one, lowvar is faster. Both have the same model,
batch, Adam, dtype
(float64) and number of steps; times exclude compilation. NumPyro draws a subsample at every step, which the rows
with lowvar's
batches exclude.

{table(["case", "peer", "ratio", ""], rows)}

`naive` makes {speed["logistic_jax"]} steps a second on breast cancer in JAX, {speed["softmax_jax"]} on the softmax
problem, and
{speed["logistic_torch"]} on breast cancer in PyTorch. Time of a step of other estimators over `naive`, with the full
pass of
`joint_svrg` in each epoch:

{table(["case", *(f"`{case}`" for case in COSTS)], costs)}"""


# --- the tasks of the joint control variate ------------------------------------------------------------------


def joint_kept(found: dict) -> dict:
    return {task: rows_of(section["runs"]) for task, section in found["sections"]["steps"].items()}


def parts_kept(found: dict) -> dict:
    return {task: section["microseconds"] for task, section in found["sections"]["parts"].items()}


def sweeps_kept(found: dict) -> dict:
    if found["missing"]:
        raise ValueError(f"unfinished runs: {', '.join(found['missing'])}; snakemake joint --config scale=paper")
    return {"total": found["total"]}


ONLY = ("cv", "joint", "joint_svrg", "joint_glm", "joint_glm_sigma")
JOINT = Measurement("joint", " ".join(("joint.py --only steps", *(f"--method {name}" for name in ONLY))), joint_kept)
JOINT_FIXED = Measurement(
    "joint_fixed", 'joint.py --only steps --method "joint, fixed batches" --method joint_svrg', joint_kept
)
JOINT_REST = Measurement("joint_rest", "joint.py --only steps --quick", joint_kept)
PARTS = Measurement("joint_parts", "joint.py --only parts --task mnist --task movielens", parts_kept)
MEMORY = Measurement("memory", "joint.py --only memory", lambda found: {
    "above_naive": {row["method"]: row["above_naive"] for row in found["sections"]["memory"]["runs"]},
    "naive": found["sections"]["memory"]["runs"][0]["running"],
    "tables": {row["method"]: row["table"] for row in found["sections"]["memory"]["runs"]},
    "table_of_rows_gb": found["sections"]["memory"]["table_of_rows_gb"],
})  # fmt: skip
SWEEPS = Measurement("sweeps", "joint.py --only sweeps", lambda found: sweeps_kept(found["sections"]["sweeps"]))
TASKS = {"mnist": ("softmax_regression", "mnist"), "ppca": ("ppca", "mnist"), "tennis": ("bradley_terry", "tennis"),
         "movielens": ("movielens", "movielens")}  # fmt: skip
PEER, GIVEN = "NumPyro svi.update", "NumPyro svi.update, batches given"
ORDER = (
    "cv", "joint", "joint, fixed batches", "joint_svrg", "joint_current", "joint_glm", "joint_glm_sigma", "smiso",
    "full_naive", "full_cv", "inc", PEER, GIVEN,
)  # fmt: skip


def joint(results: dict, aims: list[Aim]) -> str:
    """The table of Table 3's methods; cells of the shorter rounds are marked."""
    parts = results["joint_parts"]
    main = {task: results["joint_fixed"][task] | of for task, of in results["joint"].items()}
    rest = results["joint_rest"]
    milliseconds = {task: published.of(published.MILLISECONDS, *key) for task, key in TASKS.items()}
    rows = []
    for case in ORDER:
        cells = []
        for task in TASKS:
            one = main[task].get(case) or rest[task].get(case)
            if not one:
                cells.append("")
                continue
            cell = ratio(one) if len(one) > 2 else number(one[0], 3 if 1 <= one[0] < 2 else 2)
            if case in milliseconds[task]:
                cell += f" ({number(milliseconds[task][case] / milliseconds[task]['naive'], 3)})"
            peer = case in (PEER, GIVEN)
            bound = (
                (bounds.JOINT_PEER.get(task, 1.0) if case == PEER else 1.0) if peer else bounds.JOINT[task].get(case)
            )
            if bound is not None:
                what = f"{task}: {case} over `naive`" if peer else f"{task}: `{case}` over `naive`"
                aim = Aim(what, one[0], bound, below=not peer, limit=_limit(case, task, parts, main, rest))
                aims.append(aim)
                cell += f", {aim.word}"
            cells.append(cell)
        name = case if case in (PEER, GIVEN) else f"`{case}`"
        rows.append([name.replace("`joint, fixed batches`", "`joint`, fixed batches"), *cells])
    naive = [f"{number(main[task]['naive'][3], 3)} ({milliseconds[task]['naive']:g})" for task in TASKS]
    memory = results["memory"]
    above = Aim("mnist: MB of `joint` above `naive`", memory["above_naive"]["joint"], bounds.MEMORY)
    sweeps = Aim("seconds of the sonar and australian sweeps on a core", results["sweeps"]["total"], bounds.SWEEPS)
    aims += [above, sweeps]
    alone = list(parts["mnist"])
    svrg = ", ".join(f"{results['joint_fixed'][task]['joint_svrg'][0]:.2f}" for task in TASKS)

    alone_rows = [[task, *(number(parts[task][name], 3) for name in alone)] for task in parts]
    names = {name: f"a step of `{name}`" for name in ("naive", "joint, fixed batches", "joint_svrg")}
    others = ", ".join(
        f"`{name}` {value:.0f}" for name, value in memory["above_naive"].items() if name not in ("naive", "joint")
    )
    return f"""The four large tasks of the joint control variate's paper: one run, batch 100, Adam, the experiment's
precision. Times
include noise, shuffling and full passes. Brackets of one number hold the ratio that follows from the paper's Table
3, measured on a
GPU. Cells without a range are medians of three short rounds of another day.

{table(["time over `naive`", *TASKS], [["`naive`, µs a step (published ms)", *naive], *rows])}

With fixed batches (`batches: fixed`), a batch reads one stored vector instead of one for each row, and a step needs
one
Hessian-vector product. In the rounds of that row, of another day than the others, `joint_svrg`
took {svrg}. Full batches on ppca are fast because only the data's second moments matter. What the parts
of a step take
alone, each in a loop over an epoch's batches, µs:

{table(["", *(names.get(name, name) for name in alone)], alone_rows)}

**Memory** of a run on mnist, above that of `naive` ({memory["naive"]:.0f} MB), MB: `joint` {above.value:.0f}
({above.word}); {others}.
A vector for each of the 60000 rows would take {memory["table_of_rows_gb"]:.2f} GB. **The sonar and australian
sweeps** (9 step sizes x
10 repetitions x 10000 iterations) of all ten methods take {number(sweeps.value, 3)} s of one core, compilation
included ({sweeps.word}, on two cores)."""


def _limit(case: str, task: str, parts: dict, main: dict, rest: dict) -> str:
    """What keeps a step from its aim, from the parts that were timed alone."""
    if task not in parts:
        return NOT_PROFILED
    of = parts[task]
    if case == PEER:
        shared = ", ".join(f"{part} {number(of[part], 3)}" for part in ("shuffle", "noise", "gradient"))
        return (
            f"on given batches a step of NumPyro takes {number(rest[task][GIVEN][0])} of `naive`, and its draw of a "
            f"batch the rest; of the {number(of['naive'], 3)} µs of `naive`, alone: {shared}"
        )
    more, product = of["gradient without noise"], of["gradient and Hessian-vector product"]
    if case == "joint, fixed batches":
        table, means = of["table of batches"], of["running means"]
        rest = of[case] - of["naive"] - more - product - table - means
        whole = (
            f"alone, these add up to {number(of[case] - rest, 3)}" if rest < 0
            else f"the other {100 * rest / of[case]:.0f} % are in none of these"
        )  # fmt: skip
        return (
            f"of {number(of[case], 3)} µs: a step of `naive` {number(of['naive'], 3)}, a gradient without noise "
            f"{number(more, 3)}, a Hessian-vector product with its gradient {number(product, 3)}, reading and writing "
            f"the table {number(table, 3)}, two running means {number(means, 3)}; {whole}"
        )
    if case != "joint_svrg":
        return NOT_PROFILED
    return (
        f"beside the {number(of['naive'], 3)} µs of `naive`, a Hessian-vector product with its gradient "
        f"({number(product, 3)}): {number((of['naive'] + product) / of['naive'], 3)} times `naive` if nothing is "
        f"shared, without the full pass of each epoch; the whole step takes {number(of['joint_svrg'], 3)} there"
    )


# --- nats ----------------------------------------------------------------------------------------------------


def interval(values) -> tuple[float, float]:
    """Mean and half width of the 95 % t-interval."""
    from scipy.stats import t

    values = np.asarray(values, float)
    half = t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
    return float(values.mean()), float(half)


def defaults_kept(found: dict) -> dict:
    kept = {}
    for name, one in found["models"].items():
        elbos = {method: np.array(values) for method, values in one["elbo"].items()}
        kept[name] = {"naive": float(elbos["naive"].mean()), "seeds": found["seeds"]} | {
            method: [*interval(values - elbos["naive"]), one["time"][method]]
            for method, values in elbos.items()
            if method != "naive"
        }
    return kept


DEFAULTS = Measurement("defaults", "defaults.py", defaults_kept)
FIXED = Measurement("fixed_batches", "fixed_batches.py")
CHOICES = ("joint", "joint_current", "joint_svrg", "joint_adaptive")


def default(results: dict, aims: list[Aim]) -> str:
    rows = [
        [name, f"{one['naive']:.1f}",
         *("{:+.2f} ± {:.2f}, {:.2f}x".format(*one[method]) for method in CHOICES), str(one["seeds"])]
        for name, one in results["defaults"].items()
    ]  # fmt: skip
    fixed = results["fixed_batches"]
    pairs = (("joint", "naive"), ("joint_fixed", "naive"), ("joint_fixed", "joint"))
    nats = [
        [name, *("{:+.2f} ± {:.2f}".format(*interval(np.subtract(one[a], one[b]))) for a, b in pairs)]
        for name, one in fixed["models"].items()
    ]
    return f"""A range of different models with the defaults of `lowvar.fit` (Adam, step size 0.01, 5000 steps,
batches of 100; 10 and 4
for the last two). All methods share starts, batches and noise. A cell shows how far the final ELBO is above naive's,
in nats, with the half width of its 95 % interval over the seeds, and the time of a step over naive's. Float64.

{table(["model", "naive, nats", *(f"`{method}`" for method in CHOICES), "seeds"], rows)}

`joint` and `joint_current` use a table of parameters from earlier steps of an epoch; where the objective is not
convex (`bnn`), the
table can add noise. A snapshot is more recent, and its steps cost less. `joint_adaptive` also has a coefficient for
each
coordinate, which is zero where the control does not help; estimating the coefficients adds a little variance.
Hence `joint_adaptive` is the default. In fits of less than two passes over the data, no memory can repay
its initial
full pass: the default is then `naive`. Intervals of `bnn`, `factors`, `many_rows` and `mixture` are wide because
seeds end in
different optima or have not converged: try several seeds or another `init`.

**Fixed batches.** The same batches in every epoch (`batches: fixed`) make `joint` cheaper. Final ELBOs with them,
{fixed["seeds"]}
seeds, {fixed["steps"]} steps with the same settings, in nats with 95 % intervals of paired differences:

{table(["model", "`joint` above `naive`", "fixed batches above `naive`", "fixed above reshuffled"], nats)}"""


# --- guides and local latent variables -----------------------------------------------------------------------


GUIDES = Measurement("guides", "guides.py --seeds 3 --steps 3000", lambda found: guides_kept(found))
LOCAL = Measurement("local_latents", "local_latents.py", lambda found: local_kept(found))
KINDS = {"none": "none", "first": "first order", "precision": "and second order, by the guide's precision",
         "hessian": "and second order, by the Hessian"}  # fmt: skip


def guides_kept(found: dict) -> dict:
    fits, scale = {}, {}
    for name, one in found.items():
        of = {key.split()[0]: {} for key in one["variance"]}
        for key, values in one["variance"].items():
            method, block = key.split()
            of[method][block] = values
        fits[name] = {"ahead": one["ahead"], "naive": of["naive"]["all"], "joint_adaptive": of["joint_adaptive"]["all"]}
        if name.endswith("full_rank"):
            kinds = {"none": "none", "first": "joint_svrg", "precision": "precision", "hessian": "hessian"}
            scale[name] = [sum(of[kind][block][0] for block in ("log_sigma", "lower")) for kind in kinds.values()]
    return {"fits": fits, "scale": scale}


def local_kept(found: dict) -> dict:
    above = {}
    for name, elbos in found["elbo"].items():
        if name != "numpyro":
            mean, half = interval(np.subtract(elbos, found["elbo"]["numpyro"]))
            above[name] = [mean, mean - half, mean + half]
    seeds = len(found["elbo"]["numpyro"])
    return {key: found[key] for key in ("rows", "steps", "batch")} | {"seeds": seeds, "above": above}


def guides(results: dict, aims: list[Aim]) -> str:
    found = results["guides"]

    def nats(values):
        return "{:+.3g} [{:+.3g}, {:+.3g}]".format(*values)

    rows = [[name, nats(one["ahead"]), *(ratio(one[key], 3) for key in ("naive", "joint_adaptive"))]
            for name, one in found["fits"].items()]  # fmt: skip
    scale = [[name, *(number(value, 3) for value in values)] for name, values in found["scale"].items()]
    return f"""Posteriors of 1000 rows fitted with `lowvar.fit` and with NumPyro's SVI of the same family: Adam, step
size 0.01, 3000 steps
with batches of 50, float32, 3 seeds. The first column is the difference of the final ELBOs, in nats; the others are
total variances
of the gradient, over all parameters, at the last fit: `naive`, which is the gradient of NumPyro's `Trace_ELBO`, and
the default.
Brackets are 95 % intervals.

{table(["posterior, guide", "ELBO above NumPyro's", "`naive`", "`joint_adaptive`"], rows)}

Controls of the scale parameters with `joint_svrg` and the current `sigma`: variance of the blocks `log_sigma` and
`lower` together.

{table(["posterior, full_rank", *KINDS.values()], scale)}

`joint_adaptive` uses the first-order term and the second-order one by the guide's precision, which cost nothing. The
Hessian at the
snapshot costs `dim` passes over all rows in each epoch; no estimator offers it."""


def local(results: dict, aims: list[Aim]) -> str:
    found = results["local_latents"]
    above = "; ".join(f"{name} {{:+.0f}} [{{:+.0f}}, {{:+.0f}}]".format(*of) for name, of in found["above"].items())
    rows = f"{found['rows']:,}".replace(",", " ")
    return f"""A Poisson count of each of {rows} rows with a rate of its own, {found["steps"]} steps with batches of
{found["batch"]}, {found["seeds"]} seeds: final ELBOs above NumPyro's `SVI(AutoNormal)` with dense Adam, in nats with
95 %
intervals, by the kind of Adam and the estimator: {above}. `row_adam`, the default of `fit`, moves a row as far at a
visit as dense
Adam would until the next; `sparse` is the convention of PyTorch's `SparseAdam`."""


SECTIONS = (
    Section("Steps against the peers", (STEPS, STEPS_TORCH), peers),
    Section("Cost of an estimator", (JOINT, JOINT_FIXED, JOINT_REST, PARTS, MEMORY, SWEEPS), joint),
    Section("The default", (DEFAULTS, FIXED), default),
    Section("Guides with correlations", (GUIDES,), guides),
    Section("Latent variables of the rows", (LOCAL,), local),
)
