"""Second gradients by PyTorch's ops: slow, and right to any order."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from gradloom.torch._library import SIXTEEN_BITS


def gradients_by(
    formula: Callable[..., Any], inputs: Sequence[Tensor | None], grads: Sequence[Tensor | None]
) -> list[Tensor | None]:
    """Gradients of `inputs` from those of what `formula` makes of them; None for what takes or has none.

    What is of 16 bits is computed in float32.
    `formula` gives None for a value whose gradient says nothing.
    """
    places = [i for i, tensor in enumerate(inputs) if tensor is not None and tensor.is_floating_point()]
    upstream: list[Tensor] = []

    def values(*floats: Tensor) -> tuple[Tensor, ...]:
        """Those that have an upstream gradient, which are put into `upstream`."""
        full = list(inputs)
        for place, tensor in zip(places, floats, strict=True):
            full[place] = tensor.float() if tensor.dtype in SIXTEEN_BITS else tensor
        found = formula(*full)
        pairs = zip(found if isinstance(found, tuple) else (found,), grads, strict=True)
        kept = [(value, grad) for value, grad in pairs if value is not None and grad is not None]
        upstream[:] = [grad for _, grad in kept]
        return tuple(value.to(grad.dtype) for value, grad in kept)

    of: Any = [inputs[place] for place in places]
    if torch._C._are_functorch_transforms_active():
        pullback = torch.func.vjp(values, *of)[1]
        gradients: Any = pullback(tuple(upstream))
    else:
        with torch.enable_grad():
            aliases = [tensor.view_as(tensor) for tensor in of]  # of which a gradient can be taken
            aliases = [alias if alias.requires_grad else alias.requires_grad_() for alias in aliases]
            results = values(*aliases)
        gradients = torch.autograd.grad(
            results, aliases, upstream, create_graph=torch.is_grad_enabled(), allow_unused=True
        )
    by_place = dict(zip(places, gradients, strict=True))
    return [by_place.get(place) for place in range(len(inputs))]


__all__ = ["gradients_by"]
