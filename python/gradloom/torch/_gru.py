"""The gated recurrent unit: GRUTraining forward, GRUGrad backward.

PyTorch's gates are in the order r, z, n, its reset gate multiplies the candidate's recurrent product and its bias:
ONNX's order is z, r, h, and that is its linear_before_reset = 1.
"""

from typing import Any

import torch
from torch import Tensor

from gradloom.errors import InvalidArgument, Unsupported
from gradloom.torch._library import LIBRARY, Composite, Kernel, check_differentiable, detached, records
from gradloom.torch._runtime import Attribute, handle

# input_size's weights, hidden_size's, biases of both: of the forward direction, then of the reverse one.
_LAYER = (
    "Tensor input, Tensor hx, Tensor? lengths, Tensor weight_ih, Tensor weight_hh, Tensor? bias_ih, Tensor? bias_hh, "
    "Tensor? weight_ih_reverse, Tensor? weight_hh_reverse, Tensor? bias_ih_reverse, Tensor? bias_hh_reverse"
)
_WEIGHTS = 8


def _exchanged(gates: list[Tensor]) -> list[Tensor]:
    """r, z, n as z, r, n, and back."""
    exchanged = []
    for start in range(0, len(gates), 3):
        exchanged += [gates[start + 1], gates[start], gates[start + 2]]
    return exchanged


def _onnx(*weights: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
    """W, R and B of all directions."""
    directions = 1 if weights[4] is None else 2
    hidden, size = weights[1].shape[1], weights[0].shape[1]

    def stacked(kinds: tuple[int, ...]) -> Tensor:
        parts: list[Tensor] = []
        for direction in range(directions):
            for kind in kinds:
                parts += weights[4 * direction + kind].detach().split(hidden)
        return torch.cat(_exchanged(parts))

    W = stacked((0,)).view(directions, 3 * hidden, size)
    R = stacked((1,)).view(directions, 3 * hidden, hidden)
    return W, R, None if weights[2] is None else stacked((2, 3)).view(directions, 6 * hidden)


def _attributes(directions: int) -> tuple[Attribute, ...]:
    return ("direction", "bidirectional" if directions == 2 else "forward"), ("linear_before_reset", 1)


def _layer_cpu(
    input: Tensor, hx: Tensor, lengths: Tensor | None, *weights: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    W, R, B = _onnx(*weights)
    results: tuple[Tensor, Tensor, Tensor] = handle("GRUTraining", *_attributes(W.shape[0]))(
        detached(input), W, R, B, lengths, detached(hx)
    )
    return results


def _layer_fake(
    input: Tensor, hx: Tensor, lengths: Tensor | None, *weights: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    directions, batch, hidden = hx.shape
    states = input.new_empty((input.shape[0], directions, batch, hidden))
    return states, hx.new_empty(hx.shape), input.new_empty((input.shape[0], directions, batch, 3 * hidden))
