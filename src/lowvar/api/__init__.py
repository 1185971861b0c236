"""The public face: Bayesian models (``variational``), black-box search (``search``, ``searcher``), ``integral``."""
