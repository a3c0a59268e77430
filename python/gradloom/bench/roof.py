"""This machine's speed: loop nests that only read, only write or only compute, timed between an op's calls."""

import ctypes
import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import numpy as np

from gradloom import Runtime

_LANES = 8  # of u64: one vector of the widest kind


def _read_nest(vectors: int, streams: int, ahead: int) -> str:
    """Sums of `streams` equal parts, `vectors` accumulators in all, with prefetches `ahead` bytes."""
    row = vectors // streams * _LANES
    sums, adds = [], []
    for stream in range(streams):
        for k in range(vectors // streams):
            at = f"ramp({(stream * row) + k * _LANES}, 1, {_LANES})"
            sums.append(at)
            if ahead:
                later = f"min(b + {max(1, ahead // (row * 8))}, blocks - 1)"
                adds.append(f"evaluate prefetch(x[p, {stream}, {later}, {k * _LANES}], 3)")
            adds.append(f"s[{at}] += x[p, {stream}, b, ramp({k * _LANES}, 1, {_LANES})]")
    return f"""
kernel read(parts: i64 in [1, ], blocks: i64 in [1, ]) {{
  in x: u64[parts, {streams}, blocks, {row}]
  out sums: u64[parts, {row * streams}]
  for p in 0 .. parts parallel {{
    alloc s: u64[{row * streams}]
    {" ".join(f"s[{at}] = broadcast(0u64, {_LANES})" for at in sums)}
    for b in 0 .. blocks {{ {" ".join(adds)} }}
    {" ".join(f"sums[p, {at}] = s[{at}]" for at in sums)}
  }}
}}"""


def _write_nest(parts: int, blocks: int, how: str) -> str:
    """Sizes are constants: streaming stores need alignment that is proved."""
    stores = (f"y[p, b, ramp({k * _LANES}, 1, {_LANES})] = broadcast(0u64, {_LANES}) {how}" for k in range(4))
    return f"""
kernel write() {{
  out y: u64[{parts}, {blocks}, {4 * _LANES}] align 64
  for p in 0 .. {parts} parallel {{
    for b in 0 .. {blocks} {{ {" ".join(stores)} }}
  }}
}}"""


def _peak_nest(chains: int, kind: str) -> str:
    """Independent chains of operations, so many that their latency is hidden."""
    places = [f"s[ramp({16 * k}, 1, 16)]" for k in range(chains)]
    wholes = [f"n[ramp({16 * k}, 1, 16)]" for k in range(chains)] if kind == "any" else []
    step = "a / {at}" if kind == "divide" else "fma({at}, a, b)"
    return f"""
kernel peak(parts: i64 in [1, ], rounds: i64 in [1, ]) {{
  in x: f32[parts, 2]
  out y: f32[parts, {16 * chains}]
  for p in 0 .. parts parallel {{
    alloc s: f32[{16 * chains}]
    alloc n: i32[{16 * chains}]
    let a = broadcast(x[p, 0], 16)
    let b = broadcast(x[p, 1], 16)
    {" ".join(f"{at} = a" for at in places)}
    {" ".join(f"{at} = bitcast(i32, a)" for at in wholes)}
    for r in 0 .. rounds {{
      {" ".join(f"{at} = {step.format(at=at)}" for at in places)}
      {" ".join(f"{at} = {at} + bitcast(i32, b)" for at in wholes)}
    }}
    {" ".join(f"y[p, ramp({16 * k}, 1, 16)] = {at}" for k, at in enumerate(places))}
    {" ".join(f"y[p, ramp({16 * k}, 1, 16)] = f32({at})" for k, at in enumerate(wholes))}
  }}
}}"""


class _Contest:
    """Samples of several loops in turn. After `narrow` only the two fastest go on, and their samples start anew."""

    def __init__(self, loops: Sequence[Callable[[], float]]) -> None:
        self._samples: dict[Callable[[], float], list[float]] = {loop: [] for loop in loops}
        self._turn = 0

    def sample(self) -> None:
        loops = list(self._samples)
        loop = loops[self._turn % len(loops)]
        self._turn += 1
        self._samples[loop].append(loop())

    def narrow(self) -> None:
        for _ in range(2 * len(self._samples)):
            self.sample()
        fastest = sorted(self._samples, key=lambda loop: median(self._samples[loop]))[:2]
        self._samples = {loop: [] for loop in fastest}
        for _ in fastest:
            self.sample()

    def best(self) -> float:
        return min(median(samples) for samples in self._samples.values())


def _timed(call: Callable[[], object]) -> float:
    """Of the second call, when the caches hold what the first one left."""
    call()
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def _scaled(share: float, kernel: Any, **arguments: Any) -> Callable[[], float]:
    return lambda: share * _timed(lambda: kernel(**arguments))


class MemoryRoof:
    """The time to read arrays once and to write so many bytes once, at the best speed of several loops."""

    def __init__(self, runtime: Runtime, reads: Sequence[Any], written: int) -> None:
        parts = runtime.threads
        self._contests = []
        for array in reads:
            kinds = (8, 1, 0), (16, 1, 0), (16, 4, 0), (8, 1, 1024), (16, 4, 512)
            loops = [self._read(runtime, array, *kind) for kind in kinds]
            if there := [loop for loop in loops if loop]:  # some KiB take no time worth counting
                self._contests.append(_Contest(there))
        blocks = max(1, written // (4 * _LANES * 8 * parts))
        kernels = [runtime.compile(_write_nest(parts, blocks, how)) for how in ("", "streaming")]
        into = kernels[0]()  # the library's own memory, as the op's outputs: its pages make a difference
        share = written / into.nbytes
        writes = [_scaled(share, kernel, y=into) for kernel in kernels]
        if parts == 1:
            writes.append(lambda: share * _timed(lambda: ctypes.memset(into.ctypes.data, 0, into.nbytes)))
        self._contests.append(_Contest(writes))
        for contest in self._contests:
            contest.narrow()

    def _read(self, runtime: Runtime, array: Any, vectors: int, streams: int, ahead: int) -> Callable[[], float] | None:
        parts, row = runtime.threads, vectors // streams * _LANES
        flat = array.reshape(-1)
        flat = flat[: flat.nbytes // 8 * 8 // flat.itemsize].view(np.uint64)
        blocks = flat.size // (parts * streams * row)
        if blocks == 0:
            return None
        x = flat[: parts * streams * blocks * row].reshape(parts, streams, blocks, row)
        kernel = runtime.compile(_read_nest(vectors, streams, ahead))
        sums = np.empty((parts, row * streams), np.uint64)
        return _scaled(array.nbytes / x.nbytes, kernel, x=x, sums=sums)

    def sample(self) -> None:
        for contest in self._contests:
            contest.sample()

    def seconds(self) -> float:
        return sum(contest.best() for contest in self._contests)


class PeakRoof:
    """The time of so many float32 operations at the best speed of loops that do nothing else: the longest of that of
    the multiplications and multiply-adds, that of the divisions, and that of all, at the speed of multiply-adds and
    integer additions together."""

    _ROUNDS = 100_000

    def __init__(self, runtime: Runtime, operations: dict[str, float]) -> None:
        wanted = {"multiply": operations.get("multiply", 0), "divide": operations.get("divide", 0)}
        wanted["any"] = sum(operations.values())
        self._contests = []
        for kind, count in wanted.items():
            if count:
                loops = [self._loop(runtime, kind, count, chains) for chains in (6, 8, 12, 20)]
                self._contests.append(_Contest(loops))
                self._contests[-1].narrow()

    def _loop(self, runtime: Runtime, kind: str, count: float, chains: int) -> Callable[[], float]:
        parts = runtime.threads
        kernel = runtime.compile(_peak_nest(chains, kind))
        done = 16 * chains * parts * self._ROUNDS * (2 if kind == "any" else 1)
        x, y = np.full((parts, 2), 0.5, np.float32), np.empty((parts, 16 * chains), np.float32)
        return _scaled(count / done, kernel, x=x, y=y, rounds=self._ROUNDS)

    def sample(self) -> None:
        for contest in self._contests:
            contest.sample()

    def seconds(self) -> float:
        return max(contest.best() for contest in self._contests)
