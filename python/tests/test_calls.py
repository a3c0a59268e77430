"""Ops, handles, runtimes, errors and the log."""

import inspect
import logging
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import gradloom
import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
SHAPE = np.array([4, 3])
INDICES = np.array([2, 0, 2])
DY = np.arange(9, dtype=np.float32).reshape(3, 3)
WANT = np.array([[3, 4, 5], [0, 0, 0], [6, 8, 10], [0, 0, 0]], np.float32)


def test_every_op_is_a_function_by_both_names() -> None:
    for schema in gradloom.schemas():
        function = getattr(gradloom, schema["name"])
        assert schema["name"] in gradloom.__all__ and function.__name__ in gradloom.__all__
        parameters = list(inspect.signature(function).parameters)
        assert parameters[: len(schema["inputs"])] == [i["name"] for i in schema["inputs"]]
        assert {a["name"] for a in schema["attributes"]} <= set(parameters)
        assert " ".join(function.__doc__.split()).startswith(schema["doc"])


def test_ops_py_is_what_the_schemas_give() -> None:
    generate = ROOT / "python" / "build" / "generate_ops.py"
    done = subprocess.run([sys.executable, generate], capture_output=True, text=True, check=True)
    assert done.stdout == (ROOT / "python" / "gradloom" / "ops.py").read_text()


def test_a_function_and_run_give_the_same() -> None:
    assert np.array_equal(gradloom.gather_grad(SHAPE, INDICES, DY), WANT)
    assert np.array_equal(gradloom.GatherGrad(shape=SHAPE, indices=INDICES, dY=DY), WANT)
    assert np.array_equal(gradloom.run("GatherGrad", [SHAPE, INDICES, DY]), WANT)
    along_1 = gradloom.gather_grad(np.array([3, 4]), INDICES, np.ascontiguousarray(DY.T), axis=-1)
    assert np.array_equal(along_1, WANT.T)


def test_a_handle() -> None:
    handle = gradloom.prepare("GatherGrad", axis=0)
    assert np.array_equal(handle(SHAPE, INDICES, DY), WANT)
    out = np.empty((4, 3), np.float32)
    assert handle(SHAPE, INDICES, DY, out=out) is out and np.array_equal(out, WANT)
    assert handle([2, 3], INDICES[1:2], DY[:1]).shape == (2, 3)  # any shapes
    with pytest.raises(gradloom.InvalidArgument, match="axs"):
        gradloom.prepare("GatherGrad", axs=0)
    with pytest.raises(gradloom.InvalidArgument, match="out is given with each call"):
        gradloom.prepare("GatherGrad", out=out)


def gru(**options: Any) -> tuple[Any, ...]:
    rng = np.random.default_rng(1)
    X, W, R = rng.normal(size=(5, 2, 3)), rng.normal(size=(1, 12, 3)), rng.normal(size=(1, 12, 4))
    HAll, HFinal, ZRH = gradloom.gru_training(X, W, R, **options)
    assert np.array_equal(HFinal, HAll[-1])
    return gradloom.gru_grad(X, W, R, None, None, None, HAll, ZRH, np.ones_like(HAll), **options)


def test_outputs_by_name() -> None:
    everything = gru()
    assert [g is not None for g in everything] == [True] * 5
    rng = np.random.default_rng(1)
    X, W, R = rng.normal(size=(5, 2, 3)), rng.normal(size=(1, 12, 3)), rng.normal(size=(1, 12, 4))
    HAll, none, ZRH = gradloom.gru_training(X, W, R, outputs=["HAll", "ZRH"])
    assert none is None
    call = (X, W, R, None, None, None, HAll, ZRH, np.ones_like(HAll))
    some = gradloom.gru_grad(*call, outputs=["dW"])
    assert [g is not None for g in some] == [False, True, False, False, False]
    assert np.array_equal(some[1], everything[1])
    out = np.empty_like(W)
    into = gradloom.gru_grad(*call, out=[None, out, None, None, None])
    assert into[1] is out and np.array_equal(out, everything[1])
    with pytest.raises(gradloom.InvalidArgument, match="outputs has dw; allowed are dX, dW"):
        gradloom.gru_grad(*call, outputs=["dw"])


def test_attributes() -> None:
    ones = gru(hidden_size=4, activations=["Sigmoid", "Tanh"], clip=100)  # an int for a float
    assert np.array_equal(ones[0], gru(activations=(b"Sigmoid", "Tanh"), clip=np.float32(100))[0])
    assert not np.array_equal(ones[0], gru(clip=0.25)[0])
    leaky = gru(activations=["Sigmoid", "LeakyRelu"], activation_alpha=[1])
    assert np.isfinite(leaky[0]).all()
    assert np.array_equal(gradloom.gather_grad(SHAPE, INDICES, DY, axis=np.int64(0)), WANT)
    assert np.array_equal(gradloom.gather_grad(SHAPE, INDICES, DY, axis=False), WANT)


@pytest.mark.parametrize(
    ("attributes", "match"),
    [
        ({"axis": 2}, "axis"),
        ({"axis": "0"}, "axis"),
        ({"axis": 0.5}, "axis"),
        ({"axis": [0]}, "axis"),
        ({"axis": 1 << 64}, "64 bits"),
        ({"axis": {}}, "axis is of type dict"),
        ({"axis": ["a", 1]}, "numbers and strings"),
        ({"axes": 0}, "axes"),
        ({"strategy": "none such"}, "none such"),
        ({"strategy": 1}, "strategy is of type int; expected str"),
        ({"accumulate": 1}, "accumulate is of type int; expected bool"),
        ({"determinism": "some"}, "determinism is some; allowed are sequential, run_to_run, relaxed"),
        ({"policy": "x"}, "policy is x"),
        ({"outputs": "dX"}, "expected a list of names"),
    ],
)
def test_bad_attributes(attributes: dict[str, Any], match: str) -> None:
    with pytest.raises(gradloom.InvalidArgument, match=match):
        gradloom.run("GatherGrad", [SHAPE, INDICES, DY], **attributes)


def test_bad_calls() -> None:
    with pytest.raises(gradloom.Error, match="NoOp"):
        gradloom.run("NoOp", [DY])
    with pytest.raises(gradloom.InvalidArgument, match="input"):
        gradloom.run("GatherGrad", [SHAPE])
    with pytest.raises(gradloom.InvalidArgument, match="got 65 inputs"):
        gradloom.run("GatherGrad", [DY] * 65)
    with pytest.raises(gradloom.InvalidArgument, match="expected a list of arrays"):
        gradloom.run("GatherGrad", DY)  # type: ignore[arg-type]


def test_errors_are_pythons_too() -> None:
    with pytest.raises(IndexError) as raised:
        gradloom.gather_grad(SHAPE, np.array([4, 0, 0]), DY)
    assert type(raised.value) is gradloom.OutOfRange
    assert str(raised.value) == "GatherGrad: input 1 (indices)[0] is 4; it must be in [-4, 3]"
    with pytest.raises(ValueError, match="axis") as bad:
        gradloom.gather_grad(SHAPE, INDICES, DY, axis=5)
    assert type(bad.value) is gradloom.InvalidArgument and bad.value.code == "invalid_argument"
    classes = {
        gradloom.OutOfRange: IndexError,
        gradloom.InvalidArgument: ValueError,
        gradloom.Unsupported: NotImplementedError,
        gradloom.ResourceExhausted: MemoryError,
        gradloom.CompileFailed: RuntimeError,
        gradloom.DeviceError: RuntimeError,
        gradloom.InternalError: RuntimeError,
    }
    for kind, base in classes.items():
        assert issubclass(kind, base) and issubclass(kind, gradloom.Error)
        again = pickle.loads(pickle.dumps(kind("why")))
        assert type(again) is kind and str(again) == "why"


def test_a_runtimes_options() -> None:
    runtime = gradloom.Runtime(target="interpreter", threads=1, disk_cache="off")
    assert runtime.target == "interpreter" and runtime.threads == 1
    assert np.array_equal(gradloom.gather_grad(SHAPE, INDICES, DY, runtime=runtime), WANT)
    assert runtime.stats()["interpreter_launches"] == 1
    low = gradloom.Runtime(isa="x86-64-v2", disk_cache="off")
    assert "x86-64-v2" in low.target
    assert np.array_equal(low.run("GatherGrad", [SHAPE, INDICES, DY]), WANT)
    for bad in ({"target": "gpu"}, {"policy": "x"}, {"isa": "x86-64-v9"}, {"threads": -1}):
        with pytest.raises(gradloom.InvalidArgument):
            gradloom.Runtime(**bad)
    with pytest.raises(TypeError):
        gradloom.Runtime(thread=1)  # type: ignore[call-arg]


def test_no_gpu_is_an_error_not_a_crash() -> None:
    try:
        runtime = gradloom.Runtime(target="cuda")
    except gradloom.Error as error:
        assert error.code in ("device_error", "unsupported")
    else:
        assert runtime.target.startswith("cuda")


def test_stats_report_and_cache() -> None:
    runtime = gradloom.Runtime(policy="specialise", disk_cache="off")
    runtime.run("GatherGrad", [SHAPE, INDICES, DY])
    report = runtime.last_report()
    assert report["op"] == "GatherGrad" and report["compiled"] and not report["any_shape"]
    assert report["schedule_trace"] or report["strategy"]
    assert runtime.stats()["misses"] == 1 and runtime.stats()["entries"] == 1
    runtime.run("GatherGrad", [SHAPE, INDICES, DY])
    assert runtime.stats()["hits"] == 1 and not runtime.last_report()["compiled"]
    runtime.clear_cache()
    assert runtime.stats()["entries"] == 0
    runtime.run("GatherGrad", [SHAPE, INDICES, DY], any_shape=True)
    assert runtime.last_report()["any_shape"]


def test_the_default_is_generic_first() -> None:
    runtime = gradloom.Runtime(specialise_after=2, disk_cache="off")
    for _ in range(4):
        runtime.run("GatherGrad", [SHAPE, INDICES, DY])
    runtime.wait_for_background()
    runtime.run("GatherGrad", [SHAPE, INDICES, DY])
    stats = runtime.stats()
    assert stats["generic_calls"] >= 2 and stats["specialised"] == 1
    assert not runtime.last_report()["any_shape"]


def test_prewarm() -> None:
    first = gradloom.Runtime(policy="specialise", disk_cache="off")
    first.run("GatherGrad", [SHAPE, INDICES, DY])
    second = gradloom.Runtime(policy="specialise", disk_cache="off")
    assert second.prewarm(first.used_calls()) == {"ready": 1, "compiled": 1, "failed": 0, "first_failure": ""}
    second.run("GatherGrad", [SHAPE, INDICES, DY])
    assert not second.last_report()["compiled"]
    with pytest.raises(gradloom.Error):
        second.prewarm(b"no calls")


def test_infer_outputs() -> None:
    runtime = gradloom.default_runtime()
    assert runtime.infer_outputs("GatherGrad", [SHAPE, INDICES, DY]) == [("float32", (4, 3))]
    assert runtime.infer_outputs("BroadcastGradientArgs", [[2, 3], [3]], outputs=["b_axes"]) == [None, ("int64", (2,))]


def test_found_sizes() -> None:
    a, b = gradloom.broadcast_gradient_args([4, 3], [3])
    assert a.tolist() == [] and b.tolist() == [0]
    outs = np.zeros(2, np.int64), np.zeros(2, np.int64)
    a, b = gradloom.broadcast_gradient_args([4, 3], [3], out=outs)
    assert a.tolist() == [] and b.tolist() == [0] and b.base is outs[1]


def test_the_default_runtime() -> None:
    assert gradloom.default_runtime() is gradloom.default_runtime()
    mine = gradloom.Runtime(target="interpreter", disk_cache="off")
    gradloom.set_default_runtime(mine)
    try:
        gradloom.gather_grad(SHAPE, INDICES, DY)
        assert mine.stats()["launches"] == 1
    finally:
        gradloom.set_default_runtime(None)
    assert gradloom.default_runtime() is not mine


def test_the_log(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    before = gradloom.log_level()
    folder = tmp_path / "file"
    folder.write_text("")
    with caplog.at_level(logging.DEBUG, logger="gradloom"):
        gradloom.set_log_level("warn")
        assert gradloom.log_level() == "warn"
        runtime = gradloom.Runtime(disk_cache=str(folder), policy="specialise")
        runtime.run("GatherGrad", [SHAPE, INDICES, DY])
        warned = [r for r in caplog.records if r.name == "gradloom" and r.levelno == logging.WARNING]
        assert any(str(folder) in r.getMessage() for r in warned)
        caplog.clear()
        gradloom.set_log_level("off")
        gradloom.Runtime(disk_cache=str(folder), policy="specialise").run("GatherGrad", [SHAPE, INDICES, DY])
        assert not caplog.records
    gradloom.set_log_level(before)
    with pytest.raises(gradloom.InvalidArgument, match="allowed are off"):
        gradloom.set_log_level("loud")


def test_help_says_what_things_do() -> None:
    for thing in (gradloom.Runtime, gradloom.Prepared, gradloom.Kernel, gradloom.CompiledKernel, gradloom.parse):
        assert thing.__doc__
    for name in ("run", "prepare", "compile", "stats", "last_report", "prewarm", "used_calls", "infer_outputs"):
        doc = getattr(gradloom.Runtime, name).__doc__
        assert doc and len(doc.splitlines()) > 1, name  # a signature and what it does
