"""Gradients of unchanged PyTorch code: PyTorch alone, PyTorch with an allocator that keeps its pages, `enable()`.

    python -m gradloom.torch._bench_override [--threads 1 2] [--rounds 15] [--cases TEXT] [--small] [--cpu-time]

All three in one process, interleaved; each round measures a case in each way once, warm. Medians over the rounds,
of times and of ratios.
"""

import argparse
import ctypes
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

import gradloom.torch._override as override

Way = Callable[[], object]


@dataclass
class Case:
    name: str
    make: Callable[[], Way]
    target: str = ""


def _gradient(output: Any, of: Any) -> Way:
    upstream = torch.randn_like(output)
    return lambda: torch.autograd.grad(output, of, upstream, retain_graph=True)


def _embedding(tokens: Any, rows: int = 50000, width: int = 768, **options: Any) -> Way:
    module = torch.nn.Embedding(rows, width, **options)
    return _gradient(module(tokens), module.weight)


def _zipf(rows: int, count: int) -> Any:
    weights = 1.0 / torch.arange(1, rows + 1, dtype=torch.float64)
    return torch.multinomial(weights, count, replacement=True)[torch.randperm(count)]


def _of(shape: tuple[int, ...], view: Callable[[Any], Any], dtype: Any = None) -> Way:
    x = torch.randn(shape, dtype=dtype or torch.float32, requires_grad=True)
    return _gradient(view(x), x)


def _both(shape: tuple[int, ...], view: Callable[[Any], Any]) -> Way:
    """With the forward pass, where that decides how the gradient is made."""
    x = torch.randn(shape, requires_grad=True)
    upstream = torch.randn_like(view(x))
    return lambda: torch.autograd.grad(view(x), x, upstream)


def _gather(shape: tuple[int, ...], axis: int) -> Way:
    index = torch.randint(0, shape[axis], shape)
    return _of(shape, lambda x: x.gather(axis, index))


def _indexed(shape: tuple[int, ...], axis: int) -> Way:
    index = torch.randint(0, shape[axis], (4096,))
    return _both(shape, lambda x: x[(slice(None),) * axis + (index,)])


def _expanded() -> Way:
    index = torch.randint(0, 50000, (4096, 1)).expand(4096, 768)
    return _of((50000, 768), lambda x: x.gather(0, index))


def _into(name: str, shape: tuple[int, ...], index: tuple[int, ...], source: tuple[int, ...], axis: int) -> Way:
    x, at, values = torch.zeros(shape), torch.randint(0, shape[axis], index), torch.randn(source)
    return lambda: getattr(x, name)(axis, at, values)


def _bags(rows: int, width: int, bags: int, size: int, mode: str, **options: Any) -> Way:
    module = torch.nn.EmbeddingBag(rows, width, mode=mode, **options)
    return _gradient(module(torch.randint(0, rows, (bags, size))), module.weight)


def _pairs(shape: tuple[int, ...], count: int) -> Way:
    i, j = (torch.randint(0, size, (count,)) for size in shape[:2])
    return _both(shape, lambda x: x[i, j])


def _put_pairs(shape: tuple[int, ...], count: int) -> Way:
    x, values = torch.zeros(shape), torch.randn(count, *shape[2:])
    at = tuple(torch.randint(0, size, (count,)) for size in shape[:2])
    return lambda: x.index_put_(at, values, accumulate=True)


def _gru(steps: int, batch: int, features: int, hidden: int) -> Way:
    module = torch.nn.GRU(features, hidden)
    x = torch.randn(steps, batch, features)
    parameters = list(module.parameters())

    def run() -> object:
        return torch.autograd.grad(module(x)[0].sum(), parameters)

    return run


def _put() -> Way:
    x, at, values = torch.zeros(50000, 768), torch.randint(0, 50000, (4096,)), torch.randn(4096, 768)
    return lambda: x.index_put_((at,), values, accumulate=True)


CASES = [
    Case("embedding [50000,768], 4096 uniform", lambda: _embedding(torch.randint(0, 50000, (8, 512))), "4x, 2x"),
    Case("embedding [50000,768], 4096 Zipf", lambda: _embedding(_zipf(50000, 4096).view(8, 512)), "4x, 2x"),
    Case("embedding, padding_idx", lambda: _embedding(torch.randint(0, 50000, (8, 512)), padding_idx=0)),
    Case("embedding, scale_grad_by_freq", lambda: _embedding(_zipf(50000, 4096), scale_grad_by_freq=True)),
    Case("embedding [1000,64], 4096", lambda: _embedding(torch.randint(0, 1000, (4096,)), 1000, 64)),
    Case("embedding [100,16], 64", lambda: _embedding(torch.randint(0, 100, (64,)), 100, 16)),
    Case("EmbeddingBag [50000,64], 1024 sums of 32", lambda: _bags(50000, 64, 1024, 32, "sum")),
    Case("EmbeddingBag [50000,64], 1024 means of 32", lambda: _bags(50000, 64, 1024, 32, "mean")),
    Case("EmbeddingBag [50000,256], 256 means of 16", lambda: _bags(50000, 256, 256, 16, "mean", padding_idx=0)),
    Case("EmbeddingBag [50000,64], 1024 maxima of 32", lambda: _bags(50000, 64, 1024, 32, "max")),
    Case("EmbeddingBag [1000,16], 64 sums of 8", lambda: _bags(1000, 16, 64, 8, "sum")),
    Case("gather [4096,4096] axis 0", lambda: _gather((4096, 4096), 0), "7x"),
    Case("gather [4096,4096] axis 1", lambda: _gather((4096, 4096), 1)),
    Case(
        "gather [512,32000] axis 1, one a row",
        lambda: _of((512, 32000), lambda x: x.gather(1, torch.randint(0, 32000, (512, 1)))),
    ),
    Case("gather [50000,768], expanded index", _expanded),
    Case("gather [64,64,64] axis 1", lambda: _gather((64, 64, 64), 1)),
    Case(
        "index_select [50000,768], 4096",
        lambda: _of((50000, 768), lambda x: x.index_select(0, torch.randint(0, 50000, (4096,)))),
    ),
    Case(
        "index_select [4096,4096] axis 1, 1024",
        lambda: _of((4096, 4096), lambda x: x.index_select(1, torch.randint(0, 4096, (1024,)))),
    ),
    Case("x[i] [50000,768], 4096, both passes", lambda: _indexed((50000, 768), 0)),
    Case("x[:, i] [64,4096,64], 4096, both passes", lambda: _indexed((64, 4096, 64), 1)),
    Case("index_add_ [50000,768], 4096", lambda: _into("index_add_", (50000, 768), (4096,), (4096, 768), 0)),
    Case("index_add_ [4096,4096] axis 1, 1024", lambda: _into("index_add_", (4096, 4096), (1024,), (4096, 1024), 1)),
    Case("index_add [50000,768], 4096", lambda: _into("index_add", (50000, 768), (4096,), (4096, 768), 0)),
    Case("index_add_ [10000], 100000", lambda: _into("index_add_", (10000,), (100000,), (100000,), 0)),
    Case("scatter_add_ [4096,4096] axis 0", lambda: _into("scatter_add_", (4096, 4096), (4096, 4096), (4096, 4096), 0)),
    Case("scatter_add_ [4096,4096] axis 1", lambda: _into("scatter_add_", (4096, 4096), (4096, 4096), (4096, 4096), 1)),
    Case("scatter_add_ [10000], 100000", lambda: _into("scatter_add_", (10000,), (100000,), (100000,), 0)),
    Case("scatter_add_ [50000,64], 4096 of 64", lambda: _into("scatter_add_", (50000, 64), (4096, 64), (4096, 64), 0)),
    Case("index_put_ [50000,768], 4096", _put),
    Case("x[i, j] [300,300,256], 4096, both passes", lambda: _pairs((300, 300, 256), 4096)),
    Case("x[i, j] [4096,4096], 100000, both passes", lambda: _pairs((4096, 4096), 100000)),
    Case("x[i, j] [300,300], 100000, both passes", lambda: _pairs((300, 300), 100000)),
    Case("index_put_ [300,300,256], 4096 pairs", lambda: _put_pairs((300, 300, 256), 4096)),
    Case("index_put_ [300,300,16], 4096 pairs", lambda: _put_pairs((300, 300, 16), 4096)),
    Case("index_put_ [4096,4096], 100000 pairs", lambda: _put_pairs((4096, 4096), 100000)),
    Case("index_put_ [300,300], 100000 pairs", lambda: _put_pairs((300, 300), 100000)),
    Case("index_put_ [300,300], 5000 pairs", lambda: _put_pairs((300, 300), 5000)),
    Case("x[:, ::2] [4096,4096]", lambda: _of((4096, 4096), lambda x: x[:, ::2])),
    Case("x[::2] [4096,4096]", lambda: _of((4096, 4096), lambda x: x[::2])),
    Case("x[:, 1:-1] [64,512,768]", lambda: _of((64, 512, 768), lambda x: x[:, 1:-1])),
    Case("x[..., :64] [64,512,768]", lambda: _of((64, 512, 768), lambda x: x[..., :64])),
    Case("x[:, 0] [64,512,768]", lambda: _of((64, 512, 768), lambda x: x[:, 0])),
    Case("x[:, 0] [16,32,64]", lambda: _of((16, 32, 64), lambda x: x[:, 0])),
    Case("nn.GRU, both passes, gru_a: 50 x 32, 128 to 256", lambda: _gru(50, 32, 128, 256)),
    Case("nn.GRU, both passes, gru_b: 128 x 64, 512 to 512", lambda: _gru(128, 64, 512, 512)),
    Case("nn.GRU, both passes, 8 x 4, 16 to 16", lambda: _gru(8, 4, 16, 16)),
]
SMALL = [
    Case("gather [4]", lambda: _gather((4,), 0)),
    Case("index_select [4]", lambda: _of((4,), lambda x: x.index_select(0, torch.tensor([1, 1, 2, 0])))),
    Case("embedding [4,1], 4", lambda: _embedding(torch.tensor([1, 1, 2, 0]), 4, 1)),
    Case("x[i] [4]", lambda: _of((4,), lambda x: x[torch.tensor([1, 1, 2, 0])])),
    Case("x[1:3] [4]", lambda: _of((4,), lambda x: x[1:3])),
    Case("x[2] [4]", lambda: _of((4,), lambda x: x[2])),
    Case("scatter_add_ [4]", lambda: _into("scatter_add_", (4,), (4,), (4,), 0)),
    Case("index_add_ [4]", lambda: _into("index_add_", (4,), (4,), (4,), 0)),
    Case("scatter_add [4]", lambda: _into("scatter_add", (4,), (4,), (4,), 0)),
]


class Allocator:
    """glibc's malloc with and without giving pages back to the system."""

    def __init__(self) -> None:
        self._c = ctypes.CDLL(None)

    def keep(self, keep: bool) -> None:
        trim_threshold, mmap_max = -1, -4
        self._c.mallopt(mmap_max, 0 if keep else 65536)
        self._c.mallopt(trim_threshold, 2**31 - 1 if keep else 128 << 10)
        if not keep:
            self._c.malloc_trim(0)


def ways() -> Iterator[tuple[str, Callable[[], None], Callable[[], None]]]:
    allocator = Allocator()
    yield "plain", lambda: None, lambda: None
    yield "keeping", lambda: allocator.keep(True), lambda: allocator.keep(False)
    yield "enable", override.enable, override.disable


def measure(case: Case, rounds: int, clock: Callable[[], float]) -> dict[str, float]:
    """Median seconds of each way, and the medians of the rounds' ratios to `enable`, which noise moves less."""
    run = case.make()
    times: dict[str, list[float]] = {name: [] for name, _, _ in ways()}
    with override.enabled():  # until the kernel for these shapes is there
        start = time.perf_counter()
        for _ in range(40):
            run()
        time.sleep(0.3)
        repeats = max(1, min(10000, int(0.02 / ((time.perf_counter() - start - 0.3) / 40))))
    for _ in range(rounds):
        for name, begin, end in ways():
            begin()
            run()
            run()
            start = clock()
            for _ in range(repeats):
                run()
            times[name].append((clock() - start) / repeats)
            end()
    result = {name: statistics.median(all_of) for name, all_of in times.items()}
    for name in ("plain", "keeping"):
        ratios = (other / mine for other, mine in zip(times[name], times["enable"], strict=True))
        result[f"x {name}"] = statistics.median(ratios)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--cases", default="", help="those whose name has this text")
    parser.add_argument("--small", action="store_true", help="calls of 4 elements, in microseconds")
    parser.add_argument(
        "--cpu-time", action="store_true", help="of the calling thread: for 1 on a machine with other work"
    )
    given = parser.parse_args()
    clock = time.thread_time if given.cpu_time else time.perf_counter
    unit, scale = ("us", 1e6) if given.small else ("ms", 1e3)
    for threads in given.threads:
        torch.set_num_threads(threads)
        print(f"{threads} thread(s), {unit}: {'plain':>47}{'keeping':>9}{'enable':>9}   x plain  x keeping")
        for case in SMALL if given.small else CASES:
            if given.cases not in case.name:
                continue
            torch.manual_seed(0)
            at = measure(case, given.rounds, clock)
            print(
                f"  {case.name:48} {at['plain'] * scale:12.3f}{at['keeping'] * scale:9.3f}{at['enable'] * scale:9.3f}"
                f"{at['x plain']:10.2f}{at['x keeping']:11.2f}  {case.target}",
                flush=True,
            )


if __name__ == "__main__":
    main()
