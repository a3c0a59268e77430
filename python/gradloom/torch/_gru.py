"""The gated recurrent unit: GRUTraining forward, GRUGrad backward.

PyTorch's gates are in the order r, z, n; ONNX's z, r, h. PyTorch's reset gate multiplies the candidate's recurrent
product with its bias: ONNX's linear_before_reset = 1.
"""

from typing import Any

import torch
from torch import Tensor

from gradloom._gradloom import Prepared
from gradloom.errors import InvalidArgument, Unsupported
from gradloom.torch._gru_twice import PARAMETERS, Weights, second_gradients
from gradloom.torch._library import Composite, Kernel, detached
from gradloom.torch._runtime import handle

# One layer: input [S, N, I], hx [D, N, H], lengths [N], then the parameters of each direction.
_LAYER = (
    "Tensor input, Tensor hx, Tensor? lengths, Tensor weight_ih, Tensor weight_hh, Tensor? bias_ih, Tensor? bias_hh, "
    "Tensor? weight_ih_reverse, Tensor? weight_hh_reverse, Tensor? bias_ih_reverse, Tensor? bias_hh_reverse"
)
_LAYER_ARGUMENTS = 11

_EXCHANGED = torch.tensor([1, 0, 2], device="cpu")  # whatever the default device is


def _onnx(hidden: int, weights: Weights) -> tuple[Tensor, Tensor, Tensor | None]:
    """W, R and B of all directions: r, z, n as z, r, n."""
    directions = 1 if weights[PARAMETERS] is None else 2

    def stacked(*kinds: int) -> Tensor:
        given = [weights[PARAMETERS * direction + kind] for direction in range(directions) for kind in kinds]
        parts = [part for part in given if part is not None]
        first = parts[0]
        if len(parts) < len(given) or any(part.shape != first.shape for part in parts):
            raise InvalidArgument("gradloom::gru_layer: the parameters of its directions differ in shape or number")
        if first.shape[0] != 3 * hidden:
            raise InvalidArgument(
                f"gradloom::gru_layer: a parameter has shape {list(first.shape)}; for hx of {hidden} features it must "
                f"have {3 * hidden} rows"
            )
        together = first.new_empty((len(parts), 3, first.numel() // 3))
        for part, place in zip(parts, together, strict=True):
            torch.index_select(part.detach().reshape(place.shape), 0, _EXCHANGED, out=place)
        return together.view(directions, -1, *first.shape[1:])

    return stacked(0), stacked(1), None if weights[2] is None else stacked(2, 3)


def _op(name: str, directions: int, outputs: tuple[str, ...]) -> Prepared:
    direction = "bidirectional" if directions == 2 else "forward"
    return handle(name, ("direction", direction), ("linear_before_reset", 1), ("outputs", outputs))


def _by_direction(output: Tensor, directions: int) -> Tensor:
    """[S, N, D * H] as ONNX's [S, D, N, H]."""
    steps, batch, features = output.shape
    return output.view(steps, batch, directions, features // directions).permute(0, 2, 1, 3)


def _layer_cpu(input: Tensor, hx: Tensor, lengths: Tensor | None, *weights: Tensor | None) -> tuple[Tensor, ...]:
    directions, batch, hidden = hx.shape
    W, R, B = _onnx(hidden, weights)
    call = _op("GRUTraining", directions, ("HAll", "HFinal", "ZRH"))
    inputs = (detached(input), W, R, B, lengths, detached(hx))
    if directions == 1:
        states, final, gates = call(*inputs)
        return states.squeeze(1), final, gates
    # Written as PyTorch's output has them: both directions of a step together.
    output, final, gates = _layer_fake(input, hx, lengths, *weights)
    call(*inputs, out=(_by_direction(output, directions), final, gates))
    return output, final, gates


def _layer_fake(input: Tensor, hx: Tensor, lengths: Tensor | None, *weights: Tensor | None) -> tuple[Tensor, ...]:
    directions, batch, hidden = hx.shape
    steps = input.shape[0]
    return (
        input.new_empty((steps, batch, directions * hidden)),
        hx.new_empty(hx.shape),
        input.new_empty((steps, directions, batch, 3 * hidden)),
    )


def _backward_cpu(*args: Any) -> tuple[Tensor, ...]:
    input, hx, lengths, *weights = args[:_LAYER_ARGUMENTS]
    output, gates, grad_output, grad_hidden, wanted = args[_LAYER_ARGUMENTS:]
    directions, _, hidden = hx.shape
    W, R, B = _onnx(hidden, tuple(weights))
    wants_input, wants_hx, wants_weights = wanted
    names = ["dX"] * wants_input + ["dW", "dR"] * wants_weights + ["dH0"] * wants_hx
    if wants_weights and B is not None:
        names.append("dB")
    states = _by_direction(detached(output), directions)
    grad_states = None if grad_output is None else _by_direction(detached(grad_output), directions)
    grad_final = None if grad_hidden is None else detached(grad_hidden)
    call = _op("GRUGrad", directions, tuple(names))
    dX, dW, dR, dB, dH0 = call(
        detached(input), W, R, B, lengths, detached(hx), states, detached(gates), grad_states, grad_final
    )
    for gradient in (dW, dR, dB):
        if gradient is not None:
            z, r, _ = gradient.view(-1, 3, hidden, *gradient.shape[2:]).unbind(1)
            kept = z.clone()
            z.copy_(r), r.copy_(kept)
    return tuple(input.new_empty(0) if gradient is None else gradient for gradient in (dX, dH0, dW, dR, dB))


def _backward_fake(*args: Any) -> tuple[Tensor, ...]:
    input, hx, _, weight_ih, weight_hh, bias_ih = args[:6]
    wants_input, wants_hx, wants_weights = args[-1]
    directions = hx.shape[0]
    gates = 3 * hx.shape[2]
    wants_biases = wants_weights and bias_ih is not None
    return (
        input.new_empty(input.shape if wants_input else 0),
        hx.new_empty(hx.shape if wants_hx else 0),
        weight_ih.new_empty((directions, *weight_ih.shape) if wants_weights else 0),
        weight_hh.new_empty((directions, *weight_hh.shape) if wants_weights else 0),
        input.new_empty((directions, 2 * gates) if wants_biases else 0),
    )


def _save_backward(ctx: Any, inputs: tuple[Any, ...], outputs: Any) -> None:
    layer = inputs[:_LAYER_ARGUMENTS]
    *_, grad_output, grad_hidden, _ = inputs[_LAYER_ARGUMENTS:]
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*layer, grad_output, grad_hidden)


def _double_backward(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
    *layer, grad_output, grad_hidden = second_gradients(ctx.saved_tensors, grads)
    return *layer, None, None, grad_output, grad_hidden, None


_layer_backward = Kernel(
    f"gru_layer_backward({_LAYER}, Tensor output, Tensor gates, Tensor? grad_output, Tensor? grad_hidden, "
    "bool[3] wanted) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
    _backward_cpu,
    _backward_fake,
    _save_backward,
    _double_backward,
    linear=False,
)


def _save_layer(ctx: Any, inputs: tuple[Any, ...], outputs: tuple[Tensor, ...]) -> None:
    output, _, gates = outputs
    ctx.mark_non_differentiable(gates)
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*inputs, output, gates)


def _backward(ctx: Any, grad_output: Tensor | None, grad_hidden: Tensor | None, _: Any) -> tuple[Any, ...]:
    needed = ctx.needs_input_grad
    parameters = needed[3:]
    wanted = [needed[0], needed[1], any(parameters)]
    gradients = _layer_backward(*ctx.saved_tensors, grad_output, grad_hidden, wanted)
    dX, dH0, dW, dR, dB = gradients
    result = [dX if needed[0] else None, dH0 if needed[1] else None, None]
    for direction in range(2):
        of_direction = parameters[PARAMETERS * direction : PARAMETERS * (direction + 1)]
        bias_ih, bias_hh = dB[direction].chunk(2) if of_direction[2] or of_direction[3] else (None, None)
        result += [dW[direction] if of_direction[0] else None, dR[direction] if of_direction[1] else None]
        result += [bias_ih if of_direction[2] else None, bias_hh if of_direction[3] else None]
    return tuple(result)


_layer = Kernel(
    f"gru_layer({_LAYER}) -> (Tensor, Tensor, Tensor)", _layer_cpu, _layer_fake, _save_layer, _backward, linear=False
)


def _layers(
    input: Tensor,
    hx: Tensor,
    lengths: Tensor | None,
    params: list[Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
) -> tuple[Tensor, Tensor]:
    _check_device(input)
    directions = 2 if bidirectional else 1
    kinds = PARAMETERS if has_biases else 2
    if len(params) != num_layers * directions * kinds:
        raise InvalidArgument(
            f"gradloom::gru: params has {len(params)} tensors; expected {num_layers * directions * kinds}: "
            f"{kinds} for each layer and direction"
        )
    if torch.is_autocast_enabled("cpu"):  # as PyTorch's: the state's dtype is the result's
        dtype = torch.promote_types(hx.dtype, torch.get_autocast_dtype("cpu"))
        input, hx, params = input.to(dtype), hx.to(dtype), [p.to(dtype) for p in params]
    finals = []
    absent = (None,) * (PARAMETERS - kinds)
    for layer, state in enumerate(hx.split(directions)):
        weights: list[Tensor | None] = []
        for direction in range(directions):
            first = (layer * directions + direction) * kinds
            weights += [*params[first : first + kinds], *absent]
        weights += [None] * (2 * PARAMETERS - len(weights))
        input, final, _ = _layer(input, state, lengths, *weights)
        finals.append(final)
        if dropout and train and layer < num_layers - 1:
            input = torch.dropout(input, dropout, True)
    return input, finals[0] if num_layers == 1 else torch.cat(finals)


def _check_device(input: Tensor) -> None:
    if input.device.type not in ("cpu", "meta"):
        raise Unsupported(f"gradloom::gru: input is on device {input.device}; gradloom::gru runs on cpu")


def _gru_input(
    input: Tensor,
    hx: Tensor,
    params: list[Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Tensor, Tensor]:
    if batch_first:
        input = input.transpose(0, 1)
    output, hidden = _layers(input, hx, None, params, has_biases, num_layers, dropout, train, bidirectional)
    return output.transpose(0, 1) if batch_first else output, hidden


def _gru_data(
    data: Tensor,
    batch_sizes: Tensor,
    hx: Tensor,
    params: list[Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
) -> tuple[Tensor, Tensor]:
    padded, lengths = torch._C._VariableFunctions._pad_packed_sequence(data, batch_sizes, False, 0.0, -1)
    output, hidden = _layers(padded, hx, lengths.int(), params, has_biases, num_layers, dropout, train, bidirectional)
    packed, _ = torch._C._VariableFunctions._pack_padded_sequence(output, lengths, False)
    return packed, hidden


_STACK = "Tensor hx, Tensor[] params, bool has_biases, int num_layers, float dropout, bool train, bool bidirectional"

gru_input = Composite(f"gru.input(Tensor input, {_STACK}, bool batch_first) -> (Tensor, Tensor)", _gru_input)
gru_data = Composite(f"gru.data(Tensor data, Tensor batch_sizes, {_STACK}) -> (Tensor, Tensor)", _gru_data)

__all__ = ["gru_data", "gru_input"]
