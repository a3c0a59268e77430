"""Cases of the ops that are declared by their forward nest: their gradients."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gradloom.bench.cases import Case, Shape, backward, values

_ROOT = np.float32(math.sqrt(2 / math.pi))


def _erf(x: Any) -> Any:
    """By Abramowitz and Stegun, 7.1.26: within 1.5e-7."""
    t = 1 / (1 + np.float32(0.3275911) * np.abs(x))
    folded = np.zeros_like(t)
    for c in (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592):
        folded = (folded + np.float32(c)) * t
    return np.copysign(1 - folded * np.exp(-x * x), x)


def _gelu(dy: Any, x: Any) -> Any:
    density = np.exp(-x * x / 2) * np.float32(1 / math.sqrt(2 * math.pi))
    return dy * ((1 + _erf(x * np.float32(math.sqrt(0.5)))) / 2 + x * density)


def _fast_gelu(dy: Any, x: Any) -> Any:
    t = np.tanh(_ROOT * (x + np.float32(0.044715) * x**3))
    inner = _ROOT * (1 + np.float32(3 * 0.044715) * x * x)
    return dy * ((1 + t) / 2 + x * (1 - t * t) * inner / 2)


def _layer_norm(dy: Any, x: Any, scale: Any, mean: Any, inverse: Any) -> Any:
    normal, g = (x - mean) * inverse, dy * scale
    dx = (g - g.mean(-1, keepdims=True) - normal * (g * normal).mean(-1, keepdims=True)) * inverse
    return dx, (dy * normal).sum(0), dy.sum(0)


def _cross_entropy(dy: Any, log_prob: Any, labels: Any) -> Any:
    dx = np.exp(log_prob)
    dx[np.arange(len(labels)), labels] -= 1
    dx *= dy / len(labels)
    return dx


def _log_softmax_of(x: Any) -> Any:
    shifted = x - x.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


_NUMPY: dict[str, Callable[..., Any]] = {
    "ReluGrad": lambda dy, x: np.where(x > 0, dy, np.float32(0)),
    "GeluGrad": _gelu,
    "FastGeluGrad": _fast_gelu,
    "SoftmaxGrad_13": lambda dy, y: (dy - (dy * y).sum(-1, keepdims=True)) * y,
    "LogSoftmaxGrad_13": lambda dy, y: dy - np.exp(y) * dy.sum(-1, keepdims=True),
    "LayerNormalizationGrad": _layer_norm,
    "SoftmaxCrossEntropyLossGrad": _cross_entropy,
}


@dataclass(frozen=True)
class Declared(Case):
    """An op's gradient for an X of this shape; of rank 2 where it reduces the last dim."""

    of: str
    shape: Shape

    group = "declared"

    @property
    def op(self) -> str:
        return self.of

    @property
    def size(self) -> str:
        return str(list(self.shape))

    @property
    def written(self) -> int:
        return 4 * math.prod(self.shape)

    @property
    def elementwise(self) -> bool:
        return self.op in ("ReluGrad", "GeluGrad", "FastGeluGrad")

    def operands(self) -> list[Any]:
        random = self.random()
        dy, x = (values(random, self.shape) for _ in range(2))
        if self.op == "SoftmaxGrad_13":
            return [dy, np.exp(_log_softmax_of(x))]
        if self.op == "LogSoftmaxGrad_13":
            return [dy, _log_softmax_of(x)]
        if self.op == "LayerNormalizationGrad":
            variance = x.var(-1, keepdims=True) + np.float32(1e-5)
            return [dy, x, values(random, self.shape[1:]), x.mean(-1, keepdims=True), 1 / np.sqrt(variance)]
        if self.op == "SoftmaxCrossEntropyLossGrad":
            return [np.float32(1).reshape(()), _log_softmax_of(x), random.integers(self.shape[1], size=self.shape[:1])]
        return [dy, x]

    def in_numpy(self, operands: Sequence[Any]) -> Callable[[], Any]:
        return lambda: _NUMPY[self.op](*operands)

    def in_torch(self, torch: Any, operands: Sequence[Any]) -> Callable[[], Any]:
        F = torch.nn.functional
        tensors = [torch.from_numpy(np.asarray(operand)) for operand in operands]
        x = (tensors[0] if self.op == "SoftmaxGrad_13" else tensors[1]).detach().requires_grad_()
        if self.op == "SoftmaxCrossEntropyLossGrad":
            return backward(torch, F.cross_entropy(x, tensors[2]), [x], tensors[0])
        if self.op == "LayerNormalizationGrad":
            parameters = [tensors[2].requires_grad_(), torch.zeros_like(tensors[2], requires_grad=True)]
            return backward(torch, F.layer_norm(x, self.shape[1:], *parameters), [x, *parameters], tensors[0])
        forward = {
            "ReluGrad": torch.relu,
            "GeluGrad": F.gelu,
            "FastGeluGrad": lambda x: F.gelu(x, approximate="tanh"),
            "SoftmaxGrad_13": lambda x: torch.softmax(x, -1),
            "LogSoftmaxGrad_13": lambda x: torch.log_softmax(x, -1),
        }[self.op]
        return backward(torch, forward(x), [x], tensors[0])

    def in_jax(self, jax: Any, operands: Sequence[Any]) -> Callable[[], Any]:
        nn, jnp = jax.nn, jax.numpy
        values = [jnp.asarray(operand) for operand in operands]
        dy, primals = values[0], values[1:2]

        def layer_norm(x: Any, scale: Any, bias: Any) -> Any:
            mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
            return (x - mean) * jax.lax.rsqrt(variance + np.float32(1e-5)) * scale + bias

        def cross_entropy(x: Any) -> Any:
            return -jnp.take_along_axis(nn.log_softmax(x, -1), values[2][:, None], -1).mean()

        forward: Callable[..., Any] = {
            "ReluGrad": nn.relu,
            "GeluGrad": lambda x: nn.gelu(x, approximate=False),
            "FastGeluGrad": nn.gelu,
            "SoftmaxGrad_13": lambda x: nn.softmax(x, -1),
            "LogSoftmaxGrad_13": lambda x: nn.log_softmax(x, -1),
            "LayerNormalizationGrad": layer_norm,
            "SoftmaxCrossEntropyLossGrad": cross_entropy,
        }[self.op]
        if self.op == "LayerNormalizationGrad":
            primals += [values[2], jnp.zeros_like(values[2])]
        _, transposed = jax.jit(lambda *given: jax.vjp(forward, *given))(*primals)
        backward = jax.jit(lambda function, upstream: function(upstream))
        return lambda: jax.block_until_ready(backward(transposed, dy))

    def difference(self, got: Any, operands: Sequence[Any], numpys: Any) -> str | None:
        pairs = zip(got, numpys, strict=True) if isinstance(numpys, tuple) else [(got, numpys)]
        for output, (have, want) in enumerate(pairs):
            largest = float(np.abs(want).max())
            error = float(np.abs(have - want).max())
            if not error <= 3e-5 * largest:
                return f"output {output} differs from numpy's by {error}; the largest is {largest}"
        return None
