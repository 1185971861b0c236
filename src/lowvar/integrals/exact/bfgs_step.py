"""One evaluation of many small minimisations: accept or shorten the step, and update the Hessian."""

import torch

from lowvar.integrals.exact.products import times

ARMIJO = 1e-4  # share of the decrease promised by the slope that a step must bring


def held_back(state):
    """Variables at a bound that the gradient pushes against."""
    at_lower = (state["x"] <= state["lower"]) & (state["gradient"] > 0)
    return at_lower | ((state["x"] >= state["upper"]) & (state["gradient"] < 0))


def step(function, state, which, tolerances):
    """One evaluation of each problem; problems that are finished stay as they are."""
    x, value, gradient, hessian = (state[name] for name in ("x", "value", "gradient", "hessian"))
    held, going = held_back(state), ~state["finished"]
    free = torch.where(held, 0.0, gradient)
    mask = ~(held[:, :, None] | held[:, None, :])
    system = torch.where(mask, hessian, 0.0) + torch.diag_embed(held.to(x.dtype))
    direction = -torch.linalg.solve_ex(system, free).result
    direction = direction * (tolerances[2] / direction.abs().amax(-1, keepdim=True).clamp(min=tolerances[2]))
    trial = torch.minimum(torch.maximum(x + state["share"][:, None] * direction, state["lower"]), state["upper"])
    change = trial - x
    slope = (gradient * change).sum(-1)
    new_value, new_gradient = function(trial, which)
    good = new_value.isfinite() & new_gradient.isfinite().all(-1) & (new_value <= value + ARMIJO * slope)
    accepted = going & good & (slope < 0)
    share = torch.where(accepted, 1.0, state["share"] * _shorter(value, new_value, slope))
    turned = torch.where(accepted[:, None], new_gradient, gradient) - gradient
    now = state | {
        "x": torch.where(accepted[:, None], trial, x), "value": torch.where(accepted, new_value, value),
        "gradient": gradient + turned, "hessian": _updated(hessian, change, turned, accepted, state["first"]),
        "share": torch.where(going, share, state["share"]), "first": state["first"] & ~accepted,
        "steps": state["steps"] + going,
    }  # fmt: skip
    little = (-slope < tolerances[1]) | (accepted & (value - new_value < tolerances[1]))
    small = torch.where(going, torch.where(little, state["small"] + 1, 0), state["small"])
    flat = torch.where(held_back(now), 0.0, now["gradient"]).abs().amax(-1) <= tolerances[0]
    converged = going & (flat | (small >= 2))
    finished = state["finished"] | converged | (share < 1e-10)
    return now | {"small": small, "converged": state["converged"] | converged, "finished": finished}


def _shorter(value, new_value, slope):
    """By what to multiply a step that was too long: the parabola's minimum, between a tenth and a half."""
    bend = new_value - value - slope
    return torch.where(bend.isfinite() & (bend > 0), -slope / (2 * bend), 0.1).clamp(0.1, 0.5)


def _updated(hessian, change, turned, accepted, first):
    """BFGS with Powell's damping: along the step, curvature falls to a fifth at most and stays positive."""
    along = (change * turned).sum(-1)
    squared = (change * change).sum(-1)
    scaled = first & accepted & (along > 0)
    eye = torch.eye(hessian.shape[-1], dtype=hessian.dtype, device=hessian.device)
    ratio = torch.where(scaled, along / torch.where(accepted, squared, 1.0), 1.0)
    hessian = torch.where(scaled[:, None, None], ratio[:, None, None] * eye, hessian)
    image = times(hessian, change[:, :, None])[:, :, 0]
    curvature = torch.where(accepted, (change * image).sum(-1), 1.0)
    damping = torch.where(along < 0.2 * curvature, 0.8 * curvature / (curvature - along), 1.0)[:, None]
    turned = damping * turned + (1 - damping) * image
    along = torch.where(accepted, (change * turned).sum(-1), 1.0)
    new = hessian - image[:, :, None] * image[:, None, :] / curvature[:, None, None]
    new = new + turned[:, :, None] * turned[:, None, :] / along[:, None, None]
    return torch.where(accepted[:, None, None], new, hessian)
