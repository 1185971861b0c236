"""Time and precision of ``lowvar.decompose`` by the number of rows.

Logistic regression with 50 features at a fit of 2000 steps, batches of 100, the default estimators, a first call with
compilation. CPU seconds. The precision is the half width of a 95 % interval of a total variance of all parameters,
relative to that variance.
"""

import time
import warnings

import common  # noqa: F401  first: it limits the libraries to one thread
import fits
import jax
from common import arguments, finish, sized

import lowvar

ROWS, DIM, STEPS = (10**3, 2 * 10**5), 50, 2000


def measured(N: int, dim: int, steps: int) -> list[dict]:
    """Seconds and precision of a decomposition."""
    model, data = fits.logistic(N, dim)
    fit = lowvar.fit(model, data, num_steps=steps, khat_samples=0, elbo_samples=4, progress=False)
    jax.clear_caches()
    start = time.process_time()
    noise = lowvar.decompose(model, data, fit, progress=False)
    seconds, name = time.process_time() - start, f"{N:,} rows".replace(",", " ")
    table = noise.table[(noise.table["source"] == "total") & (noise.table["block"] == "all")]
    half = {row.method: 100 * (row.high - row.low) / 2 / row.variance for row in table.itertuples(index=False)}
    return [
        {"case": name, "unit": "CPU s", "numbers": {"a first call": {"value": seconds}}},
        {"case": f"{name}: half width of the interval of a total variance", "unit": "%",
         "numbers": {method: {"value": float(one)} for method, one in half.items()}},
    ]  # fmt: skip


def main() -> None:
    parser = arguments(__doc__, "decompose")
    parser.add_argument("--rows", type=float, action="append", help="this number of rows (may be repeated)")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    jax.config.update("jax_enable_compilation_cache", False)
    cases = []
    for N in map(int, args.rows or sized(args.size, ROWS, ROWS[:1], (200,))):
        cases += measured(N, sized(args.size, DIM, DIM, 3), sized(args.size, STEPS, STEPS, 20))
    finish(args, "decompose", cases)


if __name__ == "__main__":
    main()
