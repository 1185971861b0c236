"""Public interface: Bayesian models (``variational``), black-box search (``search``, ``searcher``), ``integral``."""
