"""This machine's speed: loop nests that only read, only write or only multiply and add, timed between an op's calls."""

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


def _peak_nest(chains: int) -> str:
    """Independent chains of multiply-adds, so many that their latency is hidden."""
    places = [f"s[ramp({16 * k}, 1, 16)]" for k in range(chains)]
    return f"""
kernel peak(parts: i64 in [1, ], rounds: i64 in [1, ]) {{
  in x: f32[parts, 2]
  out y: f32[parts, {16 * chains}]
  for p in 0 .. parts parallel {{
    alloc s: f32[{16 * chains}]
    let a = broadcast(x[p, 0], 16)
    let b = broadcast(x[p, 1], 16)
    {" ".join(f"{at} = a" for at in places)}
    for r in 0 .. rounds {{ {" ".join(f"{at} = fma({at}, a, b)" for at in places)} }}
    {" ".join(f"y[p, ramp({16 * k}, 1, 16)] = {at}" for k, at in enumerate(places))}
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
    """The time of so many operations at the multiply-add peak of float32."""

    _ROUNDS = 200_000

    def __init__(self, runtime: Runtime, flops: float) -> None:
        parts = runtime.threads
        x = np.full((parts, 2), 0.5, np.float32)
        loops = []
        for chains in (6, 12, 20):
            kernel = runtime.compile(_peak_nest(chains))
            share = flops / (2.0 * 16 * chains * parts * self._ROUNDS)
            y = np.empty((parts, 16 * chains), np.float32)
            loops.append(_scaled(share, kernel, x=x, y=y, rounds=self._ROUNDS))
        self._contest = _Contest(loops)
        self._contest.narrow()

    def sample(self) -> None:
        self._contest.sample()

    def seconds(self) -> float:
        return self._contest.best()
