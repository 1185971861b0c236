"""Cases that a new user might bring to `lowvar`, with their runs and verdicts; see `trust.py`."""
