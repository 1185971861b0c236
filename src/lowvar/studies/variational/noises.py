"""Which rows of a decomposition speak of which way of drawing noise."""


def first_noise(decomposition):
    """The rows of each problem's first way of drawing noise; all of them where the table does not say.

    Args:
        decomposition: the table of components, with ``eps`` and ``samples`` where there are several ways.
    """
    if "eps" not in decomposition or not len(decomposition):
        return decomposition
    noise = decomposition[["eps", "samples"]]
    first = noise.groupby(decomposition["problem"], sort=False).transform("first")
    return decomposition[(noise == first).all(axis=1)]
