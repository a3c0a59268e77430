"""What tests run in: a fixture that a module imports holds for all of its tests."""

from collections.abc import Iterator
from typing import Any

import gradloom
import gradloom.torch
import pytest
import torch


@pytest.fixture(autouse=True, scope="module")
def runtime() -> Iterator[None]:
    """One that compiles nothing in the background: a kernel for any shape has the same bits."""
    gradloom.set_default_runtime(gradloom.Runtime(threads=1, specialise_after=1 << 30, disk_cache="off"))
    yield
    gradloom.set_default_runtime(None)


@pytest.fixture(autouse=True)
def seeded(request: Any) -> Iterator[None]:
    """By the module's SEED."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(request.module.SEED)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(autouse=True)
def alone() -> Iterator[None]:
    """Each test starts and ends with PyTorch's own kernels and no counts."""
    gradloom.torch.disable()
    gradloom.torch.stats(reset=True)
    yield
    gradloom.torch.disable()


__all__ = ["alone", "runtime", "seeded"]
