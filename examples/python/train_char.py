#!/usr/bin/env python3
"""Trains the same model with PyTorch alone and with gradloom's gradients, and compares: losses, bits, times.

  python3 examples/python/train_char.py --plot losses.png
  python3 examples/python/train_char.py --task licences --profile

Both start from the same parameters and take turns of ten steps. Then gradloom's run is made once more: each loss and
each parameter must be the same bits. A difference in rounding grows while a model trains: how far both are from the
same training in float64 says how much of that there is. gradloom comes in by `gradloom.torch.enable()`, the model
unchanged, or with `--by modules` by `gradloom.torch.nn`'s Embedding and GRU in place of `torch.nn`'s.
"""

import argparse
import contextlib
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import torch
from models import TASKS, Characters, Pieces, digest, start, train
from torch import Tensor

import gradloom
import gradloom.torch

_TURN = 10  # steps; enabling and disabling frees what is recycled, so that it is not done at each


@dataclass
class Run:
    name: str
    modules: Any
    enabled: bool
    dtype: torch.dtype = torch.float32
    losses: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    bits: str = ""

    def gradients(self) -> contextlib.AbstractContextManager[object]:
        return gradloom.torch.enabled() if self.enabled else contextlib.nullcontext()


def train_in_turns(task: Characters | Pieces, runs: list[Run], steps: int) -> None:
    models = [start(task, run.modules).to(run.dtype) for run in runs]
    trainings: list[Iterator[Tensor]] = [train(task, model, steps) for model in models]
    for first in range(0, steps, _TURN):
        for run, training in zip(runs, trainings, strict=True):
            with run.gradients():
                for _ in range(min(_TURN, steps - first)):
                    begin = time.perf_counter()
                    loss = next(training)
                    run.seconds.append(time.perf_counter() - begin)
                    run.losses.append(float(loss))
        if sys.stderr.isatty():
            print(f"\r\x1b[K{first} of {steps} steps ...", end="", file=sys.stderr, flush=True)
    if sys.stderr.isatty():
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)
    for run, model in zip(runs, models, strict=True):
        run.bits = digest(model)


def profile(task: Characters | Pieces, run: Run, steps: int = 10) -> None:
    model = start(task, run.modules)
    training = train(task, model, 2 * steps)
    with run.gradients():
        for _ in range(steps):
            next(training)
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
            for _ in range(steps):
                next(training)
    events = {event.key: event for event in profiler.key_averages()}
    whole = sum(event.self_cpu_time_total for event in events.values())
    print(f"\n{run.name}: {whole / steps / 1000:.1f} ms of ops a step; without what an op calls, and with it")
    for event in sorted(events.values(), key=lambda event: -event.self_cpu_time_total)[:8]:
        alone, all_in = event.self_cpu_time_total, event.cpu_time_total
        print(f"  {alone / steps / 1000:8.2f} ms {alone / whole:6.1%} {all_in / whole:7.1%}  {event.key}")
    for scatter in ("aten::embedding_dense_backward", "embeddingBackward"):
        if scatter in events:
            print(f"  the scatter, {scatter}: {events[scatter].cpu_time_total / whole:.1%} of the step")


def differences(run: Run, other: Run) -> list[float]:
    return [abs(a - b) / abs(b) for a, b in zip(run.losses, other.losses, strict=True)]


def plot(results: dict[str, list[Run]], title: str, path: str) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, grid = pyplot.subplots(
        2, len(results), figsize=(5.5 * len(results), 5.5), height_ratios=[3, 1], sharex="col", squeeze=False
    )
    for (name, (plain, ours, exact)), (losses, apart) in zip(results.items(), grid.T, strict=True):
        ratio = median(plain.seconds) / median(ours.seconds)
        losses.plot(plain.losses, color="#E69F00", lw=4, alpha=0.6, label=plain.name)
        losses.plot(ours.losses, color="#0072B2", lw=1, label=ours.name)
        losses.set_title(f"{name}: a step {ratio:.2f} times faster", fontsize=11, loc="left")
        losses.set_ylabel("loss, nats")
        losses.legend(frameon=False)
        for run, color in ((plain, "#E69F00"), (ours, "#0072B2")):
            apart.semilogy([max(far, 1e-9) for far in differences(run, exact)], color=color, lw=1)
        apart.set_ylabel("from float64,\nrelative")
        apart.set_xlabel("step")
        for axes in (losses, apart):
            axes.grid(color="#EEEEEE")
            axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle(title, fontsize=9, color="#444444", x=0.01, ha="left")
    figure.tight_layout()
    figure.savefig(path, dpi=140)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", nargs="+", choices=list(TASKS), default=list(TASKS))
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--by", choices=["enable", "modules"], default="enable")
    parser.add_argument("--plot", metavar="FILE", help="the losses over the steps, as .png, .svg or .pdf")
    parser.add_argument("--profile", action="store_true", help="the ops of a step")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    by_enable = options.by == "enable"
    results: dict[str, list[Run]] = {}
    fine = True
    head = f"{'task':<12}{'PyTorch':>10}{'gradloom':>10}{'faster':>8}{'last losses':>18}{'differ by':>12}"
    print(f"{head}{'off float64':>19}  two runs")
    for name in options.task:
        task = TASKS[name]()
        modules = torch.nn if by_enable else gradloom.torch.nn
        plain = Run(f"PyTorch {torch.__version__}", torch.nn, False)
        ours, again = (Run(f"gradloom {gradloom.__version__}", modules, by_enable) for _ in range(2))
        train_in_turns(task, [plain, ours], options.steps)
        train_in_turns(task, [again], options.steps)
        exact = Run("float64", torch.nn, False, torch.float64)
        train_in_turns(task, [exact], options.steps)
        same = ours.losses == again.losses and ours.bits == again.bits
        apart, far_before, far = (max(differences(*two)) for two in ((ours, plain), (plain, exact), (ours, exact)))
        before, after = 1000 * median(plain.seconds), 1000 * median(ours.seconds)
        last = f"{plain.losses[-1]:.4f} {ours.losses[-1]:.4f}"
        print(
            f"{name:<12}{before:>7.1f} ms{after:>7.1f} ms{before / after:>7.2f}x{last:>18}{apart:>12.1e}"
            f"{far_before:>10.1e}{far:>9.1e}  {'the same bits' if same else 'DIFFERENT BITS'}",
            flush=True,
        )
        fine = fine and same
        results[name] = [plain, ours, exact]
        if options.profile:
            for run in (plain, ours):
                profile(task, run)
    if options.plot:
        threads = f"{options.threads} thread{'s' if options.threads > 1 else ''}"
        plot(results, f"{threads}; medians of {options.steps} steps, taken in turn; by {options.by}", options.plot)
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
