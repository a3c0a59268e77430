"""Loop nests of one's own as differentiable functions of tensors."""

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from gradloom._gradloom import CompiledKernel, Kernel, Runtime, parse
from gradloom.torch._runtime import runtime

Tie = Literal["halves", "first", "second", "none"]


class Nest:
    """A function of tensors that a loop nest computes, with the gradient that is derived from it.

        softmax = gradloom.torch.Nest(text, inactive=["top"])
        y = softmax(x=x)

    Arguments go by name: a tensor for each input, a number for each scalar that is no dim of a tensor. The outputs are
    returned, one as it is, several as a tuple. `inactive`, `known` and `tie` are those of `Kernel.gradient`: a gradient
    that is refused is refused when it is first wanted.
    """

    def __init__(
        self,
        kernel: Kernel | str,
        *,
        inactive: Sequence[str] = (),
        known: Sequence[str] = (),
        tie: Tie = "halves",
    ) -> None:
        self.kernel = parse(kernel) if isinstance(kernel, str) else kernel
        self._inactive, self._known, self._tie = tuple(inactive), tuple(known), tie
        self._compiled: dict[tuple[Runtime, tuple[str, ...]], CompiledKernel] = {}
        self._outputs = [name for name, role, _, _ in self.kernel.buffers if role == "out"]

    def gradient(self, wanted: Sequence[str]) -> Kernel:
        """The nest of the gradient by these inputs."""
        return self.kernel.gradient(wanted, inactive=self._inactive, known=self._known, tie=self._tie)

    def compiled(self, wanted: tuple[str, ...] = ()) -> CompiledKernel:
        """The nest, or the gradient by these inputs, for as many threads as PyTorch uses."""
        key = (runtime(), wanted)
        found = self._compiled.get(key)
        if found is None:
            kernel = self.gradient(wanted) if wanted else self.kernel
            found = self._compiled.setdefault(key, key[0].compile(kernel))
        return found

    def __call__(self, **arguments: Any) -> Any:
        tensors = {name: value for name, value in arguments.items() if isinstance(value, Tensor)}
        scalars = {name: value for name, value in arguments.items() if name not in tensors}
        result = _Apply.apply(self, tuple(tensors), scalars, *tensors.values())
        return result[0] if len(self._outputs) == 1 else result

    def values(self, arguments: dict[str, Any]) -> tuple[Tensor, ...]:
        result = self.compiled()(**arguments)
        return result if isinstance(result, tuple) else (result,)

    @property
    def outputs(self) -> list[str]:
        """Their names, in the order in which they are returned."""
        return list(self._outputs)


class _Apply(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, nest: Nest, names: tuple[str, ...], scalars: dict[str, Any], *tensors: Tensor) -> Any:
        dense = [tensor.detach().contiguous() for tensor in tensors]
        outputs = nest.values({**dict(zip(names, dense, strict=True)), **scalars})
        ctx.nest, ctx.names, ctx.scalars = nest, names, scalars
        ctx.mark_non_differentiable(*(y for y in outputs if not y.is_floating_point()))
        ctx.save_for_backward(*dense, *outputs)
        return outputs

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: Tensor | None) -> Any:
        nest: Nest = ctx.nest
        names: tuple[str, ...] = ctx.names
        saved = [tensor.detach() for tensor in ctx.saved_tensors]
        inputs, outputs = saved[: len(names)], saved[len(names) :]
        wanted = tuple(name for name, needed in zip(names, ctx.needs_input_grad[3:], strict=True) if needed)
        arguments = {**dict(zip(names, inputs, strict=True)), **dict(zip(nest.outputs, outputs, strict=True))}
        for name, y, grad in zip(nest.outputs, outputs, grads, strict=True):
            if y.is_floating_point():
                arguments[f"d_{name}"] = torch.zeros_like(y) if grad is None else grad.detach().contiguous()
        result = nest.compiled(wanted)(**arguments, **ctx.scalars)
        found = dict(zip(wanted, result if isinstance(result, tuple) else (result,), strict=True))
        return None, None, None, *(found.get(name) for name in names)


__all__ = ["Nest"]
