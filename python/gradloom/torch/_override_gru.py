"""`nn.GRU`'s op, forward pass and gradient together, by `torch.ops.gradloom.gru`.

In Python, unlike the other overrides: beside the steps of a sequence the interpreter's time is small.
"""

from collections import Counter
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from gradloom.errors import Error
from gradloom.torch._library import DTYPES, is_plain, records

NAME = "gru"
counts: Counter[str] = Counter()  # by outcome, as the extension has them for its kernels
_library: torch.library.Library | None = None


class _Call:
    """A call of either form: of a padded input, [S, N, I] or [N, S, I], or of a PackedSequence's data."""

    def __init__(self, op: str, data: tuple[Tensor, ...], hx: Tensor, params: list[Tensor], *options: Any) -> None:
        self.op, self.hx, self.params, self.options = op, hx, params, options
        self.tensors = (*data, hx, *params)
        self.arguments = (*data, hx, params, *options)

    def outcome(self) -> str:
        input, hx = self.tensors[0], self.hx
        floats = (input, hx, *self.params)
        if forward_ad._current_level >= 0:
            return "graph"
        if not is_plain(self.tensors):
            return "kind"
        if input.dtype not in DTYPES or any(tensor.dtype != input.dtype for tensor in floats):
            return "dtype"
        dropout, train = self.options[2:4]
        if self.op == "data" and dropout and train and self.options[1] > 1:
            return "option"  # the masks would be drawn for padding, too: others than PyTorch's from the same seed
        if hx.dim() != 3 or 0 in input.shape or 0 in hx.shape or not self._fits():
            return "shape"
        steps, positions = self._steps()
        # A call packs the weights and costs more than a step: PyTorch's is faster for few.
        if records(floats):
            few = steps < (4 if self.op == "input" else 8)
        else:
            few = steps < 8 or positions < 64
        return "slower" if few else "served"

    def _steps(self) -> tuple[int, int]:
        """Of the longest sequence, and of all together."""
        input = self.tensors[0]
        if self.op == "data":
            return self.tensors[1].shape[0], input.shape[0]
        return input.shape[1 if self.options[-1] else 0], input.shape[0] * input.shape[1]

    def _fits(self) -> bool:
        """Whether all sizes are those of a GRU: others are PyTorch's to refuse."""
        input, hx, params = self.tensors[0], self.hx, self.params
        has_biases, layers, _, _, bidirectional = self.options[:5]
        directions, kinds = 1 + bidirectional, 4 if has_biases else 2
        hidden = hx.shape[2]
        if hx.shape[0] != layers * directions or len(params) != layers * directions * kinds:
            return False
        if self.op == "data":
            if input.dim() != 2 or self.tensors[1].dim() != 1 or self.tensors[1].dtype != torch.int64:
                return False
        elif input.dim() != 3 or hx.shape[1] != input.shape[0 if self.options[-1] else 1]:
            return False
        for i in range(layers * directions):
            features = input.shape[-1] if i < directions else directions * hidden
            weight_ih, weight_hh, *biases = params[i * kinds : (i + 1) * kinds]
            if weight_ih.shape != (3 * hidden, features) or weight_hh.shape != (3 * hidden, hidden):
                return False
            if any(bias.shape != (3 * hidden,) for bias in biases):
                return False
        return True

    def __call__(self) -> Any:
        outcome = self.outcome()
        if outcome == "served":
            dropout, train = self.options[2:4]
            state = torch.get_rng_state() if dropout and train else None
            try:
                result = getattr(torch.ops.gradloom.gru, self.op)(*self.arguments)
            except Error:
                outcome = "refused"
                if state is not None:  # PyTorch's kernel draws the same masks
                    torch.set_rng_state(state)
        counts[outcome] += 1
        if outcome == "served":
            return result
        # The kernel that is overridden: decompose() would be one in Python.
        op = getattr(torch.ops.aten.gru, self.op)
        return op._op_dk(torch._C.DispatchKey.CompositeImplicitAutograd, *self.arguments)


def _input(input: Tensor, hx: Tensor, params: list[Tensor], *options: Any) -> Any:
    return _Call("input", (input,), hx, params, *options)()


def _data(data: Tensor, batch_sizes: Tensor, hx: Tensor, params: list[Tensor], *options: Any) -> Any:
    return _Call("data", (data, batch_sizes), hx, params, *options)()


def register() -> None:
    """Above autograd, which records what PyTorch's own kernel is composed of."""
    global _library
    if _library is None:
        _library = torch.library.Library("aten", "IMPL")
        _library.impl("gru.input", _input, "AutogradCPU")
        _library.impl("gru.data", _data, "AutogradCPU")


def take_back() -> None:
    global _library
    if _library is not None:
        _library._destroy()
        _library = None


__all__ = ["NAME", "counts", "register", "take_back"]
