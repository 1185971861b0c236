"""Two rows of the joint control variate's Table 1 that do not come out: ppca's scaling and movielens' batches.

For ppca, V_n is computed from all rows at the maximum of the likelihood, which is known in closed form, for every
scaling; for some scalings also V, V_n and V_eps at the end of a run of `joint_svrg`, as the experiment joint_table1
computes them. For movielens it is the largest value that the part of V_n for `mu` can have at a batch size.
Usage: `python benchmarks/table1.py [--quick | --smallest] [--scaling NAME]`.

References:
    Wang, Geffner and Domke, "Joint control variate for faster black-box variational inference", 2024, Table 1.
    Tipping and Bishop, "Probabilistic principal component analysis", 1999: the maximum of the likelihood.
"""

import argparse
import sys
from pathlib import Path

import numpy as np
from vi_step import add_sizes, environment, sized, write

import lowvar  # noqa: F401  sets up JAX, so it must be imported first

DATA = Path("data/prepared")
FACTORS, BATCH = 16, 100


def arrays_of(name: str, size: str) -> tuple[dict[str, np.ndarray], str]:
    """A prepared dataset, or simulated data of its kind; and their origin."""
    from lowvar.datasets.load import load

    path = DATA / f"{name}.npz"
    if path.is_file() and size != "smallest":
        return load(path).arrays, str(path)
    rng = np.random.default_rng(0)
    if name.startswith("mnist"):
        x = rng.uniform(size=(400, 40)) * (rng.uniform(size=(400, 40)) < 0.3)
        return {"x": x.astype(np.float32)}, "made"
    return {"x": (rng.uniform(size=(400, 18)) < 0.12).astype(float)}, "made"


def scalings(x: np.ndarray) -> dict[str, np.ndarray]:
    """What "standardized training set" may mean, for pixels ``x`` in [0, 1], ``(N, 784)``."""
    mean, sd = x.mean(0), x.std(0)
    centred = x - mean
    norm = np.linalg.norm(x, axis=1, keepdims=True)
    by_image = (x - x.mean(1, keepdims=True)) / x.std(1, keepdims=True)
    return {
        "x / 255, centred": centred,
        "x / 255, not centred": x,
        "x in 0..255, centred": 255 * centred,
        "x in [-1, 1], centred": 2 * centred,
        "x in [-1, 1], not centred": 2 * x - 1,
        "one mean and sd of all pixels": (x - x.mean()) / x.std(),
        "centred pixels, one sd": centred / x.std(),
        "mean and sd of each pixel": centred / np.where(sd > 0, sd, 1),
        "mean and sd + 0.1 of each pixel": centred / (sd + 0.1),
        "mean and sd + 1 of each pixel": centred / (sd + 1),
        "mean and sd of each pixel, cut off at 3": np.clip(centred / np.where(sd > 0, sd, 1), -3, 3),
        "mean and sd of each image": by_image,
        "mean and sd of each image, centred": by_image - by_image.mean(0),
        "images of norm 1, centred": x / norm - (x / norm).mean(0),
        "black and white, centred": (x > 0.5) - (x > 0.5).mean(0),
    }


RUN = ("x / 255, centred", "x in [-1, 1], centred", "mean and sd of each pixel")  # these have a run of their own


def at_maximum(x: np.ndarray) -> float:
    """V_n of a batch's gradient for ``W`` at the maximum of the likelihood, from all rows.

    The gradient of ``-N log p(x | W)`` is ``-N v u^T`` plus a constant, with ``u = (I + W^T W)^-1 W^T x`` and
    ``v = x - W u``.
    """
    N = len(x)
    values, vectors = np.linalg.eigh(x.T @ x / N)
    values, vectors = values[::-1][:FACTORS], vectors[:, ::-1][:, :FACTORS]
    W = vectors * np.sqrt(np.maximum(values - 1, 0))  # (Tipping and Bishop, eq. 7, with noise of variance 1)
    u = x @ (W @ np.linalg.inv(np.eye(FACTORS) + W.T @ W))
    v = x - u @ W.T
    second = np.mean(np.sum(v * v, 1) * np.sum(u * u, 1))
    return float(N**2 / BATCH * (second - np.sum((v.T @ u / N) ** 2)))


def at_end(x: np.ndarray, size: str) -> dict[str, tuple[float, float, float]]:
    """V, V_n and V_eps of the naive gradient at the end of one run, with intervals over noise draws."""
    from lowvar.analysis.decomposition import along_run, table
    from lowvar.problems.catalogue import build
    from lowvar.studies.variational.engine import follow
    from lowvar.studies.variational.spec import DecompositionSpec
    from lowvar.vi.run.settings import Method, Settings

    epochs = sized(size, 20, 5, 1)
    problem = build("ppca", {"x": x.astype(np.float32)}, "jax", "ppca", **sized(size, {}, {}, {"components": 2}))
    solver = Settings(optimizer="adam", step_sizes=(1e-2,), batch_size=BATCH, epochs=epochs, dtype="float32")
    spec = DecompositionSpec(leader="joint_svrg", step_size=1e-2, epochs=epochs, replicates=4, columns=3, cell=200)
    methods = {name: Method(name) for name in ("naive", "joint_svrg")}
    run, parts = follow(problem, methods, "joint_svrg", solver, seed=0, name="ppca")
    found = along_run(run, {"naive": parts["naive"]}, moments=[epochs], spec=spec, seed=0, name="ppca")
    rows = table(found[found["block"] == "all"], BATCH).set_index("source")
    return {source: tuple(map(float, rows.loc[source, ["variance", "low", "high"]])) for source in rows.index}


def ppca(size: str, only: list[str] | None) -> list[dict]:
    """V_n under every scaling, and the batch size that would give the printed value."""
    from lowvar.studies.variational import published

    arrays, origin = arrays_of("mnist-unit", size)
    printed, rows = published.of(published.VARIANCES, "ppca", "mnist"), []
    print(f"\nppca, {origin}: published V {printed['total']:.3g}, V_n {printed['subsampling']:.3g}, "
          f"V_eps {printed['monte_carlo']:.3g}")  # fmt: skip
    print(f"{'scaling':42s}{'V_n at maximum':>15s}{'batch for published':>21s}   at the end of a run: V, V_n, V_eps")
    for name, x in scalings(arrays["x"].astype(np.float64)).items():
        v_n = at_maximum(x)
        row = {"scaling": name, "v_n": v_n, "batch": BATCH * v_n / printed["subsampling"]}
        if name in (only or RUN):
            row["end"] = at_end(x, size)
        rows.append(row)
        ends = [row["end"][source] for source in ("total", "subsampling", "monte_carlo")] if "end" in row else []
        said = "  ".join(f"{value:.3g} [{low:.3g}, {high:.3g}]" for value, low, high in ends)
        print(f"{name:42s}{v_n:15.3g}{row['batch']:21.4g}   {said}", flush=True)
    return rows


def movielens(size: str) -> list[dict]:
    """The largest possible part of V_n for ``mu``: ``2 N^2 mean |x_n|^2 / B``, as ``|onehot(y) - p|^2 <= 2``."""
    from lowvar.studies.variational import published

    arrays, origin = arrays_of("movielens-none", size)
    x, printed = arrays["x"], published.of(published.VARIANCES, "movielens", "movielens")
    print(f"\nmovielens, {origin}: published V_n {printed['subsampling']:.3g}")
    rows = []
    for batch in (100, 10):
        most = float(2 * len(x) ** 2 * np.mean(np.sum(x.astype(float) ** 2, 1)) / batch)
        rows.append({"batch": batch, "bound": most})
        print(f"batch size {batch:4d}: the part of V_n for mu is at most {most:.3g}")
    return rows


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_sizes(parser, "shorter runs")
    parser.add_argument("--scaling", action="append", help="a scaling that has a run (may be repeated)")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/out/table1.json"), help="JSON file")
    args = parser.parse_args(argv)
    import jax

    jax.config.update("jax_enable_x64", False)
    result = {"environment": environment("float32") | {"device": str(jax.devices()[0])}, "sections": {}}
    result["sections"]["movielens"] = movielens(args.size)
    result["sections"]["ppca"] = ppca(args.size, args.scaling)
    write(args.out, result)
    print(f"\nwrote {args.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
