"""Calls timed in turn, so that a slow moment of the machine meets all of them."""

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from gradloom import Runtime
from gradloom.bench.arithmetic import operations
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
    roofs: dict[str, float]  # seconds, by what limits
    bytes_moved: int
    wrong: str | None

    @property
    def roof(self) -> float:
        return max(self.roofs.values())

    def median(self, who: str) -> float | None:
        samples = self.seconds.get(who)
        return median(samples) if samples else None

    def as_json(self) -> dict[str, Any]:
        return {
            "case": self.case.name,
            "op": self.case.op,
            "strategy": self.strategy,
            "roof_ms": 1000 * self.roof,
            "roofs_ms": {what: 1000 * seconds for what, seconds in self.roofs.items()},
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


def measure(case: Case, runtime: Runtime, seconds: float, torch: Any = None, jax: Any = None) -> Result:
    """The case's call on `runtime` beside the roof, numpy and, where given, PyTorch and JAX: so long each."""
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
    if jax and (in_jax := case.in_jax(jax, operands)):
        entrants["JAX"] = _Entrant(in_jax)
    reads = case.reads(operands)
    roofs: dict[str, PeakRoof | MemoryRoof] = {}
    if case.flops:
        roofs["arithmetic"] = PeakRoof(runtime, {"multiply": case.flops / 2})
    else:
        roofs["bytes"] = MemoryRoof(runtime, reads, case.written)
        if case.elementwise and any((counted := operations(case.op, operands)).values()):
            roofs["arithmetic"] = PeakRoof(runtime, counted)
    for entrant in entrants.values():
        entrant.start()
    collecting = gc.isenabled()
    gc.disable()
    try:
        while running := [entrant for entrant in entrants.values() if entrant.wants_more(seconds)]:
            for entrant in running:
                entrant.run()
            for roof in roofs.values():
                roof.sample()
    finally:
        if collecting:
            gc.enable()
    moved = sum(each.nbytes for each in reads) + case.written
    samples = {who: entrant.samples for who, entrant in entrants.items()}
    return Result(case, strategy, samples, {what: roof.seconds() for what, roof in roofs.items()}, moved, wrong)
