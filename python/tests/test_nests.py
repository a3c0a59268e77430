"""Loop nests of the user's own: text, schedules, stages, calls by name, errors that point at the place."""

import traceback
from pathlib import Path
from typing import Any

import gradloom
import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
RELU = (ROOT / "examples" / "relu_grad.loop").read_text()
X = np.array([-1, 2, -3, 4, 5], np.float32)
DY = np.array([10, 20, 30, 40, 50], np.float32)
WANT = np.array([0, 20, 0, 40, 50], np.float32)


@pytest.fixture(scope="module")
def runtime() -> gradloom.Runtime:
    return gradloom.Runtime(disk_cache="off")


def test_text_parses_and_prints_the_same() -> None:
    kernel = gradloom.parse(RELU)
    assert kernel.name == "relu_grad" and kernel.loops == ["i"] and kernel.trace == []
    assert kernel.scalars == [("n", "int64")]
    assert kernel.buffers[0] == ("dy", "in", "float32", ("n",)) and kernel.buffers[2][1] == "out"
    assert str(gradloom.parse(str(kernel))) == str(kernel)


def test_a_call_by_name(runtime: gradloom.Runtime) -> None:
    relu = runtime.compile(RELU)
    assert np.array_equal(relu(x=X, dy=DY), WANT)
    assert np.array_equal(relu(x=X, dy=DY, n=5), WANT)
    out = np.empty(5, np.float32)
    assert relu(x=X, dy=DY, dx=out) is out and np.array_equal(out, WANT)
    assert relu.report()["target"].startswith("llvm")


def test_a_schedule(runtime: gradloom.Runtime) -> None:
    kernel = gradloom.parse(RELU)
    split = kernel.schedule("split i 2\n\n")
    assert split.loops != kernel.loops and split.trace == ["split i 2"] and kernel.trace == []
    assert split.schedule(f"unroll {split.loops[1]}").trace == ["split i 2", f"unroll {split.loops[1]}"]
    by_text = runtime.compile(RELU, trace="split i 2")
    assert by_text.kernel.trace == ["split i 2"] and str(by_text.kernel) == str(split)
    assert np.array_equal(by_text(x=X, dy=DY), WANT)
    assert np.array_equal(runtime.compile(kernel.schedule("vectorize i 8 4"))(x=X, dy=DY), WANT)


def test_a_step_that_is_refused_is_named(runtime: gradloom.Runtime) -> None:
    kernel = gradloom.parse(RELU)
    with pytest.raises(gradloom.InvalidArgument, match=r'kernel relu_grad: step 2 \("split j 2"\): .*j'):
        kernel.schedule("split i 2\nsplit j 2")
    with pytest.raises(gradloom.InvalidArgument, match=r'step 1 \("jump i"\)'):
        runtime.compile(kernel, trace=["jump i"])
    total = gradloom.parse("""kernel total(n: i64 in [0, 100]) {
      in x: f64[n]
      out y: f64[]
      y[] = 0.0f64
      for i in 0 .. n {
        y[] += x[i]
      }
    }""")
    with pytest.raises(gradloom.InvalidArgument, match="parallel i"):
        total.schedule("parallel i")  # the order of a sum is its meaning
    assert runtime.compile(total)(x=np.arange(4.0)) == 6


@pytest.mark.parametrize("stage", ["authored", "scheduled", "lowered", "llvm-raw", "llvm", "asm"])
def test_stages_of_a_cpu(stage: Any) -> None:
    kernel = gradloom.parse(RELU).schedule("vectorize i 8 4")
    text = kernel.emit(stage)
    marks = {"llvm-raw": "define", "llvm": "define", "asm": ".text"}
    assert marks.get(stage, "kernel relu_grad") in text
    if stage == "authored":
        assert text == str(gradloom.parse(RELU))
    if stage == "scheduled":
        assert text == str(kernel)
    if stage == "asm":
        assert "ymm" in kernel.emit(stage, target="x86-64-v3") and "ymm" not in kernel.emit(stage, target="x86-64-v2")


def test_stages_of_a_gpu_and_passes() -> None:
    kernel = gradloom.parse(RELU)
    assert "GL_KERNEL(256) relu_grad_0(" in kernel.emit("cuda") == kernel.emit("cuda", target="sm_90")
    assert "grid" in kernel.emit("scheduled", target="sm_90") and "grid" not in kernel.emit("scheduled")
    assert kernel.emit(after="simplify").startswith("kernel relu_grad")
    for options in (
        {"stage": "sass"},
        {"stage": "cuda", "target": "host"},
        {"stage": "asm", "target": "sm_90"},
        {"target": "x86-64-v9"},
        {"target": "sm_ninety"},
        {"after": "vectorise"},
    ):
        with pytest.raises(gradloom.InvalidArgument, match="expected|allowed|x86-64-v9"):
            kernel.emit(**options)


def test_a_parse_error_points_at_the_place() -> None:
    with pytest.raises(gradloom.ParseError) as raised:
        gradloom.parse(RELU.replace("dx[i] =", "dx[i} ="))
    error = raised.value
    assert (error.line, error.column) == (6, 9) and str(error).startswith("6:9: ")
    shown = "".join(traceback.format_exception_only(error)).splitlines()
    assert shown[1] == "    dx[i} = select(x[i] > 0.0f32, dy[i], 0.0f32)"
    assert shown[2] == " " * 8 + "^" and shown[1][8] == "}"
    with pytest.raises(gradloom.ParseError):
        gradloom.parse("")
    with pytest.raises(gradloom.InvalidArgument):
        gradloom.parse("kernel k(n: i64) { out y: f32[n] for i in 0 .. n { parallel } }")


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"x": X}, "buffer dy is missing; it is in"),
        ({"x": X, "dy": DY, "z": X}, "it has no z; its buffers are dy, x, dx, its scalars n"),
        ({"x": X, "dy": DY[:3]}, "relu_grad"),
        ({"x": X.astype(np.float64), "dy": DY}, "relu_grad"),
        ({"x": X[::-1], "dy": DY}, "must be dense"),
        ({"x": X, "dy": DY, "n": 6}, "relu_grad"),
        ({"x": X, "dy": DY, "n": -1}, "n"),
        ({"x": X, "dy": DY, "n": 1 << 64}, "n is 18446744073709551616"),
        ({"x": X, "dy": DY, "n": 2.5}, "scalar n"),
        ({"x": X, "dy": DY, "n": "5"}, "scalar n is of type str"),
        ({"x": X, "dy": DY, "dx": X}, "overlap"),
        ({"x": X, "dy": DY, "dx": np.broadcast_to(np.float32(0), 5)}, r"relu_grad: buffer 2 \(dx\) is read-only"),
        ({"x": "x", "dy": DY}, r"relu_grad: buffer 1 \(x\) is of type str"),
    ],
)
def test_bad_calls(runtime: gradloom.Runtime, arguments: dict[str, Any], match: str) -> None:
    with pytest.raises(gradloom.InvalidArgument, match=match):
        runtime.compile(RELU)(**arguments)


MANY = """kernel many(a: f32, b: i8, c: bool, d: u64, n: i64 in [0, 100]) {
  in x: f32[n, 3]
  inout z: f64[n]
  out y: f32[n]
  out w: f64[4]
  for i in 0 .. n {
    y[i] = x[i, 2] * a
    z[i] += 1.0f64
  }
  w[0] = f64(a)
  w[1] = f64(b)
  w[2] = f64(c)
  w[3] = f64(d)
}"""


def test_scalars_and_several_outputs(runtime: gradloom.Runtime) -> None:
    kernel = runtime.compile(MANY)
    x, z = np.arange(6, dtype=np.float32).reshape(2, 3), np.zeros(2)
    y, w = kernel(x=x, z=z, a=0.5, b=-7, c=True, d=1 << 63)
    assert y.tolist() == [1.0, 2.5] and w.tolist() == [0.5, -7, 1, 2.0**63] and z.tolist() == [1, 1]
    y, w = kernel(x=x, z=z, a=np.float32(2), b=np.int8(3), c=False, d=0)
    assert y.tolist() == [4.0, 10.0] and w.tolist() == [2, 3, 0, 0] and z.tolist() == [2, 2]
    with pytest.raises(gradloom.InvalidArgument, match="scalar b"):
        kernel(x=x, z=z, a=0, b=300, c=False, d=0)
    with pytest.raises(gradloom.InvalidArgument, match="scalar a is missing"):
        kernel(x=x, z=z, b=3, c=False, d=0)


def test_an_index_of_data_is_checked(runtime: gradloom.Runtime) -> None:
    text = """kernel pick(n: i64 in [0, 100]) {
      in index: i64[n]
      in x: f32[4]
      out y: f32[n]
      for i in 0 .. n {
        let j: i64 = index[i]
        check (j >= 0) & (j < 4) at i "index" {
          y[i] = x[j]
        }
      }
    }"""
    pick = runtime.compile(text)
    x = np.arange(4, dtype=np.float32)
    assert pick(index=np.array([3, 0]), x=x).tolist() == [3, 0]
    with pytest.raises(gradloom.OutOfRange, match="index"):
        pick(index=np.array([3, 4]), x=x)


def test_targets_agree() -> None:
    got = [gradloom.Runtime(target=t, disk_cache="off").compile(RELU)(x=X, dy=DY) for t in ("interpreter", "llvm")]
    assert np.array_equal(got[0], got[1]) and np.array_equal(got[0], WANT)


def test_compile_takes_no_other_type(runtime: gradloom.Runtime) -> None:
    with pytest.raises(gradloom.InvalidArgument, match="expected gradloom.Kernel or its text"):
        runtime.compile(3)  # type: ignore[arg-type]


def test_a_gradient_that_is_zero_is_a_warning() -> None:
    steps = "kernel steps(n: i64 in [0, ]) { in x: f32[n] out y: f32[n] for i in 0 .. n { y[i] = floor(x[i]) } }"
    with pytest.warns(UserWarning, match="^differentiate: kernel steps: d_x is zero: no value of that input reaches"):
        gradloom.parse(steps).gradient(["x"])
