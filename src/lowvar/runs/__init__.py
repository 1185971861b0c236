"""The loop, checkpoints, stamped artifacts and gradient errors along a run."""
