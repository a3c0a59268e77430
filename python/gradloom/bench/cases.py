"""What is timed, in gradloom, numpy and PyTorch: gathers, slices, sums and GRU, float32 with int64 indices."""

import math
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Case(ABC):
    name: str

    @property
    @abstractmethod
    def group(self) -> str:
        """The name of all such cases."""

    @property
    @abstractmethod
    def op(self) -> str: ...

    @property
    @abstractmethod
    def size(self) -> str:
        """The shapes, for reading."""

    @property
    def attributes(self) -> dict[str, Any]:
        return {}

    @abstractmethod
    def operands(self) -> list[Any]:
        """The op's inputs: the same in every run."""

    def reads(self, operands: Sequence[Any]) -> list[Any]:
        """The inputs whose values must be read."""
        return [each for each in operands if isinstance(each, np.ndarray)]

    @property
    def written(self) -> int:
        """Bytes of the output; 0 where products are the roof."""
        return 0

    @property
    def flops(self) -> float:
        return 0

    @property
    def elementwise(self) -> bool:
        """Whether the operands have one shape and the output is a function of their elements, one by one: then its
        arithmetic is a roof beside the bytes."""
        return False

    @abstractmethod
    def in_numpy(self, operands: Sequence[Any]) -> Callable[[], Any]:
        """A call that gives the op's outputs."""

    @abstractmethod
    def in_torch(self, torch: Any, operands: Sequence[Any]) -> Callable[[], Any]:
        """The backward pass that PyTorch's autograd runs for the same forward op."""

    def in_jax(self, jax: Any, operands: Sequence[Any]) -> Callable[[], Any] | None:
        """The compiled backward pass of JAX's own forward function; None: not timed."""
        return None

    @abstractmethod
    def difference(self, got: Any, operands: Sequence[Any], numpys: Any) -> str | None:
        """What is wrong with the op's outputs, in a line. `numpys` are those of `in_numpy`."""

    def random(self) -> np.random.Generator:
        return np.random.default_rng(zlib.crc32(self.name.encode()))


def values(random: np.random.Generator, shape: Shape) -> Any:
    """From the start of a cache line on, as a tensor of PyTorch has them; an array of numpy begins anywhere."""
    count = math.prod(shape)
    memory = np.empty(count + 16, np.float32)
    start = -(memory.ctypes.data // 4) % 16
    return random.standard_normal(out=memory[start : start + count].reshape(shape), dtype=np.float32)


def _zipf(random: np.random.Generator, count: Shape, bound: int) -> Any:
    """Ranks drawn with probability rank^-1.2, as words are, each rank anywhere in the table."""
    cumulative = np.cumsum(np.arange(1, bound + 1) ** -1.2)
    ranks = np.searchsorted(cumulative, random.random(count) * cumulative[-1])
    return random.permutation(bound)[np.minimum(ranks, bound - 1)]


def _same_bits(got: Any, want: Any) -> str | None:
    if got.shape == want.shape and np.array_equal(got.view(np.uint32), want.view(np.uint32)):
        return None
    wrong = np.flatnonzero(got.reshape(-1).view(np.uint32) != want.reshape(-1).view(np.uint32))
    place = np.unravel_index(wrong[0], want.shape)
    return f"dX{[int(i) for i in place]} is {got[place]}, expected {want[place]}"


def backward(torch: Any, y: Any, leaves: Sequence[Any], dy: Any) -> Callable[[], Any]:
    return lambda: torch.autograd.grad(y, leaves, dy, retain_graph=True)


@dataclass(frozen=True)
class GatherElements(Case):
    shape: Shape
    axis: int
    indices: Shape

    group, op = "ge", "GatherElementsGrad"

    @property
    def size(self) -> str:
        return f"{list(self.indices)} into {list(self.shape)}, axis {self.axis}"

    @property
    def attributes(self) -> dict[str, Any]:
        return {"axis": self.axis}

    @property
    def written(self) -> int:
        return 4 * math.prod(self.shape)

    def operands(self) -> list[Any]:
        random = self.random()
        return [
            values(random, self.indices),
            list(self.shape),
            random.integers(self.shape[self.axis], size=self.indices),
        ]

    def in_numpy(self, operands: Sequence[Any]) -> Callable[[], Any]:
        dy, _, indices = operands
        places: list[Any] = list(np.ogrid[tuple(slice(n) for n in self.indices)])
        places[self.axis] = indices
        if len(places) == 1:
            places = [indices]  # numpy's fast way

        def call() -> Any:
            dx = np.zeros(self.shape, np.float32)
            np.add.at(dx, tuple(places) if len(places) > 1 else places[0], dy)
            return dx

        return call

    def in_torch(self, torch: Any, operands: Sequence[Any]) -> Callable[[], Any]:
        dy, _, indices = operands
        x = torch.zeros(self.shape, requires_grad=True)
        return backward(torch, x.gather(self.axis, torch.from_numpy(indices)), [x], torch.from_numpy(dy))

    def difference(self, got: Any, operands: Sequence[Any], numpys: Any) -> str | None:
        return _same_bits(got, numpys)


@dataclass(frozen=True)
class Gather(Case):
    shape: Shape
    indices: Shape
    zipf: bool = False

    group, op = "gg", "GatherGrad"

    @property
    def size(self) -> str:
        kind = "Zipf" if self.zipf else "uniform"
        return f"{math.prod(self.indices)} rows into {list(self.shape)}, {kind}"

    @property
    def written(self) -> int:
        return 4 * math.prod(self.shape)

    def operands(self) -> list[Any]:
        random = self.random()
        if self.zipf:
            indices = _zipf(random, self.indices, self.shape[0])
        else:
            indices = random.integers(self.shape[0], size=self.indices)
        return [list(self.shape), indices, values(random, self.indices + self.shape[1:])]

    def in_numpy(self, operands: Sequence[Any]) -> Callable[[], Any]:
        _, indices, dy = operands

        def call() -> Any:
            dx = np.zeros(self.shape, np.float32)
            np.add.at(dx, indices, dy)
            return dx

        return call

    def in_torch(self, torch: Any, operands: Sequence[Any]) -> Callable[[], Any]:
        _, indices, dy = operands
        table = torch.zeros(self.shape, requires_grad=True)
        y = torch.nn.functional.embedding(torch.from_numpy(indices), table)
        return backward(torch, y, [table], torch.from_numpy(dy))

    def difference(self, got: Any, operands: Sequence[Any], numpys: Any) -> str | None:
        return _same_bits(got, numpys)


@dataclass(frozen=True)
class Slice(Case):
    shape: Shape
    slices: dict[int, tuple[int | None, int | None, int]]  # by axis: start, stop, step, as Python's

    group, op = "sl", "SliceGrad"

    @property
    def places(self) -> tuple[slice, ...]:
        return tuple(slice(*self.slices.get(axis, (None, None, 1))) for axis in range(len(self.shape)))

    @property
    def size(self) -> str:
        def text(part: slice) -> str:
            start, stop = ("" if end is None else str(end) for end in (part.start, part.stop))
            return f"{start}:{stop}" + (f":{part.step}" if part.step != 1 else "")

        return f"[{', '.join(text(part) for part in self.places)}] of {list(self.shape)}"

    @property
    def written(self) -> int:
        return 4 * math.prod(self.shape)

    def operands(self) -> list[Any]:
        dims = tuple(len(range(*part.indices(n))) for part, n in zip(self.places, self.shape, strict=True))
        axes = sorted(self.slices)
        starts, stops, steps = [], [], []
        for axis in axes:
            start, stop, step = self.slices[axis]
            starts.append((0 if step > 0 else -1) if start is None else start)
            stops.append((2**63 - 1 if step > 0 else -(2**63)) if stop is None else stop)
            steps.append(step)
        return [values(self.random(), dims), list(self.shape), starts, stops, axes, steps]

    def in_numpy(self, operands: Sequence[Any]) -> Callable[[], Any]:
        dy = operands[0]

        def call() -> Any:
            dx = np.zeros(self.shape, np.float32)
            dx[self.places] = dy
            return dx

        return call

    def in_torch(self, torch: Any, operands: Sequence[Any]) -> Callable[[], Any]:
        x = torch.zeros(self.shape, requires_grad=True)
        y = x
        for axis, (start, stop, step) in self.slices.items():
            if step < 0:  # PyTorch has no negative steps
                y = y.flip(axis)
                start, stop = (None if end is None else -1 - end for end in (start, stop))
                start = None if start == 0 else start
            y = y[(slice(None),) * axis + (slice(start, stop, abs(step)),)]
        return backward(torch, y, [x], torch.from_numpy(operands[0]))

    def difference(self, got: Any, operands: Sequence[Any], numpys: Any) -> str | None:
        return _same_bits(got, numpys)


@dataclass(frozen=True)
class Broadcast(Case):
    from_shape: Shape
    shape: Shape

    group, op = "bg", "BroadcastGrad"

    @property
    def size(self) -> str:
        return f"{list(self.from_shape)} summed to {list(self.shape)}"

    @property
    def written(self) -> int:
        return 4 * math.prod(self.shape)

    def operands(self) -> list[Any]:
        return [values(self.random(), self.from_shape), list(self.shape)]

    @property
    def axes(self) -> tuple[int, ...]:
        """Those that are summed."""
        wide = (1,) * (len(self.from_shape) - len(self.shape)) + self.shape
        return tuple(axis for axis, n in enumerate(wide) if n == 1)

    def in_numpy(self, operands: Sequence[Any]) -> Callable[[], Any]:
        dy = operands[0]
        return lambda: dy.sum(self.axes).reshape(self.shape)

    def in_torch(self, torch: Any, operands: Sequence[Any]) -> Callable[[], Any]:
        x = torch.zeros(self.shape, requires_grad=True)
        return backward(torch, x.expand(self.from_shape), [x], torch.from_numpy(operands[0]))

    def difference(self, got: Any, operands: Sequence[Any], numpys: Any) -> str | None:
        dy = operands[0].astype(np.float64)
        want = dy.sum(self.axes).reshape(self.shape)
        largest = 4e-7 * np.abs(dy, out=dy).sum(self.axes).reshape(self.shape)
        wrong = np.argwhere(~(np.abs(got - want) <= largest))
        if wrong.size == 0:
            return None
        place = tuple(wrong[0])
        return f"dX{[int(i) for i in place]} is {got[place]}, expected {want[place]}"


@dataclass(frozen=True)
class Gru(Case):
    """All five gradients of a forward GRU with biases, a first state and linear_before_reset, as PyTorch's are."""

    steps: int
    batch: int
    inputs: int
    hidden: int

    group, op = "gru_grad", "GRUGrad"

    @property
    def size(self) -> str:
        return f"{self.steps} steps, batch {self.batch}, {self.inputs} inputs, {self.hidden} hidden"

    @property
    def attributes(self) -> dict[str, Any]:
        return {"linear_before_reset": 1}

    @property
    def flops(self) -> float:
        """Of dX and dW, of the recurrent product and of dR; what is computed again does not count."""
        return 2.0 * self.steps * self.batch * 3 * self.hidden * 2 * (self.inputs + self.hidden)

    def operands(self) -> list[Any]:
        import gradloom

        s, n, i, h = self.steps, self.batch, self.inputs, self.hidden
        random = self.random()
        small = np.float32(h**-0.5)
        x = values(random, (s, n, i))
        w, r, b = (values(random, dims) * small for dims in ((1, 3 * h, i), (1, 3 * h, h), (1, 6 * h)))
        h0 = values(random, (1, n, h))
        states, _, gates = gradloom.gru_training(x, w, r, b, None, h0, linear_before_reset=1)
        return [x, w, r, b, None, h0, states, gates, values(random, (s, 1, n, h))]

    def in_numpy(self, operands: Sequence[Any]) -> Callable[[], Any]:
        x, w, r, b, _, h0, states, gates, dy = operands
        steps, batch, hidden = self.steps, self.batch, self.hidden
        before = np.concatenate([h0, states[:-1, 0]])
        z, reset, candidate = np.split(gates[:, 0], 3, axis=2)

        def call() -> Any:
            recurrent = before @ r[0, 2 * hidden :].T + b[0, 5 * hidden :]
            inputs = np.empty((steps, batch, 3 * hidden), np.float32)  # gradients of what the gates add up
            products = np.empty_like(inputs)
            dh = np.zeros((batch, hidden), np.float32)
            for t in reversed(range(steps)):
                dh = dh + dy[t, 0]
                dz = dh * (before[t] - candidate[t]) * z[t] * (1 - z[t])
                dc = dh * (1 - z[t]) * (1 - candidate[t] * candidate[t])
                dr = dc * recurrent[t] * reset[t] * (1 - reset[t])
                inputs[t] = np.concatenate([dz, dr, dc], axis=1)
                products[t] = np.concatenate([dz, dr, dc * reset[t]], axis=1)
                dh = dh * z[t] + products[t] @ r[0]
            flat, flat_products = (each.reshape(steps * batch, -1) for each in (inputs, products))
            dw, dr_ = flat.T @ x.reshape(steps * batch, -1), flat_products.T @ before.reshape(steps * batch, -1)
            db = np.concatenate([flat.sum(0), flat_products.sum(0)])
            return inputs @ w[0], dw[None], dr_[None], db[None], dh[None]

        return call

    def in_torch(self, torch: Any, operands: Sequence[Any]) -> Callable[[], Any]:
        net = torch.nn.GRU(self.inputs, self.hidden)
        x, h0 = (torch.from_numpy(operands[k]).requires_grad_() for k in (0, 5))
        y = net(x, h0)[0]
        return backward(torch, y, [x, *net.parameters(), h0], torch.from_numpy(operands[8][:, 0]))

    def difference(self, got: Any, operands: Sequence[Any], numpys: Any) -> str | None:
        for name, have, want in zip(("dX", "dW", "dR", "dB", "dH0"), got, numpys, strict=True):
            largest = float(np.abs(want).max())
            error = float(np.abs(have - want).max())
            if not error <= 1e-4 * largest:
                return f"{name} differs from numpy's by {error}; the largest is {largest}"
        return None
