"""The example of the R package ZVCV with lowvar's integrators: ``python benchmarks/zvcv.py VDP.rda``.

``VDP.rda`` is the package's data set, at https://github.com/LeahPrice/ZVCV/tree/master/data; to read it,
``pip install rdata``. Without a file, a problem of the same form with independent draws: gamma posteriors of counts.
"""

import argparse
import json
import warnings
from pathlib import Path

import numpy as np
from scipy.special import gammaln

import lowvar

METHODS = {
    "monte_carlo": {},
    **{f"zero_variance {order}": {"order": order} for order in (1, 2, 3, 4)},
    "auto": {},
}


def published(path):
    """ZVCV's data, and the answers of its manual."""
    import rdata

    data = {str(name): np.asarray(array) for name, array in rdata.read_rda(path)["VDP"].items()}
    points = np.moveaxis(data["samples"], 2, 0)
    slopes = np.moveaxis(data["der_loglike"], 2, 0), np.moveaxis(data["der_logprior"], 2, 0)
    return data["temperatures"], points, *slopes, data["loglike"].T, (0.9852, 10.36)


def made(seed=0, number=50):
    """Counts 3, 5, 4 of a Poisson rate with the prior gamma(2, 1), in the coordinate log rate."""
    rng, temperatures = np.random.default_rng(seed), np.linspace(0, 1, 8) ** 3
    points = np.log(rng.gamma(2 + 12 * temperatures[:, None], 1 / (1 + 3 * temperatures[:, None]), (8, number)))[
        ..., None
    ]
    rate = np.exp(points)
    log_likelihood = (12 * points - 3 * rate)[..., 0] - gammaln([4, 6, 5]).sum()
    evidence = gammaln(14) - 14 * np.log(4) - gammaln([4, 6, 5]).sum()
    return temperatures, points, 12 - 3 * rate, 2 - rate, log_likelihood, (14 / 4, evidence)


def estimates(method, options, temperatures, points, likelihood_slopes, prior_slopes, log_likelihood):
    """The posterior mean and the log evidence, each with its standard error."""
    name = method.split()[0]
    posterior = likelihood_slopes[-1] * temperatures[-1] + prior_slopes[-1]
    mean = lowvar.integrate(points[-1], posterior, np.exp(points[-1, :, 0]), name, exact_scores=True, **options)
    total, variance = 0.0, 0.0
    for k in range(len(temperatures) - 1):
        step = (temperatures[k + 1] - temperatures[k]) * log_likelihood[k]
        scores = temperatures[k] * likelihood_slopes[k] + prior_slopes[k]
        found = lowvar.integrate(points[k], scores, np.exp(step - step.max()), name, exact_scores=True, **options)
        total += np.log(found.value[0]) + step.max()
        variance += (found.standard_error[0] / found.value[0]) ** 2
    return float(mean.value[0]), float(mean.standard_error[0]), float(total), float(np.sqrt(variance))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", nargs="?")
    parser.add_argument("--smallest", action="store_true", help="polynomials alone")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    *problem, (mean, evidence) = published(args.file) if args.file else made()
    print(f"{'method':16} {'posterior mean':>16} {'error':>9} {'log evidence':>13} {'error':>9}")
    print(f"{'answer':16} {mean:16.7f} {'':9} {evidence:13.4f}")
    table = {"answer": [mean, None, float(evidence), None]}
    for method, options in METHODS.items():
        if args.smallest and method == "auto":
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            table[method] = estimates(method, options, *problem)
        value, error, total, spread = table[method]
        print(f"{method:16} {value:16.7f} {error:9.1e} {total:13.4f} {spread:9.1e}")
    if args.out:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(json.dumps({"file": args.file, "table": table}))


if __name__ == "__main__":
    main()
