"""The searches of the INGO paper that only its comparisons and theorems use, by entry points of ``lowvar.searches``."""
