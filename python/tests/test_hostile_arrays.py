"""Objects that lie about being arrays, or raise where arrays do not: an exception each, never a crash."""

import ctypes
from collections.abc import Iterator

import gradloom
import numpy as np
import pytest


def test_ctypes_arrays_have_no_strides() -> None:
    given = (ctypes.c_float * 3)(1, 2, 4)
    total = (ctypes.c_float * 1)()
    gradloom.broadcast_grad(given, [1], out=total)
    assert total[0] == 7


class Raises(list):  # type: ignore[type-arg]
    def __iter__(self) -> Iterator[object]:
        raise RuntimeError("iter")


def test_what_a_sequence_raises_is_raised() -> None:
    x = np.ones((3, 3), np.float32)
    for call in (
        lambda: gradloom.run("BroadcastGrad", Raises([x, [3]])),
        lambda: gradloom.broadcast_grad(x, Raises([3])),
        lambda: gradloom.broadcast_grad(x, [3], out=Raises([x[0].copy()])),
    ):
        with pytest.raises(RuntimeError, match="iter"):
            call()


def test_dlpack_that_is_no_capsule() -> None:
    class Lies:
        def __dlpack__(self, **options: object) -> int:
            return 5

    with pytest.raises(ValueError, match="gives an object of type int by __dlpack__"):
        gradloom.broadcast_grad(Lies(), [3])


def test_an_array_that_holds_nothing() -> None:
    empty = gradloom.Array.__new__(gradloom.Array)
    with pytest.raises(ValueError, match="holds nothing"):
        gradloom.broadcast_grad(empty, [1])
    with pytest.raises(BufferError, match="holds nothing"):
        memoryview(empty)
