"""PyTorch's own sample inputs, run with and without gradloom's overrides: for test_torch_enable_samples.py."""

import os
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

ALL = "GRADLOOM_TEST_ALL" in os.environ
"""Minutes instead of seconds: by hand."""
SEEDS = 60 if ALL else 6
THREADS = (1, 2, 1, 2) if ALL else (1, 2)  # of runs that must have the same bits
DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


class Call:
    """An op on a sample's arguments, as a function of those tensors that require a gradient."""

    def __init__(self, op: Any, sample: Any, dtype: torch.dtype | None = None) -> None:
        leaves, self._spec = tree_flatten((sample.input, sample.args, sample.kwargs))
        self._leaves = [self._cast(leaf, dtype) for leaf in leaves]
        self._wanted = [
            i for i, leaf in enumerate(self._leaves) if isinstance(leaf, torch.Tensor) and leaf.requires_grad
        ]
        self._op, self._sample = op, sample

    @staticmethod
    def _cast(leaf: Any, dtype: torch.dtype | None) -> Any:
        if dtype is None or not isinstance(leaf, torch.Tensor) or not leaf.is_floating_point():
            return leaf
        return leaf.detach().to(dtype).requires_grad_(leaf.requires_grad)

    @property
    def tensors(self) -> list[torch.Tensor]:
        return [self._leaves[i] for i in self._wanted]

    def __call__(self, *tensors: torch.Tensor) -> list[torch.Tensor]:
        leaves = list(self._leaves)
        for i, tensor in zip(self._wanted, tensors, strict=True):
            leaves[i] = tensor
        first, args, kwargs = tree_unflatten(leaves, self._spec)
        out = self._sample.output_process_fn_grad(self._op.gradcheck_wrapper(self._op.get_op(), first, *args, **kwargs))
        outs = [out] if isinstance(out, torch.Tensor) else list(out)
        return [o for o in outs if o.is_floating_point() and o.requires_grad]

    def results(self) -> list[torch.Tensor]:
        """The outputs, and the gradients of a sum of them with fixed random weights."""
        outs = self(*self.tensors)
        generator = torch.Generator().manual_seed(0)
        weights = [torch.randn(o.shape, generator=generator).to(torch.bfloat16).to(o.dtype) for o in outs]
        grads = torch.autograd.grad(outs, self.tensors, weights, allow_unused=True)
        return [o.detach() for o in outs] + [g for g in grads if g is not None]


def samples(op: Any, dtype: torch.dtype) -> Iterator[Any]:
    torch.manual_seed(0)
    return iter(list(op.sample_inputs("cpu", dtype, requires_grad=True)))


def assert_close(ours: list[torch.Tensor], truth: list[torch.Tensor], dtype: torch.dtype) -> None:
    """To the rounding of the dtype: of a value, and of the largest one where they are sums."""
    assert len(ours) == len(truth)
    eps = torch.finfo(dtype).eps
    for a, b in zip(ours, truth, strict=True):
        assert a.shape == b.shape and a.dtype == dtype
        scale = float(b.abs().max()) if b.numel() else 0.0
        torch.testing.assert_close(a.double(), b.double(), rtol=4 * eps, atol=4 * eps * max(scale, 1e-30))


def bits(tensors: list[torch.Tensor]) -> list[bytes]:
    dense = (torch.empty(t.numel(), dtype=t.dtype).copy_(t.reshape(-1)) for t in tensors)
    return [t.view(torch.uint8).numpy().tobytes() for t in dense]


def at_threads(count: int, run: Callable[[], Any]) -> Any:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        return run()
    finally:
        torch.set_num_threads(before)
