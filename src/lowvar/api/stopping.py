"""A stopping rule by the ELBO's own noise."""


def rule_of(stop):
    """The rule of ``fit``'s argument ``stop``; None without one."""
    if stop is not False:
        raise NotImplementedError
