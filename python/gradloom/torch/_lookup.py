"""Lookups by an index along a dim: their gradient scatters, and the gradient of that is the lookup again."""

from collections.abc import Callable
from typing import Any

from torch import Tensor

from gradloom.torch._library import Composite, Kernel, Shape, check_differentiable, differentiable, records

Lookup = Callable[[Tensor, int, Tensor], Tensor]


def lookup(name: str, forward: Lookup, scatter: Callable[[Tensor, Shape, int, Tensor], Tensor]) -> Composite:
    """The op NAME(self, dim, index), with `scatter(grad, shape, dim, index)` as its gradient on the CPU."""

    def save_scatter(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        _, _, ctx.dim, index = inputs
        ctx.save_for_backward(index)

    gradient = Kernel(
        f"{name}_backward(Tensor grad, SymInt[] shape, int dim, Tensor index) -> Tensor",
        scatter,
        lambda grad, shape, dim, index: grad.new_empty(shape),
        save_scatter,
        lambda ctx, grad: (op(grad, ctx.dim, *ctx.saved_tensors), None, None, None),
    )

    def save(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        self, ctx.dim, index = inputs
        ctx.shape = self.shape
        ctx.save_for_backward(index)

    recorded = differentiable(
        name,
        forward,
        save,
        lambda ctx, grad: (gradient(grad, ctx.shape, ctx.dim, *ctx.saved_tensors), None, None),
    )

    def function(self: Tensor, dim: int, index: Tensor) -> Tensor:
        if not records((self,)):
            return forward(self, dim, index)
        check_differentiable(name, input=self)
        result: Tensor = recorded(self, dim, index)
        return result

    op = Composite(f"{name}(Tensor self, int dim, Tensor index) -> Tensor", function)
    return op


__all__ = ["lookup"]
