"""The gradient of a GRU layer's gradient, by PyTorch's ops: slow, and right to any order."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from gradloom.torch._formula import gradients_by

PARAMETERS = 4  # of a direction: weight_ih, weight_hh, bias_ih, bias_hh
Weights = tuple[Tensor | None, ...]


def _layer(input: Tensor, hx: Tensor, lengths: Tensor | None, weights: Sequence[Any]) -> tuple[Tensor, Tensor]:
    """Step by step: outputs [S, N, D * H] and last states [D, N, H]."""
    runs: Any = None  # [S, N, 1]: whether a sequence has that step
    if lengths is not None:
        runs = (torch.arange(input.shape[0], device=input.device).unsqueeze(1) < lengths).unsqueeze(-1)
    outputs, finals = [], []
    for direction, state in enumerate(hx):
        weight_ih, weight_hh, bias_ih, bias_hh = weights[PARAMETERS * direction : PARAMETERS * (direction + 1)]
        of_input = torch.nn.functional.linear(input, weight_ih, bias_ih)
        steps = range(input.shape[0])
        states: dict[int, Tensor] = {}
        for step in reversed(steps) if direction else steps:
            of_state = torch.nn.functional.linear(state, weight_hh, bias_hh)
            reset, update, candidate = of_input[step].chunk(3, -1)
            reset_state, update_state, candidate_state = of_state.chunk(3, -1)
            new = (candidate + (reset + reset_state).sigmoid() * candidate_state).tanh()
            after = torch.lerp(new, state, (update + update_state).sigmoid())
            if runs is None:
                states[step] = state = after
            else:
                states[step] = after.masked_fill(~runs[step], 0)
                state = torch.where(runs[step], after, state)
        outputs.append(torch.stack([states[step] for step in steps]))
        finals.append(state)
    return torch.cat(outputs, -1), torch.stack(finals)


def second_gradients(saved: Sequence[Tensor | None], grads: Sequence[Tensor | None]) -> list[Tensor | None]:
    """Gradients of a layer's arguments and its two upstream gradients, `saved`, from those of its five gradients.

    The states and gates that GRUGrad is given are functions of the layer's arguments here.
    """

    def gradients(*arguments: Any) -> tuple[Tensor | None, ...]:
        input, hx, lengths, *weights, grad_output, grad_hidden = arguments
        pairs = zip(_layer(input, hx, lengths, weights), (grad_output, grad_hidden), strict=True)
        values, upstream = zip(*((value, g) for value, g in pairs if g is not None), strict=True)
        leaves = [t for t in (input, hx, *weights) if t is not None]
        found = torch.autograd.grad(values, leaves, upstream, create_graph=True)
        first = {id(leaf): gradient for leaf, gradient in zip(leaves, found, strict=True)}
        directions = [weights[:PARAMETERS], weights[PARAMETERS:]][: hx.shape[0]]

        def stacked(kind: int) -> Tensor:
            return torch.stack([first[id(parameters[kind])] for parameters in directions])

        biases = None if weights[2] is None else torch.cat([stacked(2), stacked(3)], -1)
        return first[id(input)], first[id(hx)], stacked(0), stacked(1), biases

    return gradients_by(gradients, saved, grads)


__all__ = ["PARAMETERS", "Weights", "second_gradients"]
