"""The spec, the loop, checkpoints and the trace."""
