"""gather, take_along_dim and scatter_add: an index an element. The scatter is GatherElementsGrad."""

from typing import Any

import torch
from torch import Tensor

from gradloom.errors import InvalidArgument, Unsupported
from gradloom.torch._expand import expand
from gradloom.torch._indices import INDEX_DTYPES, check_not_negative, wrapped_dim
from gradloom.torch._library import DTYPES, Composite, Kernel, Shape, check_differentiable, detached, is_plain
from gradloom.torch._lookup import lookup
from gradloom.torch._runtime import handle
from gradloom.torch._slice import narrow


def _gather_backward_cpu(grad: Tensor, shape: Shape, dim: int, index: Tensor) -> Tensor:
    if index.numel() == 0:  # of any rank, in PyTorch
        return grad.new_zeros(shape)
    call = handle("GatherElementsGrad", ("axis", dim))
    grad, index = detached(grad), detached(index)
    if not shape or not index.dim():  # a scalar is a vector of one element
        of_one: Tensor = call(grad.reshape(-1), shape or [1], index.reshape(-1))
        return of_one.reshape(tuple(shape))
    result: Tensor = call(grad, shape, index)
    return result


_gather_op = lookup("gather", lambda self, dim, index: torch.gather(self, dim, index), _gather_backward_cpu)


def gather(input: Tensor, dim: int, index: Tensor, *, sparse_grad: bool = False) -> Tensor:
    """`torch.gather`, with GatherElementsGrad as its gradient."""
    if sparse_grad:
        raise Unsupported("gradloom::gather: sparse_grad is True; only dense gradients are computed")
    result: Tensor = _gather_op(input, dim, index)
    return result


def _take_along_dim(self: Tensor, indices: Tensor, dim: int | None = None) -> Tensor:
    if dim is None:
        flat: Tensor = _gather_op(self.reshape(-1), 0, _wrapped(indices.reshape(-1), self.numel()))
        return flat
    if self.dim() != indices.dim():
        raise InvalidArgument(
            f"gradloom::take_along_dim: input has {self.dim()} dims and indices {indices.dim()}; expected as many"
        )
    axis = wrapped_dim("take_along_dim", dim, self.dim())
    common = torch.broadcast_shapes(_without(self.shape, axis), _without(indices.shape, axis))

    def with_axis(sizes: Shape) -> list[int]:
        return [*common[:axis], *sizes[axis : axis + 1], *common[axis:]]

    if list(self.shape) != with_axis(self.shape):
        self = expand(self, with_axis(self.shape))
    indices = _wrapped(indices, self.shape[axis] if self.dim() else 1)
    result: Tensor = _gather_op(self, axis, indices.expand(with_axis(indices.shape)))
    return result


def _without(shape: Shape, axis: int) -> Shape:
    return (*shape[:axis], *shape[axis + 1 :])


def _wrapped(indices: Tensor, size: int) -> Tensor:
    """Negative indices counted from the end; gather refuses what is then still out of range."""
    if not torch.compiler.is_compiling() and is_plain((indices,)) and (indices.numel() == 0 or int(indices.min()) >= 0):
        return indices
    return torch.where(indices < 0, indices + size, indices)


_take_along_dim_op = Composite("take_along_dim(Tensor self, Tensor indices, int? dim=None) -> Tensor", _take_along_dim)


def take_along_dim(input: Tensor, indices: Tensor, dim: int | None = None) -> Tensor:
    """`torch.take_along_dim`, with GatherElementsGrad as its gradient."""
    result: Tensor = _take_along_dim_op(input, indices, dim)
    return result


def _scatter_add_cpu(self: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    if self.dtype not in DTYPES:
        return torch.scatter_add(self, dim, index, src)
    _check_scatter(self, dim, index, src)
    out = self.detach().clone(memory_format=torch.contiguous_format)
    if index.numel() == 0:
        return out
    check_not_negative("scatter_add", index, self.shape[dim] if self.dim() else 1)
    src, into = detached(src), out
    if not self.dim() or not index.dim():
        src, index, into = src.reshape(-1), index.reshape(-1), out.reshape(-1)
    handle("GatherElementsGrad", ("axis", dim), ("accumulate", True))(src, into.shape, index, out=into)
    return out


def _check_scatter(self: Tensor, dim: int, index: Tensor, src: Tensor) -> None:
    if self.dtype != src.dtype:
        raise InvalidArgument(f"gradloom::scatter_add: src has dtype {src.dtype}; expected input's, {self.dtype}")
    axis = wrapped_dim("scatter_add", dim, self.dim())
    if index.numel() == 0:
        return
    if index.dtype not in INDEX_DTYPES:
        raise InvalidArgument(f"gradloom::scatter_add: index has dtype {index.dtype}; expected int32 or int64")
    sizes = [(*t.shape,) if t.dim() else (1,) for t in (self, index, src)]
    within = len(sizes[0]) == len(sizes[1]) == len(sizes[2]) and all(
        i == s and (d == axis or i <= n) for d, (n, i, s) in enumerate(zip(*sizes, strict=True))
    )
    if not within:
        raise InvalidArgument(
            f"gradloom::scatter_add: index has shape {list(index.shape)}; it must fit into src {list(src.shape)} and, "
            f"but for dim {dim}, into input {list(self.shape)}"
        )


def _scatter_add_fake(self: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    _check_scatter(self, dim, index, src)
    return torch.empty_like(self, memory_format=torch.contiguous_format)


_scatter_add = Kernel(
    "scatter_add(Tensor self, int dim, Tensor index, Tensor src) -> Tensor",
    _scatter_add_cpu,
    _scatter_add_fake,
    lambda ctx, inputs, output: _save_scatter(ctx, inputs),
    lambda ctx, grad: _scatter_backward(ctx, grad),
)


def _save_scatter(ctx: Any, inputs: tuple[Any, ...]) -> None:
    self, ctx.dim, index, src = inputs
    check_differentiable("scatter_add", input=self, src=src)
    ctx.save_for_backward(index)


def _scatter_backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    wanted = ctx.needs_input_grad[3]
    return grad, None, None, _gather_op(grad, ctx.dim, *ctx.saved_tensors) if wanted else None


def scatter_add(input: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    """`torch.scatter_add`: GatherElementsGrad, added to a copy of `input`; the gradient of `src` is a gather."""
    if src.dim() == index.dim() == input.dim():
        for d, size in enumerate(index.shape):
            if src.shape[d] > size:
                src = narrow(src, d, 0, size)
    result: Tensor = _scatter_add(input, dim, index, src)
    return result


__all__ = ["gather", "scatter_add", "take_along_dim"]
