"""relu, gelu, softmax and log_softmax: PyTorch's forward pass, and the gradient that is derived from the op's nest.

The gradient reads one tensor beside the upstream gradient: the argument, or the result.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from gradloom.torch._formula import gradients_by
from gradloom.torch._library import Composite, Kernel, check_differentiable, detached, differentiable, records_backward
from gradloom.torch._runtime import Attribute, handle


def _function(
    schema: str,
    forward: Callable[..., Tensor],
    gradient_op: Callable[..., tuple[str, tuple[Attribute, ...]]],
    formula: Callable[..., Tensor],
    *,
    keeps_result: bool,
) -> tuple[Composite, Kernel]:
    """The op and its gradient. `schema` is NAME(Tensor self, OPTIONS...) -> Tensor.

    `gradient_op(*options)` names the op and its attributes; `formula(grad, kept, *options)` says the same in PyTorch's
    ops, for the gradient of the gradient.
    """
    name, _, rest = schema.partition("(")

    def backward_cpu(grad: Tensor, kept: Tensor, *options: Any) -> Tensor:
        op, attributes = gradient_op(*options)
        grad, kept = detached(grad), detached(kept)
        if grad.dim():
            result: Tensor = handle(op, *attributes)(grad, kept)
            return result
        of_one: Tensor = handle(op, *attributes)(grad.reshape(1), kept.reshape(1))
        return of_one.reshape(())

    def save_backward(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        grad, kept, *ctx.options = inputs
        ctx.save_for_backward(grad, kept)

    def backward_backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        found = gradients_by(lambda *both: formula(*both, *ctx.options), ctx.saved_tensors, (grad,))
        return *found, *(None,) * len(ctx.options)

    gradient = Kernel(
        f"{name}_backward(Tensor grad, {rest.replace('Tensor self', 'Tensor kept', 1)}",
        backward_cpu,
        lambda grad, kept, *options: grad.new_empty(grad.shape),
        save_backward,
        backward_backward,
        linear=False,
    )

    def save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        self, *ctx.options = inputs
        ctx.dtype = self.dtype
        ctx.save_for_backward(output if keeps_result else self)

    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        (kept,) = ctx.saved_tensors  # autocast may compute in another dtype than the argument's
        return gradient(grad, kept.to(grad.dtype), *ctx.options).to(ctx.dtype), *(None,) * len(ctx.options)

    recorded = differentiable(name, forward, save, backward, linear=False)

    def function(self: Tensor, *options: Any) -> Tensor:
        if not records_backward((self,)):  # PyTorch has the forward-mode derivative
            return forward(self, *options)
        check_differentiable(name, input=self)
        result: Tensor = recorded(self, *options)
        return result

    return Composite(schema, function), gradient


def _softmax_formula(grad: Tensor, result: Tensor, dim: int) -> Tensor:
    return (grad - (grad * result).sum(dim, True)) * result


_relu_op, _ = _function(
    "relu(Tensor self) -> Tensor",
    torch.relu,
    lambda: ("ReluGrad", ()),
    lambda grad, result: torch.where(result > 0, grad, 0),
    keeps_result=True,
)
_gelu_op, _ = _function(
    "gelu(Tensor self, str approximate) -> Tensor",
    lambda self, approximate: torch.nn.functional.gelu(self, approximate=approximate),
    lambda approximate: ("FastGeluGrad" if approximate == "tanh" else "GeluGrad", ()),
    lambda grad, self, approximate: torch.ops.aten.gelu_backward.default(grad, self, approximate=approximate),
    keeps_result=False,
)
_softmax_op, _ = _function(
    "softmax(Tensor self, int dim) -> Tensor",
    lambda self, dim: torch.softmax(self, dim),
    lambda dim: ("SoftmaxGrad_13", (("axis", dim),)),
    _softmax_formula,
    keeps_result=True,
)
_log_softmax_op, log_softmax_backward = _function(
    "log_softmax(Tensor self, int dim) -> Tensor",
    lambda self, dim: torch.log_softmax(self, dim),
    lambda dim: ("LogSoftmaxGrad_13", (("axis", dim),)),
    lambda grad, result, dim: grad - result.exp() * grad.sum(dim, True),
    keeps_result=True,
)


def relu(input: Tensor) -> Tensor:
    """`torch.relu`, with ReluGrad as its gradient: 0 at 0 and of a NaN."""
    result: Tensor = _relu_op(input)
    return result


def gelu(input: Tensor, *, approximate: str = "none") -> Tensor:
    """`torch.nn.functional.gelu`, with GeluGrad as its gradient; with `approximate="tanh"`, FastGeluGrad."""
    result: Tensor = _gelu_op(input, approximate)
    return result


def softmax(input: Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Tensor:
    """`torch.softmax`, with SoftmaxGrad_13 as its gradient."""
    result: Tensor = _softmax_op(input if dtype is None else input.to(dtype), dim)
    return result


def log_softmax(input: Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Tensor:
    """`torch.log_softmax`, with LogSoftmaxGrad_13 as its gradient."""
    result: Tensor = _log_softmax_op(input if dtype is None else input.to(dtype), dim)
    return result


__all__ = ["gelu", "log_softmax", "log_softmax_backward", "relu", "softmax"]
