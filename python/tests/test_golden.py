"""The golden cases, outputs of real training kernels, through the package."""

import json
import math
from pathlib import Path
from typing import Any

import gradloom
import ml_dtypes
import numpy as np
import pytest

GOLDEN = Path(__file__).parents[2] / "tests" / "golden"
CASES = sorted(GOLDEN.glob("*.json"))


def array_of(tensor: dict[str, Any]) -> Any:
    shape = tensor["shape"]
    name = tensor["dtype"]
    dtype = np.dtype(ml_dtypes.bfloat16) if name == "bfloat16" else np.dtype(name)
    count = math.prod(shape)
    if "tile" in tensor:
        tile = tensor["tile"]
        values = [tile[i % len(tile)] for i in range(count)]
    else:
        values = tensor["data"]
    values = [float(v) if isinstance(v, str) else v for v in values]
    wide = np.float64 if name.startswith(("float", "bfloat")) else dtype
    return np.array(values, dtype=wide).reshape(shape).astype(dtype)


def close(got: Any, want: Any, tolerance: dict[str, float]) -> bool:
    if got.dtype != want.dtype or got.shape != want.shape:
        return False
    if got.dtype.kind in "biu":
        return bool(np.array_equal(got, want))
    a, b = got.astype(np.float64), want.astype(np.float64)
    with np.errstate(invalid="ignore"):
        near = np.abs(a - b) <= tolerance.get("atol", 0) + tolerance.get("rtol", 0) * np.abs(b)
    return bool(np.all(near | (a == b) | (np.isnan(a) & np.isnan(b))))


@pytest.mark.parametrize("path", CASES, ids=[path.stem for path in CASES])
def test_case(path: Path) -> None:
    case = json.loads(path.read_text())
    inputs = [None if t is None else array_of(t) for t in case["inputs"]]
    attributes = case.get("attributes", {})
    if "error" in case:
        with pytest.raises(gradloom.Error) as raised:
            gradloom.run(case["op"], inputs, **attributes)
        assert raised.value.code == case["error"]
        return
    wanted = case["outputs"]
    schema = next(s for s in gradloom.schemas() if s["name"] == case["op"])
    names = [o["name"] for o, t in zip(schema["outputs"], wanted, strict=False) if t is not None]
    got = gradloom.run(case["op"], inputs, outputs=names, **attributes)
    got = got if isinstance(got, tuple) else (got,)
    assert len(got) >= len(wanted)
    for o, tensor in enumerate(wanted):
        if tensor is None:
            assert got[o] is None
        else:
            assert type(got[o]) is np.ndarray
            assert close(got[o], array_of(tensor), case.get("tolerance", {})), f"output {o}"


def test_the_cases_are_there() -> None:
    assert {json.loads(p.read_text())["op"] for p in CASES} >= {s["name"] for s in gradloom.schemas()}
