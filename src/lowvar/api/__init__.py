"""The public face: Bayesian models (``variational``) and black-box search (``search``, ``searcher``)."""
