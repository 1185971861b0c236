"""Several estimators along one run: one leads; the others get its noise and parameters, and keep their own memories."""

from collections.abc import Mapping

from lowvar.vi.estimators.base import Estimator


def following(leader: str, estimators: Mapping[str, Estimator]) -> Estimator:
    """The leader's gradients, with a state ``{name: state}`` of all ``estimators``.

    This compares the variances of several estimators at the same parameters, each with the memory of such a run.
    """
    lead = estimators[leader]

    def estimate(state, params, noise):
        results = {name: one.estimate(state[name], params, noise) for name, one in estimators.items()}
        return results[leader][0], {name: state for name, (_, state) in results.items()}

    return Estimator(
        leader,
        lead.problem,
        lead.properties,
        lambda params: {name: one.init(params) for name, one in estimators.items()},
        estimate,
        lambda state, params: {name: one.begin_epoch(state[name], params) for name, one in estimators.items()},
        lambda state, index: {name: one.end_epoch(state[name], index) for name, one in estimators.items()},
    )
