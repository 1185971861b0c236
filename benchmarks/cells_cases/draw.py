"""The draw of twelve claims, three of each paper, by a seed that was fixed before any of them was computed again.

Eligible: claims of ``workflow/claims/PREFIX*.yaml``, in sorted order of files, whose ``source`` is not ``ours``, and
whose effect is no cost: no ``evaluation_ratio`` (evaluations), no ``unit`` other than iterations (time), and not ``of:
state_bytes`` (memory). ``DRAWN`` is what the draw gave on 27 November 2026; the claims files may change later.
"""

from pathlib import Path

import numpy as np
import yaml

CLAIMS = Path(__file__).parents[2] / "workflow/claims"
SEED = 20261127
PAPERS = ("joint", "mlmc", "ingo", "vvcv")
EACH = 3


def eligible(paper: str) -> list[str]:
    """The claims of a paper that the draw is from, as ``page:claim``."""
    return [
        f"{path.stem}:{claim['id']}"
        for path in sorted(CLAIMS.glob(f"{paper}*.yaml"))
        for claim in yaml.safe_load(path.read_text("utf-8"))
        if claim["source"] != "ours" and not _cost(claim["test"])
    ]


def _cost(test: dict) -> bool:
    return test["effect"] == "evaluation_ratio" or "unit" in test or test.get("of") == "state_bytes"


def draw() -> list[str]:
    """Three claims of each paper."""
    drawn = []
    for number, paper in enumerate(PAPERS):
        claims = eligible(paper)
        order = np.random.default_rng([SEED, number]).permutation(len(claims))
        drawn += [claims[at] for at in order[:EACH]]
    return drawn


DRAWN = (
    "joint_mnist:fewer-iterations-mnist",
    "joint_table1:lowest-along-sonar",
    "joint_table1:table1-mnist-monte-carlo",
    "mlmc:conditional-variance-blr",
    "mlmc:elbo-bnn",
    "mlmc_tuned:elbo-blr",
    "ingo_steps:normalised-stays-discus",
    "ingo_rl:faster-than-es-half-cheetah",
    "ingo_rates:orthogonal-kink",
    "vvcv_unbalanced:swapped-no-gain-60",
    "vvcv_table2:table2-paper-vv-fixed-150",
    "vvcv_lotka:table3-paper-cf-5",
)

if __name__ == "__main__":
    print("\n".join(draw()))
