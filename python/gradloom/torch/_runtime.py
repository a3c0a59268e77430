"""The runtimes of PyTorch's calls: as many threads as PyTorch uses."""

from typing import Any

import torch

from gradloom._gradloom import Prepared, Runtime
from gradloom.runtime import default_runtime

Attribute = tuple[str, Any]

_runtimes: dict[int, Runtime] = {}
_handles: dict[tuple[Runtime, str, tuple[Attribute, ...]], Prepared] = {}


def runtime() -> Runtime:
    """The runtime of calls with `torch.get_num_threads()` threads.

    It is `gradloom.default_runtime()` where that has as many, else one of its own, kept for the next call.
    """
    threads = torch.get_num_threads()
    shared = default_runtime()
    if shared.threads == threads:
        return shared
    found = _runtimes.get(threads)
    if found is None:
        found = _runtimes.setdefault(threads, Runtime(threads=threads))
    return found


def handle(op: str, *attributes: Attribute) -> Prepared:
    """The op with these attributes, prepared once a runtime."""
    key = (runtime(), op, attributes)
    found = _handles.get(key)
    if found is None:
        found = _handles.setdefault(key, key[0].prepare(op, **dict(attributes)))
    return found


__all__ = ["handle", "runtime"]
