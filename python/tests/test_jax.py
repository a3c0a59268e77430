"""gradloom.jax against jax's own functions."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax")
jnp = jax.numpy

import gradloom.jax as ours  # noqa: E402
from gradloom.bench.case_list import CASES  # noqa: E402
from gradloom.bench.declared import Declared  # noqa: E402

RNG = np.random.default_rng(1)


@pytest.fixture(autouse=True)
def _wide() -> Any:
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", False)


def values(*shape: int, dtype: Any = np.float64) -> Any:
    return jnp.asarray(RNG.normal(size=shape), dtype)


def gradient(function: Any, x: Any, indices: Any, axis: int | None) -> Any:
    """Of a weighted sum of what is taken."""
    weights = jnp.asarray(np.random.default_rng(2).normal(size=function(x, indices, axis=axis).shape), x.dtype)
    return jax.jit(jax.grad(lambda x: (function(x, indices, axis=axis) * weights).sum()))(x)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
@pytest.mark.parametrize("indices", ["int32", "int64", "uint8", "uint32"])
def test_take_of_each_dtype(dtype: str, indices: str) -> None:
    x, places = values(7, 5, dtype=dtype), jnp.asarray(RNG.integers(7, size=(4, 9)), indices)
    assert jnp.array_equal(ours.take(x, places, axis=0), jnp.take(x, places, axis=0))
    got, want = gradient(ours.take, x, places, 0), gradient(jnp.take, x.astype(np.float64), places, 0)
    assert got.dtype == x.dtype
    rounding = float(jnp.finfo(dtype).eps)
    np.testing.assert_allclose(got.astype(np.float64), want, rtol=8 * rounding, atol=16 * rounding)


@pytest.mark.parametrize("shape", [(6,), (4, 6), (3, 4, 5)])
@pytest.mark.parametrize("places", [(), (0,), (9,), (2, 3)])
def test_take_along_each_axis(shape: tuple[int, ...], places: tuple[int, ...]) -> None:
    for axis in (None, *range(-len(shape), len(shape))):
        size = int(np.prod(shape)) if axis is None else shape[axis]
        x, indices = values(*shape), jnp.asarray(RNG.integers(-size, size, size=places))
        assert jnp.array_equal(ours.take(x, indices, axis=axis), jnp.take(x, indices, axis=axis))
        np.testing.assert_allclose(
            gradient(ours.take, x, indices, axis), gradient(jnp.take, x, indices, axis), rtol=1e-14, atol=1e-14
        )


@pytest.mark.parametrize(
    ("shape", "places", "axis"),
    [
        ((5, 4), (7, 4), 0),
        ((5, 4), (5, 3), 1),
        ((5, 4), (5, 3), -1),
        ((5, 4), (1, 3), 1),
        ((1, 4), (6, 3), 1),
        ((2, 3, 4), (2, 9, 1), 1),
        ((2, 3, 4), (2, 0, 4), 1),
        ((6,), (20,), 0),
        ((6,), (20,), None),
        ((3, 4), (20,), None),
    ],
)
def test_take_along_axis(shape: tuple[int, ...], places: tuple[int, ...], axis: int | None) -> None:
    size = int(np.prod(shape)) if axis is None else shape[axis]
    x, indices = values(*shape), jnp.asarray(RNG.integers(-size, size, size=places))
    both = ours.take_along_axis, jnp.take_along_axis
    assert jnp.array_equal(*(function(x, indices, axis=axis) for function in both))
    got, want = (gradient(function, x, indices, axis) for function in both)
    np.testing.assert_allclose(got, want, rtol=1e-14, atol=1e-14)


def test_a_sum_is_in_the_order_of_the_indices() -> None:
    indices, upstream = RNG.integers(5, size=1000), RNG.normal(size=(1000, 3)).astype(np.float32)
    want = np.zeros((5, 3), np.float32)
    np.add.at(want, indices, upstream)
    _, backward = jax.vjp(lambda x: ours.take(x, indices, axis=0), jnp.zeros((5, 3), np.float32))
    for _ in range(3):
        assert np.array_equal(np.asarray(backward(jnp.asarray(upstream))[0]).view(np.uint32), want.view(np.uint32))


@pytest.mark.parametrize("name", ["take", "take_along_axis"])
def test_gradients_of_higher_order(name: str) -> None:
    x, indices = values(6, 3), jnp.asarray(RNG.integers(6, size=(8, 3) if name == "take_along_axis" else (8,)))

    def energy(function: Any) -> Any:
        return lambda x: (jnp.sin(function(x, indices, axis=0)) * function(x, indices, axis=0)).sum()

    direction = values(6, 3)

    def second(function: Any) -> Any:
        return jax.jit(jax.grad(lambda x: (jax.grad(energy(function))(x) * direction).sum()))(x)

    np.testing.assert_allclose(second(getattr(ours, name)), second(getattr(jnp, name)), rtol=1e-12, atol=1e-12)


def test_vmap() -> None:
    x, indices = values(4, 6, 3), jnp.asarray(RNG.integers(6, size=(4, 8)))

    def gradients(function: Any, batched: Any) -> Any:
        one = jax.grad(lambda x, indices: (function(x, indices, axis=0) ** 2).sum())
        return jax.jit(jax.vmap(one, batched))(x, indices if batched[1] == 0 else indices[0])

    for batched in ((0, 0), (0, None)):
        np.testing.assert_allclose(gradients(ours.take, batched), gradients(jnp.take, batched), rtol=1e-14)


def test_a_bad_index_is_an_error_in_the_gradient() -> None:
    with pytest.raises(Exception, match=r"indices\)\[1\] is 6; it must be in \[-6, 5\]"):
        gradient(ours.take, values(6, 3), jnp.asarray([0, 6]), 0).block_until_ready()


@pytest.mark.parametrize("dtype", ["uint32", "uint64"])
def test_a_large_unsigned_index_is_not_a_negative_one(dtype: str) -> None:
    indices = jnp.asarray([0, np.iinfo(dtype).max], dtype)
    assert np.isnan(ours.take(values(6), indices)).tolist() == [False, True]
    largest = min(np.iinfo(dtype).max, np.iinfo(np.int64).max)
    with pytest.raises(Exception, match=rf"indices\)\[1\] is {largest}; it must be in"):
        gradient(ours.take, values(6), indices, 0).block_until_ready()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ours.take(jnp.arange(3), jnp.arange(3), axis=0), "x is int64; it must be one of float64"),
        (lambda: ours.take(values(3), values(3), axis=0), "indices are float64; they must be integers"),
        (lambda: ours.take(values(3), jnp.arange(3), axis=1), r"axis is 1; it must be in \[-1, 0\]"),
        (
            lambda: ours.take_along_axis(values(3, 2), jnp.arange(3), axis=0),
            "indices have 1 dims; they must have 2, as x",
        ),
    ],
)
def test_refusals(call: Any, message: str) -> None:
    with pytest.raises(Exception, match=message) as refused:
        call()
    assert type(refused.value).__module__ == "gradloom.errors"


def test_the_example_of_the_page() -> None:
    page = (Path(__file__).parents[2] / "docs" / "python.md").read_text()
    _, _, example = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert "import gradloom.jax" in example
    exec(example, {"tokens": np.array([2, 0, 2, -1, 1])})


def test_without_a_compiler_it_takes_one_line(tmp_path: Any) -> None:
    program = "import gradloom.jax"
    environment = {"CXX": "no-such-compiler", "XDG_CACHE_HOME": str(tmp_path), "PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment)
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith("gradloom.errors.Unsupported: gradloom.jax: it builds an extension and needs a C++ compiler")


@pytest.mark.parametrize("op", sorted({case.op for case in CASES if case.group == "declared"}))
def test_what_the_bench_times_in_jax_is_the_same_gradient(op: str) -> None:
    case = Declared(op, op, (7, 9))
    operands = case.operands()
    jax.config.update("jax_enable_x64", False)
    got = case.in_jax(jax, operands)()
    outputs = tuple(np.asarray(output) for output in got)
    numpys = case.in_numpy(operands)()
    if op == "SoftmaxGrad_13":  # jax's takes the gradient from its own input, of which operands hold the softmax
        operands[1] = np.exp(operands[1]) / np.exp(operands[1]).sum(-1, keepdims=True)
        numpys = case.in_numpy(operands)()
    assert case.difference(outputs if isinstance(numpys, tuple) else outputs[0], operands, numpys) is None
