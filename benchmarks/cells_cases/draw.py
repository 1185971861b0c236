"""The draw of twelve claims, three of each paper, by a seed that was fixed before any of them was computed again.

Eligible: claims of ``workflow/claims/PREFIX*.yaml`` at ``COMMIT``, in sorted order of files, whose ``source`` is not
``ours``, and whose effect is no cost: no ``evaluation_ratio`` (evaluations), no ``unit`` other than iterations (time),
and not ``of: state_bytes`` (memory). A source such as "ours, beside Table 1" is eligible. ``DRAWN`` is what the draw
gives: it needs the history of the repository.
"""

import subprocess
from pathlib import Path

import numpy as np
import yaml

REPOSITORY = Path(__file__).parents[2]
COMMIT = "39a550c0"
SEED = 20261127
PAPERS = ("joint", "mlmc", "ingo", "vvcv")
EACH = 3


def eligible(paper: str) -> list[str]:
    """The claims of a paper that the draw is from, as ``page:claim``."""
    return [
        f"{Path(name).stem}:{claim['id']}"
        for name in sorted(_git("ls-tree", "--name-only", COMMIT, "workflow/claims/").split())
        if Path(name).match(f"{paper}*.yaml")
        for claim in yaml.safe_load(_git("show", f"{COMMIT}:{name}"))
        if claim["source"] != "ours" and not _cost(claim["test"])
    ]


def _git(*words: str) -> str:
    done = subprocess.run(["git", "-C", REPOSITORY, *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"the draw needs commit {COMMIT} of the repository: {done.stderr.strip()}")
    return done.stdout


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
