"""index_select and index_add: an index a slice. The scatter is GatherGrad."""

from typing import Any

import torch
from torch import Tensor

from gradloom.errors import InvalidArgument
from gradloom.torch._indices import INDEX_DTYPES, check_not_negative, wrapped_dim
from gradloom.torch._library import DTYPES, Kernel, Shape, check_differentiable, detached
from gradloom.torch._lookup import lookup
from gradloom.torch._runtime import handle


def _index_select_backward_cpu(grad: Tensor, shape: Shape, dim: int, index: Tensor) -> Tensor:
    call = handle("GatherGrad", ("axis", dim))
    grad, index = detached(grad), detached(index).reshape(-1)
    if not shape:
        of_one: Tensor = call([1], index, grad.reshape(-1))
        return of_one.reshape(())
    result: Tensor = call(shape, index, grad)
    return result


_index_select_op = lookup(
    "index_select", lambda self, dim, index: torch.index_select(self, dim, index), _index_select_backward_cpu
)


def index_select(input: Tensor, dim: int, index: Tensor) -> Tensor:
    """`torch.index_select`, with GatherGrad as its gradient."""
    result: Tensor = _index_select_op(input, dim, index)
    return result


def _index_add_cpu(self: Tensor, dim: int, index: Tensor, source: Tensor, alpha: float = 1) -> Tensor:
    if self.dtype not in DTYPES:
        return torch.index_add(self, dim, index, source, alpha=alpha)
    _check_add(self, dim, index, source)
    out = self.detach().clone(memory_format=torch.contiguous_format)
    if index.numel() == 0:
        return out
    check_not_negative("index_add", index, self.shape[dim] if self.dim() else 1)
    source, index = detached(source), index.reshape(-1)
    into = out if self.dim() else out.reshape(1)
    if self.dim() == 0:
        source = source.reshape(1).expand(index.numel())
    if alpha != 1:
        source = source * alpha
    handle("GatherGrad", ("axis", dim), ("accumulate", True))(into.shape, index, source, out=into)
    return out


def _check_add(self: Tensor, dim: int, index: Tensor, source: Tensor) -> None:
    if self.dtype != source.dtype:
        raise InvalidArgument(f"gradloom::index_add: source has dtype {source.dtype}; expected input's, {self.dtype}")
    if index.dim() > 1 or index.dtype not in INDEX_DTYPES:
        raise InvalidArgument(
            f"gradloom::index_add: index has rank {index.dim()} and dtype {index.dtype}; expected a vector of int32 "
            "or int64"
        )
    axis = wrapped_dim("index_add", dim, self.dim())
    wanted = [index.numel() if d == axis else size for d, size in enumerate(self.shape)]
    if list(source.shape) != wanted:
        raise InvalidArgument(
            f"gradloom::index_add: source has shape {list(source.shape)}; for input {list(self.shape)}, dim {dim} and "
            f"{index.numel()} indices it must have {wanted}"
        )


def _index_add_fake(self: Tensor, dim: int, index: Tensor, source: Tensor, alpha: float = 1) -> Tensor:
    _check_add(self, dim, index, source)
    return torch.empty_like(self, memory_format=torch.contiguous_format)


def _save_add(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    self, ctx.dim, index, source, ctx.alpha = inputs
    check_differentiable("index_add", input=self, source=source)
    ctx.shape = source.shape
    ctx.save_for_backward(index)


def _add_backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    if not ctx.needs_input_grad[3]:
        return grad, None, None, None, None
    (index,) = ctx.saved_tensors
    of_source = _index_select_op(grad, ctx.dim, index).reshape(ctx.shape)
    return grad, None, None, of_source if ctx.alpha == 1 else of_source * ctx.alpha, None


_index_add = Kernel(
    "index_add(Tensor self, int dim, Tensor index, Tensor source, Scalar alpha=1) -> Tensor",
    _index_add_cpu,
    _index_add_fake,
    _save_add,
    _add_backward,
)


def index_add(input: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: float = 1) -> Tensor:
    """`torch.index_add`: GatherGrad, added to a copy of `input`; the gradient of `source` is an index_select."""
    result: Tensor = _index_add(input, dim, index, source, alpha)
    return result


__all__ = ["index_add", "index_select"]
