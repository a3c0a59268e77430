"""Calls timed in turn, so that a slow moment of the machine meets all of them."""

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from gradloom import Runtime
from gradloom.bench.cases import Case
from gradloom.bench.roof import MemoryRoof, PeakRoof

_FEWEST = 5
_FEWEST_OF_SLOW = 2  # peers that take seconds
_SHORTEST = 0.0005  # shorter calls are timed several at a time


@dataclass
class Result:
    case: Case
    strategy: str
    seconds: dict[str, list[float]]  # samples by who
    roof: float
    bytes_moved: int
    wrong: str | None

    def median(self, who: str) -> float | None:
        samples = self.seconds.get(who)
        return median(samples) if samples else None

    def as_json(self) -> dict[str, Any]:
        return {
            "case": self.case.name,
            "op": self.case.op,
            "strategy": self.strategy,
            "roof_ms": 1000 * self.roof,
            "median_ms": {who: 1000 * median(samples) for who, samples in self.seconds.items()},
            "n": {who: len(samples) for who, samples in self.seconds.items()},
            "verified": self.wrong is None,
        }


@dataclass
class _Entrant:
    call: Callable[[], object]
    samples: list[float] = field(default_factory=list)
    spent: float = 0.0
    batch: int = 1

    def start(self) -> None:
        """What the first call costs does not count."""
        self.call()
        begin = time.perf_counter()
        self.call()
        self.batch = max(1, int(_SHORTEST / max(time.perf_counter() - begin, 1e-7)))

    def run(self) -> None:
        begin = time.perf_counter()
        if not self.slow:
            self.call()  # the others have been in the caches
        middle = time.perf_counter()
        for _ in range(self.batch):
            self.call()
        end = time.perf_counter()
        self.samples.append((end - middle) / self.batch)
        self.spent += end - begin

    @property
    def slow(self) -> bool:
        return bool(self.samples) and self.samples[0] > 0.1

    def wants_more(self, seconds: float) -> bool:
        return self.spent < seconds or len(self.samples) < (_FEWEST_OF_SLOW if self.slow else _FEWEST)


def measure(case: Case, runtime: Runtime, seconds: float, torch: Any = None) -> Result:
    """The case's call on `runtime` beside the roof, numpy and, where given, PyTorch: so long each."""
    operands = case.operands()
    handle = runtime.prepare(case.op, **case.attributes)
    got = handle(*operands)
    strategy = runtime.last_report()["strategy"]
    in_numpy = case.in_numpy(operands)
    wrong = case.difference(got, operands, in_numpy())
    del got
    entrants = {"gradloom": _Entrant(lambda: handle(*operands)), "numpy": _Entrant(in_numpy)}
    if torch:
        entrants["PyTorch"] = _Entrant(case.in_torch(torch, operands))
    reads = case.reads(operands)
    roof = PeakRoof(runtime, case.flops) if case.flops else MemoryRoof(runtime, reads, case.written)
    for entrant in entrants.values():
        entrant.start()
    collecting = gc.isenabled()
    gc.disable()
    try:
        while running := [entrant for entrant in entrants.values() if entrant.wants_more(seconds)]:
            for entrant in running:
                entrant.run()
            roof.sample()
    finally:
        if collecting:
            gc.enable()
    moved = sum(each.nbytes for each in reads) + case.written
    samples = {who: entrant.samples for who, entrant in entrants.items()}
    return Result(case, strategy, samples, roof.seconds(), moved, wrong)
