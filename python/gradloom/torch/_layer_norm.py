"""layer_norm: PyTorch's forward pass, and LayerNormalizationGrad."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from gradloom.torch._formula import gradients_by
from gradloom.torch._library import (
    SIXTEEN_BITS,
    Composite,
    Kernel,
    Shape,
    check_differentiable,
    detached,
    differentiable,
    records_backward,
)
from gradloom.torch._runtime import handle

_GRADIENTS = ("X_grad", "scale_grad", "bias_grad")


def _ones(input: Tensor, rank: int, dtype: torch.dtype) -> Tensor:
    return input.new_ones((), dtype=dtype).expand(input.shape[input.dim() - rank :])


def _backward_cpu(
    grad: Tensor,
    input: Tensor,
    weight: Tensor | None,
    mean: Tensor,
    rstd: Tensor,
    rank: int,
    eps: float,
    wanted: Sequence[bool],
) -> tuple[Tensor, ...]:
    names = tuple(name for name, wants in zip(_GRADIENTS, wanted, strict=True) if wants)
    call = handle("LayerNormalizationGrad", ("axis", -rank), ("outputs", names))
    scale = _ones(input, rank, input.dtype) if weight is None else detached(weight)
    gradients = call(detached(grad), detached(input), scale, detached(mean), detached(rstd))
    return tuple(input.new_empty(0) if gradient is None else gradient for gradient in gradients)


def _backward_fake(_: Tensor, input: Tensor, weight: Tensor | None, *rest: Any) -> tuple[Tensor, ...]:
    _, _, rank, _, (of_input, of_weight, of_bias) = rest
    parameter = input if weight is None else weight
    shape = input.shape[input.dim() - rank :]
    return (
        input.new_empty(input.shape if of_input else 0),
        (parameter if of_weight else input).new_empty(shape if of_weight else 0),
        (parameter if of_bias else input).new_empty(shape if of_bias else 0),
    )


def _save_backward(ctx: Any, inputs: tuple[Any, ...], outputs: Any) -> None:
    grad, input, weight, _, _, ctx.rank, ctx.eps, ctx.wanted = inputs
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(grad, input, weight)


def _double_backward(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
    def gradients(grad: Tensor, input: Tensor, weight: Tensor | None) -> tuple[Tensor | None, ...]:
        """With the mean and the deviation as functions of `input`."""
        dims = tuple(range(-ctx.rank, 0))
        rows = tuple(range(input.dim() - ctx.rank))
        center = input - input.mean(dims, True)
        inverse = (center.square().mean(dims, True) + ctx.eps).rsqrt()
        normal = center * inverse
        scaled = grad if weight is None else grad * weight
        projected = normal * (scaled * normal).mean(dims, True)
        of_weight, of_bias = (grad * normal, grad) if not rows else ((grad * normal).sum(rows), grad.sum(rows))
        every = (scaled - scaled.mean(dims, True) - projected) * inverse, of_weight, of_bias
        return tuple(value if wants else None for value, wants in zip(every, ctx.wanted, strict=True))

    return *gradients_by(gradients, ctx.saved_tensors, grads), *(None,) * 5


_backward_op = Kernel(
    "layer_norm_backward(Tensor grad, Tensor input, Tensor? weight, Tensor mean, Tensor rstd, int rank, float eps, "
    "bool[3] wanted) -> (Tensor, Tensor, Tensor)",
    _backward_cpu,
    _backward_fake,
    _save_backward,
    _double_backward,
    linear=False,
)


def _forward(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, shape: Shape, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    dtypes = {parameter.dtype for parameter in (weight, bias) if parameter is not None}
    if input.dtype in SIXTEEN_BITS and dtypes in (set(), {input.dtype}):
        # With parameters of float32 PyTorch keeps the mean and the deviation so, too.
        weight = _ones(input, len(shape), torch.float32) if weight is None else weight.float()
        bias = None if bias is None else bias.float()
    return torch.native_layer_norm(input, shape, weight, bias, eps)


def _save(ctx: Any, inputs: tuple[Any, ...], outputs: tuple[Tensor, ...]) -> None:
    input, weight, bias, shape, ctx.eps = inputs
    _, mean, rstd = outputs
    ctx.rank = len(shape)
    ctx.bias_dtype = None if bias is None else bias.dtype
    ctx.mark_non_differentiable(mean, rstd)
    ctx.save_for_backward(input, weight, mean, rstd)


def _backward(ctx: Any, grad: Tensor, *_: Any) -> tuple[Any, ...]:
    input, weight, mean, rstd = ctx.saved_tensors
    wanted = ctx.needs_input_grad[:3]
    found = _backward_op(grad.to(input.dtype), input, weight, mean, rstd, ctx.rank, ctx.eps, list(wanted))
    of_input, of_weight, of_bias = (value if wants else None for value, wants in zip(found, wanted, strict=True))
    return of_input, of_weight, None if of_bias is None else of_bias.to(ctx.bias_dtype), None, None


_recorded = differentiable("layer_norm", _forward, _save, _backward, linear=False)


def _layer_norm(input: Tensor, weight: Tensor | None, bias: Tensor | None, shape: Shape, eps: float) -> Tensor:
    if not records_backward((input, weight, bias)):
        return torch.nn.functional.layer_norm(input, shape, weight, bias, eps)
    check_differentiable("layer_norm", input=input, weight=weight, bias=bias)
    result: Tensor = _recorded(input, weight, bias, shape, eps)[0]
    return result


_layer_norm_op = Composite(
    "layer_norm(Tensor input, Tensor? weight, Tensor? bias, SymInt[] normalized_shape, float eps) -> Tensor",
    _layer_norm,
)


def layer_norm(
    input: Tensor,
    normalized_shape: Shape,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """`torch.nn.functional.layer_norm`, with LayerNormalizationGrad as its gradient."""
    result: Tensor = _layer_norm_op(input, weight, bias, list(normalized_shape), eps)
    return result


__all__ = ["layer_norm"]
