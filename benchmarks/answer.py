"""Which method is first to the answer: CPU seconds, nats below the best, and errors of standard deviations.

    python benchmarks/answer.py --record           # eight models, and logistic regression with 1e2 to 1e6 rows
    python benchmarks/answer.py --only models --model robust
    python benchmarks/answer.py --picture          # draws docs/figures/answer.png from the record

Each method fits twice: the first time compiles, and the second one is timed, with a further seed. Methods: the default
of ``fit``; stochastic steps of it, at the constant step size 0.01 and along a cosine from 0.05; NumPyro's
``SVI(AutoNormal, Trace_ELBO, Adam)``, alike. ELBOs are by the same draws on all rows. Standard deviations are compared
with those of the highest ELBO: the root mean square of the relative errors.
"""

import json
import time
import warnings

import common  # noqa: F401  first: it limits the libraries to one thread
import jax
import numpy as np
import numpyro
import optax
from answer_cases import CASES, logistic
from common import RECORDS, REPOSITORY, arguments, finish, sized

import lowvar

STEPS = 20_000
ROWS, DIM = (10**2, 10**3, 10**4, 10**5, 10**6), 20
PICTURE = REPOSITORY / "docs/figures/answer.png"
DRAWS, EVALUATED = 2000, 2e8  # of an ELBO at most; rows times draws


def falling(steps):
    """A cosine from 0.05 to 0."""
    return optax.cosine_decay_schedule(0.05, decay_steps=steps)


def of_fit(**settings):
    """``lowvar.fit``: seconds, and parameters."""

    def run(model, data, seed):
        fit = lowvar.fit(model, data, seed=seed, progress=False, khat_samples=0, **settings)
        return fit.guide_params

    return run


def of_svi(rate, steps):
    """NumPyro's SVI, its steps compiled once."""
    programs = {}

    def run(model, data, seed):
        from numpyro.infer import SVI, Trace_ELBO
        from numpyro.infer.autoguide import AutoNormal

        if model not in programs:
            svi = SVI(model, AutoNormal(model), numpyro.optim.optax_to_numpyro(optax.adam(rate)), Trace_ELBO())

            @jax.jit
            def params(state, data):
                return svi.get_params(
                    jax.lax.scan(lambda s, _: (svi.update(s, **data)[0], None), state, None, steps)[0]
                )

            programs[model] = svi, params
        svi, params = programs[model]
        on_device = {name: jax.numpy.asarray(value) for name, value in data.items()}
        found = params(svi.init(jax.random.key(seed), **on_device), on_device)
        return lowvar.problem(model, data, init={name: np.asarray(value) for name, value in found.items()}).start

    return run


def methods(steps):
    """Methods by name."""
    return {
        "fit": of_fit(),
        "steps at 0.01": of_fit(num_steps=steps),
        "steps, cosine": of_fit(num_steps=steps, step_size=falling(steps)),
        "SVI at 0.01": of_svi(0.01, steps),
        "SVI, cosine": of_svi(falling(steps), steps),
    }


def measured(name, model, data, steps) -> dict:
    """A case of the record."""
    seconds, params = {}, {}
    for method, run in methods(steps).items():
        run(model, data, 0)
        start = time.process_time()
        params[method] = run(model, data, 1)
        seconds[method] = time.process_time() - start
    problem = lowvar.problem(model, data)
    eps = np.random.default_rng(1).standard_normal((int(np.clip(EVALUATED // problem.N, 32, DRAWS)), problem.dim))
    elbo = jax.jit(lambda p, eps: problem.elbo(p, eps)[0])
    nats = {
        method: float(elbo({k: jax.numpy.asarray(v, problem.dtype) for k, v in one.items()},
                           jax.numpy.asarray(eps, problem.dtype)))
        for method, one in params.items()
    }  # fmt: skip
    best = max(nats, key=nats.__getitem__)
    numbers = {}
    for method, one in params.items():
        off = np.expm1(one["log_sigma"] - params[best]["log_sigma"])
        said = f"s, {nats[best] - nats[method]:.2f} nats below, sd off by {np.sqrt(np.mean(off**2)):.1%}"
        numbers[method] = {"value": seconds[method], "note": said, "nats": nats[method] - nats[best]}
    case = {"case": name, "unit": "CPU s after compilation", "against": "fit", "numbers": numbers}
    print(case, flush=True)
    return case


def picture() -> None:
    """The record's ``rows`` as docs/figures/answer.png: seconds, and nats below the best, of each method."""
    import matplotlib.pyplot as plt

    cases = [one for one in json.loads((RECORDS / "answer.json").read_text("utf-8")) if "rows" in one["case"]]
    cases.sort(key=lambda case: float(case["case"].split()[1]))
    rows = [float(case["case"].split()[1]) for case in cases]
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
    for k, method in enumerate(cases[0]["numbers"]):
        numbers = [case["numbers"][method] for case in cases]
        look = {"color": f"C{k}", "marker": "osv^D"[k], "markersize": 4, "linestyle": "-" if k == 0 else "--"}
        left.loglog(rows, [one["value"] for one in numbers], label=method, **look)
        right.loglog(rows, [max(-one["nats"], 0.01) for one in numbers], **look)
    left.set(xlabel="rows", ylabel="CPU seconds, after compilation")
    left.set_yticks(ticks := [0.2, 0.5, 1, 2, 5], [f"{one:g}" for one in ticks])
    left.yaxis.set_minor_formatter("")
    right.set(xlabel="rows", ylabel="nats below the best (or 0.01)")
    right.axhline(1, color="0.7", linewidth=0.8, zorder=0)
    figure.legend(loc="outside upper center", ncols=5, frameon=False, fontsize=8)
    figure.savefig(PICTURE, dpi=120)
    plt.close(figure)
    print(f"wrote {PICTURE}")


def main() -> None:
    parser = arguments(__doc__, "answer", ("models", "rows"))
    parser.add_argument("--model", action="append", choices=CASES, help="of `models` (may be repeated)")
    parser.add_argument("--at", type=float, action="append", help="this number of `rows` (may be repeated)")
    parser.add_argument("--picture", action="store_true", help=f"only draw {PICTURE.name} from the record")
    args = parser.parse_args()
    if args.picture:
        picture()
        return
    warnings.simplefilter("ignore")
    steps, cases = sized(args.size, STEPS, 5000, 20), []
    if "models" in (args.only or ["models"]):
        for name in args.model or sized(args.size, [*CASES], [*CASES], ["robust"]):
            cases.append(measured(name, *CASES[name](), steps))
    if "rows" in (args.only or ["rows"]):
        for N in map(int, args.at or sized(args.size, ROWS, ROWS[:4], ROWS[:1])):
            cases.append(measured(f"logistic, {N:.0e} rows", *logistic(N, DIM, 1 / np.sqrt(DIM)), steps))
    finish(args, "answer", cases)


if __name__ == "__main__":
    main()
