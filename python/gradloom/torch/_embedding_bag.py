"""embedding_bag: sums, means and maxima of looked-up rows, with EmbeddingBagGrad as the table's gradient."""

from typing import Any

import torch
from torch import Tensor

from gradloom.errors import InvalidArgument, Unsupported
from gradloom.torch._embedding import padding_row
from gradloom.torch._library import Composite, Kernel, check_differentiable, detached, differentiable, is_plain, records
from gradloom.torch._runtime import handle

MODES = ("sum", "mean", "max")

# What says which rows are in which bag, in all ops here. padding_idx: -1 for none.
_BAGS = (
    "Tensor indices, Tensor offsets, Tensor? per_sample_weights, Tensor? max_indices, SymInt num_weights, int mode, "
    "SymInt padding_idx, bool include_last_offset, bool scale_grad_by_freq"
)


def _backward_cpu(
    grad: Tensor,
    indices: Tensor,
    offsets: Tensor,
    per_sample_weights: Tensor | None,
    max_indices: Tensor | None,
    num_weights: int,
    mode: int,
    padding_idx: int,
    include_last_offset: bool,
    scale_grad_by_freq: bool,
) -> Tensor:
    attributes: list[tuple[str, Any]] = [
        ("mode", MODES[mode]),
        ("include_last_offset", int(include_last_offset)),
        ("scale_grad_by_freq", int(scale_grad_by_freq)),
    ]
    if padding_idx >= 0:
        attributes.append(("padding_idx", padding_idx))
    weights = None if per_sample_weights is None else detached(per_sample_weights)
    result: Tensor = handle("EmbeddingBagGrad", *attributes)(
        [num_weights, grad.shape[-1]], indices, offsets, detached(grad), weights, max_indices
    )
    return result


def _bag_of(indices: Tensor, offsets: Tensor) -> Tensor:
    """The bag of each position."""
    positions = torch.arange(indices.numel(), device=offsets.device, dtype=offsets.dtype)
    return torch.searchsorted(offsets.contiguous(), positions, right=True) - 1


def _frequencies(indices: Tensor, rows: int, like: Tensor) -> Tensor:
    return torch.bincount(indices, minlength=rows).clamp(min=1).to(like.dtype).unsqueeze(-1)


def _bags(table: Tensor, bags: tuple[Any, ...]) -> Tensor:
    """What the forward pass makes of the table, for the very rows that it chose."""
    indices, offsets, weights, max_indices, _, mode, padding, last, _ = bags
    if MODES[mode] != "max":
        return torch.embedding_bag(
            table, indices, offsets, False, mode, False, weights, last, padding if padding >= 0 else None
        )[0]
    # Where a bag has no row, the maximum is 0.
    first = offsets[:-1] if last else offsets
    named = indices != padding
    count = torch.zeros_like(first).index_add_(0, _bag_of(indices, first), named.to(first.dtype))
    return table.gather(0, max_indices.long()) * (count > 0).to(table.dtype).unsqueeze(-1)


def _save_backward(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    grad, indices, offsets, weights, max_indices, *ctx.rest = inputs
    ctx.save_for_backward(grad, indices, offsets, weights, max_indices)


def _backward_backward(ctx: Any, table: Tensor) -> tuple[Any, ...]:
    grad, indices, offsets, weights, max_indices = ctx.saved_tensors
    rows, _, padding, last, scale = ctx.rest
    if scale:
        table = table / _frequencies(indices, rows, table)
    of_grad = _bags(table, (indices, offsets, weights, max_indices, *ctx.rest))
    of_weights = None
    if ctx.needs_input_grad[3]:
        of_weights = _of_weights(grad, table, indices, offsets, padding, last)
    return of_grad, None, None, of_weights, *[None] * 6


_embedding_bag_backward = Kernel(
    f"embedding_bag_backward(Tensor grad, {_BAGS}) -> Tensor",
    _backward_cpu,
    lambda grad, indices, offsets, weights, max_indices, num_weights, *rest: grad.new_empty(
        (num_weights, grad.shape[-1])
    ),
    _save_backward,
    _backward_backward,
    linear=False,
)


def _of_weights(grad: Tensor, table: Tensor, indices: Tensor, offsets: Tensor, padding: int, last: bool) -> Tensor:
    """The gradient of per_sample_weights, by PyTorch's ops."""
    bag = _bag_of(indices, offsets[:-1] if last else offsets)
    products = (grad.index_select(0, bag) * table.index_select(0, indices)).sum(-1)
    return products.masked_fill(indices == padding, 0) if padding >= 0 else products


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    table, indices, offsets, weights, mode, padding, last, scale = inputs
    ctx.mark_non_differentiable(output[1])
    max_indices = output[1] if MODES[mode] == "max" else None
    ctx.rest = (table.shape[0], mode, padding, last, scale)
    ctx.save_for_backward(table if ctx.needs_input_grad[3] else None, indices, offsets, weights, max_indices)


def _backward(ctx: Any, grad: Tensor, _: Any) -> tuple[Any, ...]:
    table, indices, offsets, weights, max_indices = ctx.saved_tensors
    _, _, padding, last, _ = ctx.rest
    of_table = of_weights = None
    if ctx.needs_input_grad[0]:
        of_table = _embedding_bag_backward(grad, indices, offsets, weights, max_indices, *ctx.rest)
    if ctx.needs_input_grad[3]:
        of_weights = _of_weights(grad, table, indices, offsets, padding, last)
    return of_table, None, None, of_weights, None, None, None, None


def _forward(
    table: Tensor,
    indices: Tensor,
    offsets: Tensor,
    weights: Tensor | None,
    mode: int,
    padding: int,
    last: bool,
    scale: bool,
) -> tuple[Tensor, Tensor]:
    result, _, _, max_indices = torch.embedding_bag(
        table, indices, offsets, scale, mode, False, weights, last, padding if padding >= 0 else None
    )
    return result, max_indices


_recorded = differentiable("embedding_bag", _forward, _save, _backward, linear=False)


def _embedding_bag(
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    per_sample_weights: Tensor | None,
    mode: int,
    padding_idx: int,
    include_last_offset: bool,
    scale_grad_by_freq: bool,
) -> Tensor:
    args = (weight, indices, offsets, per_sample_weights, mode, padding_idx, include_last_offset, scale_grad_by_freq)
    if not records((weight, per_sample_weights)):
        return _forward(*args)[0]
    check_differentiable("embedding_bag", weight=weight, per_sample_weights=per_sample_weights)
    result: Tensor = _recorded(*args)[0]
    return result


_embedding_bag_op = Composite(
    "embedding_bag(Tensor weight, Tensor indices, Tensor offsets, Tensor? per_sample_weights, int mode, "
    "SymInt padding_idx, bool include_last_offset, bool scale_grad_by_freq) -> Tensor",
    _embedding_bag,
)


def embedding_bag(
    input: Tensor,
    weight: Tensor,
    offsets: Tensor | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Tensor:
    """`torch.nn.functional.embedding_bag`, with EmbeddingBagGrad as the gradient of `weight`."""
    name = "gradloom::embedding_bag"
    if sparse:
        raise Unsupported(f"{name}: sparse is True; only dense gradients are computed")
    if mode not in MODES:
        raise InvalidArgument(f"{name}: mode is {mode!r}; expected sum, mean or max")
    if scale_grad_by_freq and mode == "max":
        raise Unsupported(f"{name}: scale_grad_by_freq with mode max")
    if per_sample_weights is not None and (mode != "sum" or per_sample_weights.shape != input.shape):
        raise InvalidArgument(f"{name}: per_sample_weights go with mode sum, and have the shape of input")
    if input.dim() == 2:
        if offsets is not None:
            raise InvalidArgument(f"{name}: input has rank 2, so that its rows are the bags; offsets must be None")
        offsets = torch.arange(input.shape[0], dtype=input.dtype, device=input.device) * input.shape[1]
        if include_last_offset:
            offsets = torch.cat((offsets, offsets.new_full((1,), input.numel())))
        input = input.reshape(-1)
        per_sample_weights = None if per_sample_weights is None else per_sample_weights.reshape(-1)
    elif input.dim() != 1 or offsets is None or offsets.dim() != 1:
        raise InvalidArgument(f"{name}: input has rank {input.dim()}; expected 2, or 1 with a vector of offsets")
    if is_plain((input, offsets)) and not torch.compiler.is_compiling():
        # PyTorch leaves out of all bags what is beyond the last offset, or where there is no bag.
        end = 0 if not offsets.numel() else int(offsets[-1]) if include_last_offset else input.numel()
        if 0 <= end < input.numel():
            input = input[:end]
            per_sample_weights = None if per_sample_weights is None else per_sample_weights[:end]
    padding_idx = padding_row(name, padding_idx, weight.shape[0])
    if max_norm is not None:
        with torch.no_grad():
            torch.embedding_renorm_(weight, input, max_norm, norm_type)
    result: Tensor = _embedding_bag_op(
        weight,
        input,
        offsets,
        per_sample_weights,
        MODES.index(mode),
        padding_idx,
        include_last_offset,
        scale_grad_by_freq,
    )
    return result


__all__ = ["embedding_bag"]
