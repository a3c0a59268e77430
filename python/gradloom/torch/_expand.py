"""expand and sum_to_size, each the other's gradient. The sum is BroadcastGrad."""

from typing import Any

import torch
from torch import Tensor

from gradloom.torch._library import (
    DTYPES,
    Composite,
    Kernel,
    Shape,
    check_differentiable,
    detached,
    differentiable,
    records,
)
from gradloom.torch._runtime import handle


def _expand_backward_cpu(grad: Tensor, shape: Shape) -> Tensor:
    result: Tensor = handle("BroadcastGrad")(detached(grad), shape)
    return result


def _save_shape(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    ctx.shape = inputs[0].shape


expand_backward = Kernel(
    "expand_backward(Tensor grad, SymInt[] shape) -> Tensor",
    _expand_backward_cpu,
    lambda grad, shape: grad.new_empty(shape),
    _save_shape,
    lambda ctx, grad: (_expand_op(grad, ctx.shape), None),
)

_recorded_expand = differentiable(
    "expand",
    lambda self, size: self.expand(size),
    _save_shape,
    lambda ctx, grad: (expand_backward(grad, ctx.shape), None),
)


def _expand(self: Tensor, size: Shape) -> Tensor:
    if not records((self,)):
        return self.expand(size)
    check_differentiable("expand", input=self)
    result: Tensor = _recorded_expand(self, size)
    return result


def _sum_to_size(self: Tensor, size: Shape) -> Tensor:
    if self.dtype not in DTYPES:
        return self.sum_to_size(size)
    if list(self.shape) == list(size):
        same: Tensor = torch.ops.aten.alias.default(self)
        return same
    result: Tensor = expand_backward(self, size)
    return result


_expand_op: Composite = Composite("expand(Tensor(a) self, SymInt[] size) -> Tensor(a)", _expand)
_sum_to_size_op = Composite("sum_to_size(Tensor(a) self, SymInt[] size) -> Tensor(a)", _sum_to_size)


def _size_of(size: tuple[Any, ...]) -> Any:
    return size[0] if len(size) == 1 and not isinstance(size[0], int | torch.SymInt) else size


def expand(input: Tensor, *size: int | Shape) -> Tensor:
    """`input.expand(*size)`, a view, with BroadcastGrad as its gradient."""
    result: Tensor = _expand_op(input, _size_of(size))
    return result


def sum_to_size(input: Tensor, *size: int | Shape) -> Tensor:
    """`input.sum_to_size(*size)` by BroadcastGrad; its gradient is an expand."""
    result: Tensor = _sum_to_size_op(input, _size_of(size))
    return result


__all__ = ["expand", "sum_to_size"]
