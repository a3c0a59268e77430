"""Loop nests that are built in Python."""

import math
from typing import Any

import gradloom
import numpy as np
import pytest


@pytest.fixture(scope="module")
def interpreter() -> gradloom.Runtime:
    return gradloom.Runtime(target="interpreter", disk_cache="off")


def relu() -> gradloom.Kernel:
    b = gradloom.kernel("relu_grad")
    n = b.scalar("n", 0)
    dy, x = b.input("dy", "f32", [n]), b.input("x", "f32", [n])
    dx = b.output("dx", "f32", [n])
    with b.loop("i", 0, n) as i:
        dx[i] = gradloom.select(x[i] > 0, dy[i], 0)
    return b.build()


def test_what_is_built_is_what_is_parsed(interpreter: gradloom.Runtime) -> None:
    kernel = relu()
    text = """kernel relu_grad(n: i64 in [0, ]) {
  in dy: f32[n]
  in x: f32[n]
  out dx: f32[n]
  for i in 0 .. n {
    dx[i] = select(x[i] > 0.0f32, dy[i], 0.0f32)
  }
}
"""
    assert str(kernel) == str(gradloom.parse(text))
    x, dy = np.array([-1, 2, 3], np.float32), np.array([10, 20, 30], np.float32)
    for runtime in (interpreter, gradloom.default_runtime()):
        assert runtime.compile(kernel.schedule("vectorize i 8 4"))(x=x, dy=dy).tolist() == [0, 20, 30]


def test_accumulations(interpreter: gradloom.Runtime) -> None:
    b = gradloom.kernel("scatter")
    n, rows = b.scalar("n", 0, 1000), b.scalar("rows", 1, 100)
    index, dy = b.input("index", "i32", [n]), b.input("dy", "f64", [n])
    dx, most, product = b.output("dx", "f64", [rows]), b.output("most", "f64", []), b.output("product", "f64", [])
    with b.loop("z", 0, rows) as z:
        dx[z] = 0
    most[()] = -math.inf
    product[()] = 0.5
    with b.loop("i", 0, n) as i:
        j = b.let("j", gradloom.cast("i64", index[i]))
        with b.check((j >= 0) & (j < rows), i, "index"):
            dx[j] += dy[i]
            b.accumulate(most, (), dy[i], op="max")
            b.accumulate(product, (), dy[i], op="fma", factor=2)
    kernel = b.build()
    assert "dx[j] += dy[i]" in str(kernel)
    call: dict[str, Any] = {"index": np.array([1, 0, 1], np.int32), "dy": np.array([1.0, 2, 4]), "rows": 2}
    for runtime in (interpreter, gradloom.default_runtime()):
        compiled = runtime.compile(kernel)
        got = compiled(**call)
        assert [g.tolist() for g in got] == [[2, 5], 4, 14.5]
        with pytest.raises(gradloom.OutOfRange, match="index"):
            compiled(**(call | {"rows": 1}))


def test_reductions(interpreter: gradloom.Runtime) -> None:
    b = gradloom.kernel("reductions")
    n, m = b.scalar("n", 0, 100), b.scalar("m", 0, 1000)
    x, w = b.input("x", "f32", [n, m]), b.input("w", "f32", [m])
    y = b.output("y", "f32", [8, n])
    with b.loop("i", 0, n) as i:
        y[0, i] = b.sum("k", 0, m, lambda k: x[i, k])
        y[1, i] = b.sum("k", 0, m, lambda k: x[i, k], order="loop") - b.sum("k", 1, m - 1, lambda k: x[i, k])
        y[2, i] = b.max("k", 0, m, lambda k: x[i, k]) + b.min("k", 0, m, lambda k: x[i, k])
        y[3, i] = b.dot("k", 0, m, lambda k: x[i, k], lambda k: w[k], order="chunks 8")
        y[4, i] = b.sum("k", 0, m, lambda k: b.exp(b.let("v", x[i, k] * 2)), where=lambda k: k % 2 == 0)
        y[7, i] = b.sum("k", 0, m, lambda k: b.exp(x[i, k]), where=lambda k: b.exp(b.let("u", x[i, k])) > 1.0)
        y[5, i] = b.sum("k", 0, m, lambda k: x[i, k], order="any")
    b.reduce(y, (6, 0), [("i", 0, n), ("k", 0, m)], lambda i, k: x[i, k], order="tree 16")
    with b.loop("z", 1, n - 1) as z:
        y[6, z] = 0
    kernel = b.build()
    assert "k_total[0] = sum k in 0 .. m tree 256 of x[i, k]" in str(kernel)
    assert str(gradloom.parse(str(kernel))) == str(kernel)
    values, weights = np.arange(30, dtype=np.float32).reshape(2, 15) / 4, np.arange(15, dtype=np.float32)
    expected = interpreter.compile(kernel)(x=values, w=weights)
    got = gradloom.default_runtime().compile(kernel)(x=values, w=weights)
    np.testing.assert_array_equal(got, expected)
    np.testing.assert_array_equal(got[0], values.sum(1))
    np.testing.assert_array_equal(got[1], values[:, 0])
    np.testing.assert_array_equal(got[2], values.max(1) + values.min(1))
    np.testing.assert_array_equal(got[3], values @ weights)
    np.testing.assert_allclose(got[4], np.exp(2 * values[:, ::2]).sum(1), rtol=1e-6)
    np.testing.assert_array_equal(got[5], values.sum(1))
    assert got[6].tolist() == [values.sum(), 0]
    large = np.where(values > 0, np.exp(values), 0).sum(1)
    np.testing.assert_allclose(got[7], large, rtol=1e-6)


def test_bad_reductions() -> None:
    b = gradloom.kernel("k")
    x, y = b.input("x", "f32", [4]), b.output("y", "f32", [4])
    for order in ("ring", "tree", "tree -16", "tree 99999999999999999999", "loop 3", ""):
        with pytest.raises(gradloom.InvalidArgument, match=f"no order of a reduction: {order}; it is loop, any, tree"):
            b.sum("k", 0, 4, lambda k: x[k], order=order)
    with pytest.raises(gradloom.InvalidArgument, match="multiple of 16 up to 4096, got 17"):
        b.sum("k", 0, 4, lambda k: x[k], order="tree 17")
    with pytest.raises(gradloom.InvalidArgument, match="may use lets, but no other statements"):
        b.sum("k", 0, 4, lambda k: b.sum("l", 0, k, lambda l: x[l]))
    y[0] = b.sum("k", 0, 4, lambda k: x[k])
    with b.loop("i", 1, 3) as i:
        y[i] = 0
    assert str(b.build()).count("sum") == 1


def test_a_sum_that_is_stored_elsewhere_is_a_sum() -> None:
    b = gradloom.kernel("k")
    x, y = b.inout("x", "f32", [4]), b.output("y", "f32", [4])
    e = x[0]
    e += 1
    y[0] = e
    x[1] = x[1] + 1
    text = str(b.build())
    assert "y[0] = x[0] + 1.0f32" in text and "x[1] = x[1] + 1.0f32" in text and "+=" not in text


def test_operators(interpreter: gradloom.Runtime) -> None:
    b = gradloom.kernel("operators")
    s = b.scalar("s", -100, 100)
    f = b.scalar("f", dtype="f64")
    ints, floats = b.output("ints", "i64", [14]), b.output("floats", "f64", [14])
    values = [s + 1, 1 - s, s * 3, s // 7, s % 7, -s, abs(s), s & 6, s | 6, s ^ 6, ~s, s << 2, s >> 1]
    values.append(gradloom.maximum(s, gradloom.minimum(5, s * 2)))
    reals = [f + 1, 1 / f, f * 0.5, -f, abs(f), gradloom.sqrt(abs(f)), gradloom.floor(f), gradloom.ceil(f)]
    reals += [gradloom.trunc(f), gradloom.fma(f, f, 1), gradloom.cast("f64", s), gradloom.constant("f64", 7)]
    reals += [gradloom.select((s == -20) | (f != f), 1.5, f), gradloom.cast("f64", gradloom.bitcast("i64", f))]
    for k, value in enumerate(values):
        ints[k] = value
    for k, real in enumerate(reals):
        floats[k] = real
    i, r = interpreter.compile(b.build())(s=-20, f=-2.25)
    assert i.tolist() == [-19, 21, -60, -3, 1, 20, 20, -20 & 6, -20 | 6, -20 ^ 6, 19, -80, -10, -20]
    bits = float(np.float64(-2.25).view(np.int64))
    assert r.tolist() == [-1.25, 1 / -2.25, -1.125, 2.25, 2.25, 1.5, -3, -2, -2, 6.0625, -20, 7, 1.5, bits]


def test_elementary_functions() -> None:
    b = gradloom.kernel("elementary")
    n = b.scalar("n", 0)
    x, y = b.input("x", "f64", [n]), b.output("y", "f64", [11, n])
    with b.loop("i", 0, n) as i:
        v = b.let("v", x[i])
        functions = (b.exp, b.expm1, b.log, b.log1p, b.tanh, b.logistic, b.softplus, b.erf, b.sin, b.cos)
        for k, function in enumerate(functions):
            y[k, i] = function(v)
        y[10, i] = b.pow(v, 1.5)
    x_values = np.array([0.25, 1.0, 3.5])
    got = gradloom.default_runtime().compile(b.build())(x=x_values)
    want = [np.exp, np.expm1, np.log, np.log1p, np.tanh, lambda v: 1 / (1 + np.exp(-v)), lambda v: np.log1p(np.exp(v))]
    want += [np.vectorize(math.erf), np.sin, np.cos, lambda v: v**1.5]
    for row, function in zip(got, want, strict=True):
        np.testing.assert_allclose(row, function(x_values), rtol=1e-14)


def test_branches_loops_and_scratch(interpreter: gradloom.Runtime) -> None:
    b = gradloom.kernel("k")
    y = b.output("y", "f32", [2, 3])
    with b.loops("i", [2, 3]) as (i, j):
        t = b.alloc("t", "f32", [1])
        with b.if_then(i == j):
            t[0] = 1
        with b.otherwise():
            t[0] = gradloom.cast("f32", i * 10 + j)
        y[i, j] = t[0]
    x = b.input("x", "f32", [2])
    z = b.output("z", "f32", [3])
    with b.loop("k", 0, 3) as k:
        z[k] = x.load(k, k < 2, -1)
        b.store(z, k, 7, guard=k == 0)
    kernel = b.build()
    assert kernel.loops == ["i0", "i1", "k"]
    got = interpreter.compile(kernel)(x=np.array([5, 6], np.float32))
    assert got[0].tolist() == [[1, 1, 2], [10, 1, 12]] and got[1].tolist() == [7, 6, -1]


def test_mistakes() -> None:
    b = gradloom.kernel("k")
    n = b.scalar("n")
    x, y = b.input("x", "f32", [n]), b.output("y", "f64", [n])
    with pytest.raises(gradloom.InvalidArgument, match="f32.*f64|f64.*f32|float"):
        y[0] = x[0]
    with pytest.raises(gradloom.InvalidArgument, match="has no value while a nest is built"):
        bool(n > 0)
    with pytest.raises(gradloom.InvalidArgument, match="has no value"):
        1 if 0 < n < 4 else 2  # noqa: B018
    with pytest.raises(gradloom.InvalidArgument, match="0.5"):
        n + 0.5
    with pytest.raises(gradloom.InvalidArgument, match="expected an expression or a number"):
        n + "1"  # type: ignore[operator]
    with pytest.raises(gradloom.InvalidArgument, match="dtype is f33"):
        b.input("z", "f33", [n])
    with pytest.raises(gradloom.InvalidArgument, match="must follow an if_then"), b.otherwise():
        pass
    with pytest.raises(gradloom.InvalidArgument, match="kind is fast; allowed are serial"):
        with b.loop("i", 0, n, "fast"):  # type: ignore[arg-type]
            pass
    with pytest.raises(ZeroDivisionError), b.loop("i", 0, n) as i:
        y[i] = 1 / 0
    with b.loop("i", 0, n) as i:
        y[i] = gradloom.cast("f64", x[i])
        with pytest.raises(gradloom.InvalidArgument, match="a scope is still open"):
            b.build()
    assert b.build().loops == ["i"]  # what failed left nothing
    with pytest.raises(gradloom.InvalidArgument, match="built already"):
        b.build()
    with pytest.raises(gradloom.InvalidArgument, match="built already"):
        b.let("v", n)


def test_sums_of_storage_floats_are_in_f32() -> None:
    b = gradloom.kernel("k")
    x, w, y = b.input("x", "f16", [4]), b.input("w", "f16", [4]), b.output("y", "f32", [3])
    y[0] = b.sum("k", 0, 4, lambda k: x[k])
    y[1] = b.dot("k", 0, 4, lambda k: x[k], lambda k: w[k])
    y[2] = b.max("k", 0, 4, lambda k: x[k])
    values = np.array([0.5, 3.0, -1.0, 60000.0], np.float16)
    halves = np.full(4, 0.5, np.float16)
    got = gradloom.Runtime(disk_cache="off").compile(b.build())(x=values, w=halves)
    np.testing.assert_array_equal(got, np.array([60002.5, 30001.25, 60000.0], np.float32))
