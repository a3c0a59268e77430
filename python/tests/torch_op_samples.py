"""Arguments of gradloom.torch's indexing ops, with PyTorch's ops that do the same, and what compares the two."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import gradloom.torch as gt
import torch
from torch import Tensor

F64 = torch.float64
ROUNDING = {
    F64: {"rtol": 1e-11, "atol": 1e-11},
    torch.float32: {"rtol": 1e-5, "atol": 1e-5},
    torch.bfloat16: {"rtol": 2**-7, "atol": 2**-6},  # a gradient of two ops is rounded twice
    torch.float16: {"rtol": 2**-10, "atol": 2**-9},
}
Op = Callable[..., Tensor]
Arguments = tuple[Any, ...]


def floats(*shape: int, dtype: Any = F64) -> Tensor:
    return torch.randn(shape, dtype=F64).to(dtype).requires_grad_()


def ints(high: int, *shape: int, low: int = 0, dtype: Any = torch.int64) -> Tensor:
    return torch.randint(low, high, shape, dtype=dtype)


def gathers(dtype: Any) -> Iterator[Arguments]:
    for dim in (-2, -1, 0, 1):
        yield floats(5, 4, dtype=dtype), dim, ints(4, 3, 2)
    yield floats(5, 4, dtype=dtype), 0, ints(5, 9, 4)  # longer than the dim
    yield floats(3, 4, 2, dtype=dtype), 1, ints(4, 3, 6, 1)
    yield floats(dtype=dtype), 0, ints(1)
    yield floats(dtype=dtype), -1, ints(1, 3)
    yield floats(4, dtype=dtype), 0, ints(4)
    yield floats(4, 3, dtype=dtype), 1, ints(1, 0, 3)
    yield floats(4, 3, dtype=dtype), 0, ints(1, 0)
    yield floats(0, 3, dtype=dtype), 0, ints(1, 0, 2)
    yield floats(64, 32, dtype=dtype), 0, ints(2, 200, 32)


def takes(dtype: Any) -> Iterator[Arguments]:
    yield floats(5, 4, dtype=dtype), ints(5, 3, 4, low=-5), 0
    yield floats(5, 4, dtype=dtype), ints(4, 5, 2), -1
    yield floats(5, 1, 3, dtype=dtype), ints(5, 2, 4, 1, low=-5), 0
    yield floats(1, 4, dtype=dtype), ints(4, 6, 2), 1
    yield floats(5, 4, dtype=dtype), ints(20, 3, 2)
    yield floats(dtype=dtype), ints(1)
    yield floats(5, 4, dtype=dtype), ints(1, 0, 4), 0


def index_selects(dtype: Any) -> Iterator[Arguments]:
    for dim in (-1, 0, 1):
        yield floats(5, 4, 3, dtype=dtype), dim, ints(3, 7)
    yield floats(5, 4, dtype=dtype), 0, ints(5, 6, dtype=torch.int32)
    yield floats(5, 4, dtype=dtype), 0, ints(5)
    yield floats(5, 4, dtype=dtype), 1, ints(1, 0)
    yield floats(5, 0, dtype=dtype), 0, ints(5, 3)
    yield floats(dtype=dtype), 0, ints(1, 1)
    yield floats(dtype=dtype), -1, ints(1)
    yield floats(30, 64, dtype=dtype), 0, ints(2, 300)


def index_adds(dtype: Any) -> Iterator[Arguments]:
    for dim in (-1, 0, 1):
        source = [5, 4, 3]
        source[dim] = 7
        yield floats(5, 4, 3, dtype=dtype), dim, ints(3, 7), floats(*source, dtype=dtype)
    yield floats(5, 4, dtype=dtype), 0, ints(5, 6, dtype=torch.int32), floats(6, 4, dtype=dtype)
    yield floats(5, dtype=dtype), 0, ints(5, 1), floats(1, dtype=dtype)
    yield floats(dtype=dtype), 0, ints(1, 1), floats(dtype=dtype)
    yield floats(dtype=dtype), 0, ints(1), floats(dtype=dtype)
    yield floats(5, 4, dtype=dtype), 0, ints(1, 0), floats(0, 4, dtype=dtype)
    yield floats(40, 8, dtype=dtype), 0, ints(40, 100), floats(100, 8, dtype=dtype)


def scatter_adds(dtype: Any) -> Iterator[Arguments]:
    for dim in (-1, 0):
        yield floats(5, 4, dtype=dtype), dim, ints(4, 3, 2), floats(3, 2, dtype=dtype)
    yield floats(5, 4, dtype=dtype), 0, ints(5, 9, 3), floats(9, 3, dtype=dtype)
    yield floats(dtype=dtype), 0, ints(1), floats(dtype=dtype)
    yield floats(dtype=dtype), 0, ints(1, 3), floats(3, dtype=dtype)
    yield floats(4, dtype=dtype), 0, ints(4), floats(dtype=dtype)
    yield floats(5, 4, dtype=dtype), 0, ints(1, 0, 4), floats(0, 4, dtype=dtype)
    yield floats(50, 40, dtype=dtype), 1, ints(40, 50, 60), floats(50, 60, dtype=dtype)


def embeddings(dtype: Any) -> Iterator[Arguments]:
    for padding in (None, 0, 2, -1, -5):
        for scale in (False, True):
            yield ints(5, 2, 7), floats(5, 3, dtype=dtype), padding, None, 2.0, scale
    yield ints(5), floats(5, 3, dtype=dtype)
    yield ints(5, 4, dtype=torch.int32), floats(5, 3, dtype=dtype), 1, None, 2.0, True
    yield ints(5, 0, 2), floats(5, 3, dtype=dtype), 1, None, 2.0, True
    yield ints(5, 2, 3, 2), floats(5, 0, dtype=dtype)
    yield ints(1, 0), floats(0, 3, dtype=dtype)
    yield ints(9, 3), floats(9, 2, dtype=dtype), None, 0.5  # max_norm
    yield ints(3, 400), floats(90, 64, dtype=dtype), 1


def slices(dtype: Any) -> Iterator[Arguments]:
    for where in ((), (0, 1), (0, 1, 3), (0, -3, -1), (0, None, 2), (0, 1, 5, 2), (0, 3, 1), (0, -99, 99)):
        yield floats(5, 4, dtype=dtype), *where
    yield floats(5, 4, dtype=dtype), -1, 1, 2**63 - 1
    yield floats(5, 0, dtype=dtype), 0, 1, 3
    yield floats(0, dtype=dtype), 0, 1, 3


def narrows(dtype: Any) -> Iterator[Arguments]:
    for where in ((0, 1, 3), (-1, 0, 4), (1, -2, 2), (0, 5, 0), (0, torch.tensor(2), 2)):
        yield floats(5, 4, dtype=dtype), *where
    yield floats(0, 4, dtype=dtype), 0, 0, 0


def selects(dtype: Any) -> Iterator[Arguments]:
    for where in ((0, 0), (0, -1), (-1, 2), (1, -4)):
        yield floats(5, 4, dtype=dtype), *where
    yield floats(5, dtype=dtype), 0, 3
    yield floats(5, 0, dtype=dtype), 0, 3


def expands(dtype: Any) -> Iterator[Arguments]:
    yield floats(1, 4, dtype=dtype), 5, 4
    yield floats(1, 4, dtype=dtype), (2, 5, -1)
    yield floats(dtype=dtype), 3, 2
    yield floats(dtype=dtype), ()
    yield floats(3, 1, dtype=dtype), [3, 0]
    yield floats(2, 1, 3, dtype=dtype), torch.Size([4, 2, 60, 3])


def sums(dtype: Any) -> Iterator[Arguments]:
    yield floats(5, 4, dtype=dtype), 5, 4
    yield floats(5, 4, dtype=dtype), (1, 4)
    yield floats(2, 5, 4, dtype=dtype), [5, 1]
    yield floats(3, 2, dtype=dtype), ()
    yield floats(dtype=dtype), ()
    yield floats(3, 0, dtype=dtype), (3, 1)


def embedding_of(input: Tensor, weight: Tensor, *options: Any) -> Tensor:
    return torch.nn.functional.embedding(input, weight, *options)


def slice_of(input: Tensor, *where: Any) -> Tensor:
    return torch.ops.aten.slice.Tensor(input, *where)


def take_of(input: Tensor, *where: Any) -> Tensor:
    return torch.take_along_dim(input, *where)


OPS: dict[str, tuple[Op, Op, Callable[[Any], Iterator[Arguments]]]] = {
    "gather": (gt.gather, torch.gather, gathers),
    "take_along_dim": (gt.take_along_dim, take_of, takes),
    "index_select": (gt.index_select, torch.index_select, index_selects),
    "index_add": (gt.index_add, torch.index_add, index_adds),
    "scatter_add": (gt.scatter_add, torch.scatter_add, scatter_adds),
    "embedding": (gt.embedding, embedding_of, embeddings),
    "slice": (gt.slice, slice_of, slices),
    "narrow": (gt.narrow, torch.narrow, narrows),
    "select": (gt.select, torch.select, selects),
    "expand": (gt.expand, Tensor.expand, expands),
    "sum_to_size": (gt.sum_to_size, Tensor.sum_to_size, sums),
}


def differentiated(args: Sequence[Any]) -> list[Tensor]:
    return [a for a in args if isinstance(a, Tensor) and a.requires_grad]


def with_gradients(op: Op, args: Arguments, upstream: Tensor | None = None) -> list[Tensor]:
    result = op(*args)
    upstream = torch.randn_like(result) if upstream is None else upstream
    torch.manual_seed(5)
    return [result, *torch.autograd.grad(result, differentiated(args), upstream)]


def copied(args: Arguments, dtype: Any = None) -> Arguments:
    def copy(value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        same = value.detach().clone()
        return same.to(dtype or same.dtype).requires_grad_() if value.requires_grad else same

    return tuple(map(copy, args))


def spread(tensor: Tensor) -> Tensor:
    """The same values with gaps between them, in a reversed order of dims."""
    if not tensor.dim():
        return tensor
    memory = torch.zeros([2 * size + 1 for size in reversed(tensor.shape)], dtype=tensor.dtype)
    view = memory[tuple(slice(1, None, 2) for _ in tensor.shape)].permute(*reversed(range(tensor.dim())))
    return view.copy_(tensor)
