"""embedding: a lookup of rows, with GatherGrad as its gradient."""

from typing import Any, cast

import torch
from torch import Tensor

from gradloom.errors import InvalidArgument, Unsupported
from gradloom.torch._library import Composite, Kernel, check_differentiable, detached, differentiable, is_plain, records
from gradloom.torch._runtime import handle


def padding_row(name: str, padding_idx: int | None, rows: int) -> int:
    """The row that a padding_idx means; -1: none."""
    if padding_idx is None:
        return -1
    if not -rows <= padding_idx < rows:
        raise InvalidArgument(f"{name}: padding_idx is {padding_idx}; it must be in [{-rows}, {rows - 1}]")
    return padding_idx % rows


def _shares(indices: Tensor, rows: int) -> Tensor:
    """1 over how often each index occurs, in float64."""
    flat = indices.reshape(-1)
    return torch.bincount(flat, minlength=rows).double().reciprocal()[flat].reshape(indices.shape)


def _scaled(values: Tensor, indices: Tensor, rows: int) -> Tensor:
    wide = torch.float64 if values.dtype == torch.float64 else torch.float32
    return values.to(wide) * _shares(indices, rows).to(wide).unsqueeze(-1)


def _backward_cpu(
    grad_output: Tensor, indices: Tensor, num_weights: int, padding_idx: int, scale_grad_by_freq: bool
) -> Tensor:
    grad = detached(grad_output)
    if scale_grad_by_freq:
        grad = _scaled(grad, indices, num_weights)
    result: Tensor = handle("GatherGrad", ("axis", 0))([num_weights, grad.shape[-1]], indices, grad)
    if padding_idx >= 0:
        result[padding_idx].zero_()
    return result.to(grad_output.dtype)


def _save_backward(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    _, indices, ctx.rows, ctx.padding, ctx.scale = inputs
    ctx.save_for_backward(indices)


def _backward_backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    (indices,) = ctx.saved_tensors
    rows = _embedding_op(grad, indices, -1, False)
    if ctx.padding >= 0:
        rows = rows.masked_fill((indices == ctx.padding).unsqueeze(-1), 0)
    if ctx.scale:
        rows = _scaled(rows, indices, ctx.rows).to(rows.dtype)
    return rows, None, None, None, None


embedding_backward = Kernel(
    "embedding_backward(Tensor grad_output, Tensor indices, SymInt num_weights, SymInt padding_idx, "
    "bool scale_grad_by_freq) -> Tensor",
    _backward_cpu,
    lambda grad_output, indices, num_weights, padding_idx, scale_grad_by_freq: grad_output.new_empty(
        (num_weights, grad_output.shape[-1])
    ),
    _save_backward,
    _backward_backward,
)


def _save(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    weight, indices, ctx.padding, ctx.scale = inputs
    ctx.rows = weight.shape[0]
    ctx.save_for_backward(indices)


_recorded = differentiable(
    "embedding",
    lambda weight, indices, padding_idx, scale_grad_by_freq: torch.embedding(weight, indices, padding_idx),
    _save,
    lambda ctx, grad: (
        embedding_backward(grad, *ctx.saved_tensors, ctx.rows, ctx.padding, ctx.scale),
        None,
        None,
        None,
    ),
)


def _embedding(weight: Tensor, indices: Tensor, padding_idx: int = -1, scale_grad_by_freq: bool = False) -> Tensor:
    if not records((weight,)):
        return torch.embedding(weight, indices, padding_idx, scale_grad_by_freq)
    check_differentiable("embedding", weight=weight)
    result: Tensor = _recorded(weight, indices, padding_idx, scale_grad_by_freq)
    return result


_embedding_op = Composite(
    "embedding(Tensor weight, Tensor indices, SymInt padding_idx=-1, bool scale_grad_by_freq=False) -> Tensor",
    _embedding,
)


class _SparseEmbedding(torch.autograd.Function):
    """A lookup whose gradient is a coalesced sparse tensor. No op of torch.library has outputs of a size that it finds
    and of that layout."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, indices: Tensor, padding_idx: int) -> Tensor:
        ctx.save_for_backward(indices)
        ctx.shape, ctx.padding = weight.shape, padding_idx
        return torch.embedding(weight, indices, padding_idx)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        (indices,) = ctx.saved_tensors
        if torch.is_grad_enabled() and grad.requires_grad:  # recorded: PyTorch's own, which has a derivative
            own: Tensor = torch.ops.aten.embedding_sparse_backward(grad, indices, ctx.shape[0], ctx.padding, False)
            return own, None, None
        padding = (("padding_idx", ctx.padding),) if ctx.padding >= 0 else ()
        rows, values = handle("SparseGatherGrad", *padding)(ctx.shape, indices, detached(grad))
        sparse = torch.sparse_coo_tensor(
            rows.unsqueeze(0), values, ctx.shape, is_coalesced=True, check_invariants=False
        )
        return sparse, None, None


def embedding(
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """`torch.nn.functional.embedding`, with GatherGrad as its gradient; with `sparse`, SparseGatherGrad: a coalesced
    sparse tensor; in transforms, and where a gradient of the gradient is wanted, PyTorch's own."""
    if sparse and scale_grad_by_freq:
        raise Unsupported("gradloom::embedding: scale_grad_by_freq with sparse=True")
    padding_idx = padding_row("gradloom::embedding", padding_idx, weight.shape[0])
    if max_norm is not None:
        input = input.contiguous()
        with torch.no_grad():
            torch.embedding_renorm_(weight, input, max_norm, norm_type)
    if sparse and not is_plain((weight, input)):  # in transforms, fake, of another device: as PyTorch has it
        padding = padding_idx if padding_idx >= 0 else None
        return torch.nn.functional.embedding(input, weight, padding, sparse=True)
    if sparse and records((weight,)):
        check_differentiable("embedding", weight=weight)
        return cast(Tensor, _SparseEmbedding.apply(weight, input, padding_idx))
    result: Tensor = _embedding_op(weight, input, padding_idx, scale_grad_by_freq)
    return result


__all__ = ["embedding"]
