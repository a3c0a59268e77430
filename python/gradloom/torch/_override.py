"""Overrides of PyTorch's CPU kernels by gradloom's: an unchanged model gets its gradients."""

import contextlib
import ctypes
import threading
from collections.abc import Iterator
from dataclasses import dataclass

from gradloom.errors import InvalidArgument, InternalError
from gradloom.torch import _override_build, _override_gru

_lock = threading.Lock()
_extension: ctypes.PyDLL | None = None
_on = False
_explicit = False
_contexts: set[object] = set()
_memory = 1 << 30
_applied = 0


@dataclass(frozen=True)
class OpStats:
    """Calls of one of PyTorch's ops."""

    served: int
    """By gradloom."""
    fallback: dict[str, int]
    """By PyTorch's own kernel, and why: the reasons of docs/torch_enable.md."""


@dataclass(frozen=True)
class Stats:
    """Since the process began, or since `stats(reset=True)`."""

    ops: dict[str, OpStats]
    memory_kept: int
    """Bytes of outputs that are no longer used, kept for the next ones."""


def _check(refusal: bytes | None) -> None:
    if refusal:
        raise InternalError(f"gradloom.torch: {refusal.decode(errors='replace')}")


def _apply() -> None:
    """Makes the dispatcher what the state asks for. Requires the lock."""
    global _extension, _on, _applied
    wanted = _explicit or bool(_contexts)
    if wanted and (not _on or _memory != _applied):
        if _extension is None:
            _extension = _override_build.load()
        _check(_extension.gradloom_torch_enable(_memory))
        _override_gru.register()
        _applied = _memory
    elif not wanted and _on and _extension is not None:
        _override_gru.take_back()
        _check(_extension.gradloom_torch_disable())
    _on = wanted


def enable(*, memory: int = 1 << 30) -> None:
    """From now on PyTorch's gradients of gather, index_select, embedding, slices and selects, and its scatter_add,
    index_add and index_put with accumulate, are gradloom's, in all threads, for tensors in the CPU's memory.

    `memory` is how many bytes of outputs that are no longer used are kept for the next ones. The first call builds an
    extension, which needs a C++ compiler. Call it while no other thread runs ops of PyTorch.
    """
    global _explicit, _memory
    if memory < 0:
        raise InvalidArgument(f"gradloom.torch.enable: memory is {memory}; it must be 0 or more")
    with _lock:
        before = _explicit, _memory
        _explicit, _memory = True, memory
        try:
            _apply()
        except BaseException:
            _explicit, _memory = before
            raise


def disable() -> None:
    """PyTorch's own kernels again, whatever contexts of `enabled` are open; frees the memory that is kept."""
    global _explicit
    with _lock:
        _explicit = False
        _contexts.clear()
        _apply()


@contextlib.contextmanager
def enabled(*, memory: int = 1 << 30) -> Iterator[None]:
    """`enable` for a block; after it the state is what it was before. Blocks may be nested, and overlap in threads."""
    global _memory
    if memory < 0:
        raise InvalidArgument(f"gradloom.torch.enabled: memory is {memory}; it must be 0 or more")
    token = object()
    with _lock:
        if not _on:
            _memory = memory
        _contexts.add(token)
        try:
            _apply()
        except BaseException:
            _contexts.discard(token)
            raise
    try:
        yield
    finally:
        with _lock:
            if token in _contexts:  # else `disable` was called meanwhile
                _contexts.discard(token)
                _apply()


def _op_stats(counts: dict[str, int]) -> OpStats:
    return OpStats(counts.pop("served", 0), {reason: count for reason, count in counts.items() if count})


def stats(*, reset: bool = False) -> Stats:
    """What was served, and what was left to PyTorch's kernels, by reason."""
    with _lock:
        if _extension is None:
            return Stats({}, 0)
        extension = _extension
    ops: dict[str, OpStats] = {}
    kernel = 0
    while name := extension.gradloom_torch_kernel_name(kernel):
        counts: dict[str, int] = {}
        outcome = 0
        while reason := extension.gradloom_torch_outcome_name(outcome):
            counts[reason.decode()] = extension.gradloom_torch_count(kernel, outcome)
            outcome += 1
        ops[name.decode()] = _op_stats(counts)
        kernel += 1
    ops[_override_gru.NAME] = _op_stats(dict(_override_gru.counts))
    if reset:
        extension.gradloom_torch_reset_counts()
        _override_gru.counts.clear()
    return Stats(ops, extension.gradloom_torch_memory_kept())


__all__ = ["OpStats", "Stats", "disable", "enable", "enabled", "stats"]
