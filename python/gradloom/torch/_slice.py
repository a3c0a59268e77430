"""slice, narrow and select: views, with SliceGrad as their gradient."""

from typing import Any

import torch
from torch import Tensor

from gradloom.torch._library import Composite, Kernel, Shape, check_differentiable, detached, differentiable, records
from gradloom.torch._runtime import handle

_TO_THE_END = 2**63 - 1


def _slice_backward_cpu(grad: Tensor, shape: Shape, dim: int, start: int, end: int, step: int) -> Tensor:
    result: Tensor = handle("SliceGrad")(detached(grad), shape, [start], [end], [dim], [step])
    return result


def _save_slice_backward(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    ctx.where = inputs[2:]


slice_backward = Kernel(
    "slice_backward(Tensor grad, SymInt[] shape, int dim, SymInt start, SymInt end, SymInt step) -> Tensor",
    _slice_backward_cpu,
    lambda grad, shape, dim, start, end, step: grad.new_empty(shape),
    _save_slice_backward,
    lambda ctx, grad: (_slice_op(grad, *ctx.where), *(None,) * 5),
)


def _save_slice(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    self, *ctx.where = inputs
    ctx.shape = self.shape


_recorded_slice = differentiable(
    "slice",
    lambda self, dim, start, end, step: torch.ops.aten.slice.Tensor(self, dim, start, end, step),
    _save_slice,
    lambda ctx, grad: (slice_backward(grad, ctx.shape, *ctx.where), *(None,) * 4),
)


def _slice(self: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> Tensor:
    start, end = 0 if start is None else start, _TO_THE_END if end is None else end
    if not records((self,)):
        view: Tensor = torch.ops.aten.slice.Tensor(self, dim, start, end, step)
        return view
    check_differentiable("slice", input=self)
    result: Tensor = _recorded_slice(self, dim, start, end, step)
    return result


def _narrow(self: Tensor, dim: int, start: int, length: int) -> Tensor:
    if not records((self,)):
        return torch.narrow(self, dim, start, length)
    check_differentiable("narrow", input=self)
    self.narrow(dim, start, length)  # PyTorch's own checks
    start = start + self.shape[dim] if start < 0 else start
    result: Tensor = _recorded_slice(self, dim, start, start + length, 1)
    return result


def _select(self: Tensor, dim: int, index: int) -> Tensor:
    if not records((self,)):
        return torch.select(self, dim, index)
    check_differentiable("select", input=self)
    torch.select(self, dim, index)
    index = index + self.shape[dim] if index < 0 else index
    result: Tensor = _recorded_slice(self, dim, index, index + 1, 1).squeeze(dim)
    return result


_slice_op: Composite = Composite(
    "slice(Tensor(a) self, int dim=0, SymInt? start=None, SymInt? end=None, SymInt step=1) -> Tensor(a)", _slice
)
_narrow_op = Composite("narrow(Tensor(a) self, int dim, SymInt start, SymInt length) -> Tensor(a)", _narrow)
_select_op = Composite("select(Tensor(a) self, int dim, SymInt index) -> Tensor(a)", _select)


def slice(input: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> Tensor:
    """`input[..., start:end:step, ...]` along `dim`, a view, with SliceGrad as its gradient."""
    result: Tensor = _slice_op(input, dim, start, end, step)
    return result


def narrow(input: Tensor, dim: int, start: int | Tensor, length: int) -> Tensor:
    """`torch.narrow`, a view, with SliceGrad as its gradient."""
    result: Tensor = _narrow_op(input, dim, int(start) if isinstance(start, Tensor) else start, length)
    return result


def select(input: Tensor, dim: int, index: int) -> Tensor:
    """`torch.select`, a view, with SliceGrad as its gradient."""
    result: Tensor = _select_op(input, dim, index)
    return result


__all__ = ["narrow", "select", "slice"]
