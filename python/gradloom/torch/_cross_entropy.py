"""cross_entropy of class indices: PyTorch's forward pass, and SoftmaxCrossEntropyLossGrad, one pass."""

from typing import Any

import torch
from torch import Tensor

from gradloom.torch._activation import log_softmax_backward
from gradloom.torch._formula import gradients_by
from gradloom.torch._library import Composite, Kernel, check_differentiable, detached, differentiable, records_backward
from gradloom.torch._runtime import handle


def _backward_cpu(
    grad: Tensor, log_prob: Tensor, target: Tensor, weight: Tensor | None, reduction: str, ignore_index: int
) -> Tensor:
    call = handle("SoftmaxCrossEntropyLossGrad", ("reduction", reduction), ("ignore_index", ignore_index))
    weight = None if weight is None else detached(weight)
    result: Tensor = call(detached(grad), detached(log_prob), target, weight)
    return result


def _formula(
    grad: Tensor, log_prob: Tensor, target: Tensor, weight: Tensor | None, reduction: str, ignore_index: int
) -> Tensor:
    counts = target != ignore_index
    label = torch.where(counts, target, 0)
    share = counts.to(log_prob.dtype) if weight is None else torch.where(counts, weight[label], 0)
    if reduction == "mean":
        total = share.sum()
        share = torch.where(total == 0, 0, share / total)
    at_label = torch.nn.functional.one_hot(label, log_prob.shape[1]).movedim(-1, 1)
    return (log_prob.exp() - at_label) * (grad * share).unsqueeze(1)


def _save_backward(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    grad, log_prob, target, weight, *ctx.options = inputs
    ctx.save_for_backward(grad, log_prob, target, weight)


def _double_backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    upstream, log_prob, target, weight = ctx.saved_tensors

    def gradient(grad: Tensor, log_prob: Tensor) -> Tensor:
        return _formula(grad, log_prob, target, weight, *ctx.options)

    found = gradients_by(gradient, (upstream, log_prob), (grad,))
    return *found, None, None, None, None


_backward_op = Kernel(
    "cross_entropy_backward(Tensor grad, Tensor log_prob, Tensor target, Tensor? weight, str reduction, "
    "SymInt ignore_index) -> Tensor",
    _backward_cpu,
    lambda grad, log_prob, *rest: log_prob.new_empty(log_prob.shape),
    _save_backward,
    _double_backward,
    linear=False,
)


def _forward(
    input: Tensor, target: Tensor, weight: Tensor | None, reduction: str, ignore_index: int
) -> tuple[Tensor, Tensor]:
    log_prob = torch.log_softmax(input, 1)
    loss = torch.nn.functional.nll_loss(log_prob, target, weight, ignore_index=ignore_index, reduction=reduction)
    return loss, log_prob


def _save(ctx: Any, inputs: tuple[Any, ...], outputs: tuple[Tensor, ...]) -> None:
    input, target, weight, *ctx.options = inputs
    ctx.dtype = input.dtype
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(outputs[1], target, weight)


def _backward(ctx: Any, grad: Tensor | None, of_log_prob: Tensor | None) -> tuple[Any, ...]:
    log_prob, target, weight = ctx.saved_tensors
    result = None
    if grad is not None:
        result = _backward_op(grad.to(log_prob.dtype), log_prob, target, weight, *ctx.options)
    if of_log_prob is not None:  # of a gradient of the gradient
        other = log_softmax_backward(of_log_prob, log_prob, 1)
        result = other if result is None else result + other
    return None if result is None else result.to(ctx.dtype), None, None, None, None


_recorded = differentiable("cross_entropy", _forward, _save, _backward, linear=False)


def _cross_entropy(input: Tensor, target: Tensor, weight: Tensor | None, reduction: str, ignore_index: int) -> Tensor:
    if not records_backward((input,)):
        return torch.nn.functional.cross_entropy(input, target, weight, ignore_index=ignore_index, reduction=reduction)
    check_differentiable("cross_entropy", input=input)
    result: Tensor = _recorded(input, target, weight, reduction, ignore_index)[0]
    return result


_cross_entropy_op = Composite(
    "cross_entropy(Tensor input, Tensor target, Tensor? weight, str reduction, SymInt ignore_index) -> Tensor",
    _cross_entropy,
)


def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """`torch.nn.functional.cross_entropy`, with SoftmaxCrossEntropyLossGrad as its gradient; PyTorch's own for targets
    that are probabilities, and with `label_smoothing`."""
    differentiates_weight = weight is not None and weight.requires_grad  # which is PyTorch's error
    if target.is_floating_point() or label_smoothing or input.dim() != target.dim() + 1 or differentiates_weight:
        return torch.nn.functional.cross_entropy(
            input, target, weight, ignore_index=ignore_index, reduction=reduction, label_smoothing=label_smoothing
        )
    if target.dtype == torch.uint8:
        target = target.long()
    if input.dim() > 1:
        result: Tensor = _cross_entropy_op(input, target, weight, reduction, ignore_index)
        return result
    of_one: Tensor = _cross_entropy_op(input.unsqueeze(0), target.unsqueeze(0), weight, reduction, ignore_index)
    return of_one.squeeze(0) if reduction == "none" else of_one


__all__ = ["cross_entropy"]
