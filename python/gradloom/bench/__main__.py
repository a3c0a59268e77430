"""`python -m gradloom.bench`."""

import argparse
import contextlib
import json
import os
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import gradloom

if TYPE_CHECKING:
    from gradloom.bench.race import Result

_EPILOG = """\
ms: the median of a call, each with a new output. roof: the time to read the inputs once and to write the output once, at
the best speed of loop nests that do only that, between the calls; for GRUGrad, of its products at the multiply-add peak;
for elementwise ops the longer of that of the bytes and arith ms: the operations of the op's loop nest, at the best speed
of loops that compute only. numpy, PyTorch, JAX: how many times as long they take (PyTorch, JAX: the backward pass of
their own forward op). Kernels are compiled for their shapes, before the timing. Exit code 1: an output was wrong.

examples:
  python -m gradloom.bench gg --threads 2
  python -m gradloom.bench --plot roof.png
"""


def _fail(message: str, code: int = 2) -> NoReturn:
    print(f"gradloom.bench: {message}", file=sys.stderr)
    sys.exit(code)


def _needed(name: str, why: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        _fail(f"{why} needs {name.partition('.')[0]}: pip install {name.partition('.')[0]}", 1)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m gradloom.bench",
        description="Times the ops' full-sized cases beside this machine's roof, numpy and PyTorch.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    cpus = len(os.sched_getaffinity(0))
    parser.add_argument(
        "case", nargs="*", default=["all"], help="cases, groups (ge gg sl bg gru_grad declared), all (default)"
    )
    parser.add_argument("--list", action="store_true", help="name the cases, and time nothing")
    parser.add_argument("--threads", type=int, default=1, help=f"threads, pinned: 1 (default) to {cpus}, 0: all")
    parser.add_argument("--seconds", type=float, default=1.0, help="time for each call of a case; default 1")
    parser.add_argument("--plot", metavar="FILE", help="draw time against the roof, as .png, .svg or .pdf")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    options = parser.parse_args(arguments)
    if not 0 <= options.threads <= cpus:
        _fail(f"--threads is {options.threads}, expected 0 to {cpus}, the CPUs of this process")
    if not 0.01 <= options.seconds <= 600:  # false for nan
        _fail(f"--seconds is {options.seconds}, expected 0.01 to 600")
    options.threads = options.threads or cpus
    return options


def _pin(threads: int) -> None:
    """The threads of the libraries that are imported later inherit it. The first CPUs serve interrupts."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-threads:])
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = str(threads)


def _cpu() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return "unknown CPU"


def _torch(threads: int) -> Any:
    """None where it is missing or broken."""
    with contextlib.suppress(Exception):
        torch = import_module("torch")
        torch.set_num_threads(threads)
        return torch
    return None


def _jax() -> Any:
    """None where it is missing or broken. Its threads are as many as the CPUs that the process may use."""
    with contextlib.suppress(Exception):
        jax = import_module("jax")
        jax.config.update("jax_platforms", "cpu")
        return jax
    return None


@contextlib.contextmanager
def _progress(text: str) -> Iterator[None]:
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text} ...", end="", file=sys.stderr, flush=True)
    try:
        yield
    finally:
        if sys.stderr.isatty():
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def _table(results: Sequence["Result"], peers: Sequence[str]) -> str:
    def milliseconds(seconds: float) -> str:
        return f"{1000 * seconds:.3g}" if seconds < 0.999 else f"{1000 * seconds:.0f}"

    rows = [["case", "op", "strategy", "ms", "roof ms", "arith ms", "x roof", "GB/s", *peers, "verified"]]
    for result in results:
        ours = result.median("gradloom") or 0.0
        rate = "" if result.case.flops else f"{result.bytes_moved / ours / 1e9:.1f}"
        times = [f"{beside / ours:.1f}x" if (beside := result.median(peer)) else "" for peer in peers]
        head = [result.case.name, result.case.op, result.strategy, milliseconds(ours), milliseconds(result.roof)]
        head.append(milliseconds(result.roofs["arithmetic"]) if "arithmetic" in result.roofs else "")
        rows.append([*head, f"{ours / result.roof:.2f}", rate, *times, "WRONG" if result.wrong else "yes"])
    sizes = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    left = {0, 1, 2, len(rows[0]) - 1}
    lines = (
        "  ".join(cell.ljust(size) if k in left else cell.rjust(size) for k, (cell, size) in enumerate(zip(row, sizes)))
        for row in rows
    )
    return "\n".join(line.rstrip() for line in lines)


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    _pin(options.threads)
    numpy = _needed("numpy", "the bench")
    from gradloom.bench.case_list import CASES, chosen

    if options.list:
        for case in CASES:
            print(f"{case.name:<12} {case.op:<19} {case.size}")
        return 0
    try:
        cases = chosen(options.case)
    except KeyError as error:
        known = ["all", *dict.fromkeys(case.group for case in CASES), *(case.name for case in CASES)]
        _fail(f"got case {error.args[0]!r}, expected {', '.join(known)}")
    if options.plot:
        if Path(options.plot).suffix not in (".png", ".svg", ".pdf"):
            _fail(f"--plot is {options.plot}, expected a name that ends with .png, .svg or .pdf")
        if not Path(options.plot).absolute().parent.is_dir():
            _fail(f"--plot is {options.plot}, whose folder is not there")
        _needed("matplotlib", "--plot")  # before minutes of timing
    from gradloom.bench.race import measure

    with _progress("looking for PyTorch and JAX"):
        torch, jax = _torch(options.threads), _jax()
    # A cold compile is not timed, and a shape's own kernel is there at once.
    runtime = gradloom.Runtime(threads=options.threads, policy="specialise", disk_cache="off")
    peers = {"numpy": f"numpy {numpy.__version__}"}
    peers |= {name: f"{name} {found.__version__}" for name, found in (("PyTorch", torch), ("JAX", jax)) if found}
    threads = f"{options.threads} thread{'s' if options.threads > 1 else ''}"
    machine = f"{_cpu()}, {threads}, gradloom {gradloom.__version__}, {', '.join(peers.values())}"
    results: list[Result] = []
    status = 0
    try:
        for k, case in enumerate(cases):
            with _progress(f"{case.name} ({k + 1} of {len(cases)})"):
                result = measure(case, runtime, options.seconds, torch, jax)
            results.append(result)
            if options.json:
                print(json.dumps(result.as_json() | {"threads": options.threads}), flush=True)
            if result.wrong:
                status = 1
                print(f"gradloom.bench: {case.name}: {result.wrong}", file=sys.stderr)
    except KeyboardInterrupt:
        status = 130
    if results and not options.json:
        print(f"{machine}\n\n{_table(results, list(peers))}")
        if missing := [name for name, found in (("PyTorch", torch), ("JAX", jax)) if not found]:
            print(f"\nNot installed, so not timed: {', '.join(missing)}.")
    if results and options.plot:
        from gradloom.bench.plot import draw

        draw(results, machine, options.plot)
        print(f"gradloom.bench: wrote {options.plot}", file=sys.stderr)
    return status


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:  # while libraries are imported: there is nothing to show yet
        sys.exit(130)
