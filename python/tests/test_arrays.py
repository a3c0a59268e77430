"""Arrays in and out: without copies where they are served, and a clear exception where they are not."""

import array
import ctypes
import subprocess
import sys
import types
from typing import Any

import gradloom
import ml_dtypes
import numpy as np
import pytest


def gather(dY: Any, **options: Any) -> Any:
    return gradloom.gather_grad([4, 3], np.array([2, 0, 2]), dY, **options)


WANT = np.array([[3, 4, 5], [0, 0, 0], [6, 8, 10], [0, 0, 0]], np.float32)
DY = np.arange(9, dtype=np.float32).reshape(3, 3)


def test_an_input_is_read_in_place() -> None:
    memory = np.zeros(64, np.float32)
    dY, out = memory[:9].reshape(3, 3), memory[8:20].reshape(4, 3)
    with pytest.raises(gradloom.InvalidArgument, match="overlap"):
        gather(dY, out=out)


def test_an_output_is_not_copied() -> None:
    got = gather(DY)
    assert np.array_equal(got, WANT)
    assert type(got) is np.ndarray and type(got.base) is gradloom.Array and got.flags.writeable
    assert np.from_dlpack(got.base).ctypes.data == got.ctypes.data


def test_out_is_written_and_returned() -> None:
    out = np.full((4, 3), -1, np.float32)
    assert gather(DY, out=out) is out
    assert np.array_equal(out, WANT)


def test_an_output_with_strides() -> None:
    wide = np.full((4, 7), -1, np.float32)
    gather(DY, out=wide[::-1, 1:7:2])
    assert np.array_equal(wide[::-1, 1:7:2], WANT)
    assert (wide[:, ::2] == -1).all()


def test_accumulate() -> None:
    out = np.ones((4, 3), np.float32)
    gather(DY, out=out, accumulate=True)
    assert np.array_equal(out, WANT + 1)
    with pytest.raises(gradloom.InvalidArgument, match="accumulate"):
        gather(DY, accumulate=True)


@pytest.mark.parametrize("axes", [np.s_[::-1, ::-1], np.s_[:, ::-1], np.s_[::-1]])
def test_negative_strides(axes: Any) -> None:
    dY = np.ascontiguousarray(DY[axes])[axes]
    assert min(dY.strides) < 0
    assert np.array_equal(gather(dY), WANT)


def test_a_transposed_input() -> None:
    assert np.array_equal(gather(np.ascontiguousarray(DY.T).T), WANT)


def test_an_input_of_stride_0() -> None:
    assert gather(np.broadcast_to(np.float32(2), (3, 3)))[2].tolist() == [4, 4, 4]


def test_an_unaligned_input() -> None:
    memory = np.zeros(37, np.uint8)
    dY = np.frombuffer(memory.data, np.float32, 9, 1).reshape(3, 3)
    dY[...] = DY
    assert dY.ctypes.data % 4 == 1
    assert np.array_equal(gather(dY), WANT)


def test_a_read_only_input() -> None:
    dY = DY.copy()
    dY.flags.writeable = False
    assert np.array_equal(gather(dY), WANT)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
def test_a_dtype_comes_back(dtype: Any) -> None:
    got = gather(DY.astype(dtype))
    assert got.dtype == np.dtype(dtype)
    assert np.array_equal(got.astype(np.float32), WANT)
    out = np.zeros((4, 3), dtype)
    gather(DY.astype(dtype), out=out)
    assert np.array_equal(out, got)


ALL_13 = ["bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float32"]


@pytest.mark.parametrize("dtype", [*ALL_13, "float64", ml_dtypes.bfloat16])
def test_slice_grad_moves_every_dtype(dtype: Any) -> None:
    dY = np.array([1, 0, 1]).astype(dtype)
    got = gradloom.slice_grad(dY, [5], [1], [4])
    assert got.dtype == np.dtype(dtype)
    assert got.astype(np.float64).tolist() == [0, 1, 0, 1, 0]


def test_buffers_of_the_standard_library() -> None:
    got = gradloom.broadcast_grad(array.array("d", [1, 2, 3]), [1])
    assert got.tolist() == [6]
    out = array.array("d", [0])
    gradloom.broadcast_grad(memoryview(array.array("d", [1, 2, 3])), [1], out=out)
    assert out[0] == 6
    with pytest.raises(gradloom.InvalidArgument, match="read-only"):
        gradloom.broadcast_grad(array.array("b", [1]), [1], out=memoryview(b"1"))


def test_without_numpy_an_output_is_a_buffer() -> None:
    program = """if True:
        import sys
        sys.modules["numpy"] = None
        import array, gradloom
        got = gradloom.broadcast_grad(array.array("f", [1, 2, 4]), [1])
        assert type(got) is gradloom.Array and got.shape == (1,) and got.dtype == "float32", got
        print(memoryview(got).tolist(), sorted(m for m in sys.modules if m.startswith("numpy")))
    """
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[7.0] ['numpy']\n"


class Foreign:
    """An array of another library, with DLPack alone."""

    def __init__(self, values: Any) -> None:
        self.values = values

    def __dlpack__(self, **options: Any) -> Any:
        return self.values.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.values.__dlpack_device__()


class OldForeign(Foreign):
    def __dlpack__(self) -> Any:  # type: ignore[override]
        return self.values.__dlpack__()


@pytest.mark.parametrize("base", [Foreign, OldForeign])
def test_an_output_of_the_callers_library(base: type, monkeypatch: pytest.MonkeyPatch) -> None:
    # A library of its own for each test: what takes a type's outputs is looked up once.
    library = types.ModuleType("foreign")
    library.from_dlpack = lambda x: kind(np.from_dlpack(x))  # type: ignore[attr-defined]
    kind = type("Tensor", (base,), {"__module__": "foreign"})
    monkeypatch.setitem(sys.modules, "foreign", library)
    got = gather(kind(DY))
    assert type(got) is kind and np.array_equal(got.values, WANT)
    out = np.zeros((4, 3), np.float32)
    gather(kind(DY), out=kind(out))
    assert np.array_equal(out, WANT)


def test_capsules() -> None:
    assert np.array_equal(gather(DY.__dlpack__()), WANT)
    read_only = DY.copy()
    read_only.flags.writeable = False
    assert np.array_equal(gather(read_only.__dlpack__(max_version=(1, 1))), WANT)
    with pytest.raises(gradloom.InvalidArgument, match="output 0 .* is read-only"):
        gather(DY, out=np.broadcast_to(np.float32(1), (4, 3)).__dlpack__(max_version=(1, 1)))
    used = DY.__dlpack__()
    gather(used)
    with pytest.raises(gradloom.InvalidArgument, match=r"input 2 \(dY\) is a capsule used_dltensor"):
        gather(used)


def test_a_capsule_returns_its_memory() -> None:
    alive = DY.copy()
    before = sys.getrefcount(alive)
    capsule = alive.__dlpack__()
    assert sys.getrefcount(alive) > before
    gather(capsule)
    assert sys.getrefcount(alive) == before
    with pytest.raises(gradloom.Error):
        gradloom.gather_grad([4, 3], np.array([9, 0, 2]), alive)
    assert sys.getrefcount(alive) == before


class DLDevice(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int32), ("id", ctypes.c_int32)]


class DLDataType(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class DLManagedTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", DLDevice),
        ("ndim", ctypes.c_int32),
        ("dtype", DLDataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.c_void_p),
        ("byte_offset", ctypes.c_uint64),
        ("manager", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
    ]


def capsule_of(device: int = 1, code: int = 2, bits: int = 32, lanes: int = 1) -> Any:
    shape = (ctypes.c_int64 * 2)(3, 3)
    tensor = DLManagedTensor(DY.ctypes.data, (device, 0), 2, (code, bits, lanes), shape, None, 0, None, None)
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    capsule_of.kept = [*getattr(capsule_of, "kept", []), tensor]  # type: ignore[attr-defined]
    return new(ctypes.addressof(tensor), b"dltensor", None)


@pytest.mark.parametrize(
    "bad", [{"device": 10}, {"lanes": 4}, {"code": 5, "bits": 64}, {"bits": 4}, {"code": 7, "bits": 8}]
)
def test_bad_capsules(bad: dict[str, int]) -> None:
    assert np.array_equal(gather(capsule_of()), WANT)
    with pytest.raises(gradloom.Unsupported, match=r"GatherGrad: input 2 \(dY\)"):
        gather(capsule_of(**bad))


def test_memory_of_a_device_that_is_not_there() -> None:
    with pytest.raises(gradloom.Error, match="GatherGrad: input 2") as raised:
        gather(capsule_of(device=2))
    assert raised.value.code in ("invalid_argument", "unsupported")


@pytest.mark.parametrize(
    ("dY", "match"),
    [
        (DY.astype(object), r'elements of format "O"'),
        (DY.astype(np.complex64), "format"),
        (DY.astype(">f4"), "byte order"),
        (np.array([["a"] * 3] * 3), "format"),
        (np.zeros((3, 3), [("a", "i1"), ("b", "f4")]), "format"),
        (np.zeros((3, 3), [("a", "i1"), ("b", "f4")])["b"], "stride of 15 bytes along axis 0"),
        (np.zeros((3, 3), "M8[s]"), "datetime64"),
        (np.zeros((3, 3), ml_dtypes.float8_e5m2), "float8_e5m2"),
        (np.zeros((3,) + (1,) * 20, np.float32), "has rank 21; at most 16"),
        ("text", "is of type str; expected an array"),
        (1.5, "is of type float"),
        ({}, "is of type dict"),
        ((x for x in DY), "is of type generator"),
        ([1.5], "is a list whose item 0 is no int"),
        ([[1], [2]], "is a list whose item 0 is no int"),
        ([1 << 70], "is a list whose item 0 is no int of 64 bits"),
        (np.zeros((3, 3), np.int8), "dtype int8; allowed"),
        (np.zeros((2, 3), np.float32), "input 2"),
        (None, "dY"),
    ],
)
def test_bad_inputs(dY: Any, match: str) -> None:
    with pytest.raises(gradloom.InvalidArgument, match=match) as raised:
        gather(dY)
    assert "GatherGrad" in str(raised.value) and "\n" not in str(raised.value)
    assert np.array_equal(gather(DY), WANT)


@pytest.mark.parametrize(
    ("out", "match"),
    [
        (np.zeros((4, 4), np.float32), "output 0"),
        (np.zeros((4, 3), np.float64), "output 0"),
        (np.broadcast_to(np.float32(0), (4, 3)), r"output 0 \(dX\) is read-only"),
        (np.lib.stride_tricks.as_strided(np.zeros(9, np.float32), (4, 3), (4, 4)), "output 0"),
        ([[0] * 3] * 4, "out"),
        ("text", r"output 0 \(dX\) is of type str"),
        ([np.zeros((4, 3), np.float32)] * 2, "output"),
        (b"0" * 48, "read-only"),
    ],
)
def test_bad_outputs(out: Any, match: str) -> None:
    with pytest.raises(gradloom.InvalidArgument, match=match):
        gather(DY, out=out)


@pytest.mark.parametrize("shape", [[1 << 40, 1 << 40], [1 << 62, 3], [-1, 3], [1 << 44, 3]])
def test_huge_and_negative_shapes(shape: list[int]) -> None:
    with pytest.raises((gradloom.InvalidArgument, gradloom.ResourceExhausted), match="."):
        gradloom.gather_grad(shape, np.array([0]), np.ones((1, 3), np.float32))


def test_arrays_without_elements() -> None:
    got = gradloom.gather_grad([0, 3], np.zeros(0, np.int64), np.zeros((0, 3), np.float32))
    assert got.shape == (0, 3)
    got = gradloom.gather_grad([2, 3], np.zeros(0, np.int64), np.zeros((0, 3), np.float32))
    assert not got.any()


def test_a_scalar() -> None:
    assert gradloom.broadcast_grad(np.ones((3, 4)), np.zeros(0, np.int64)) == 12


def test_an_array_gives_no_copy() -> None:
    made = gather(DY).base
    with pytest.raises(BufferError, match="no copy"):
        made.__dlpack__(copy=True)
    assert repr(made) == "gradloom.Array(float32[4,3])" and made.__dlpack_device__() == (1, 0)


def test_lists_that_change_during_the_call() -> None:
    inputs: list[Any] = []

    class Emptying(Foreign):
        def __dlpack__(self, **options: Any) -> Any:
            inputs.clear()
            return super().__dlpack__(**options)

    inputs += [Emptying(np.array([4, 3])), np.array([2, 0, 2]), DY.copy()]
    assert np.array_equal(gradloom.run("GatherGrad", inputs), WANT) and inputs == []


class ExchangeApi(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("previous", ctypes.c_void_p),
        ("allocate", ctypes.c_void_p),
        ("from_object", ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(ctypes.c_void_p))),
        ("to_object", ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p))),
        ("others", ctypes.c_void_p * 2),
    ]


def capsule_api() -> Any:
    api = ctypes.PyDLL(None)
    api.PyCapsule_New.restype = ctypes.py_object
    api.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    api.PyCapsule_GetPointer.restype = ctypes.c_void_p
    api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    api.PyCapsule_SetName.argtypes = [ctypes.py_object, ctypes.c_char_p]
    api.Py_IncRef.argtypes = [ctypes.py_object]
    return api


def test_an_exchange_by_c_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    api, calls, versioned, used = capsule_api(), [], b"dltensor_versioned", b"used_dltensor_versioned"

    class Tensor(Foreign):
        requires_grad = False

        def __dlpack__(self, **options: Any) -> Any:
            raise BufferError("in the library's own words")

    def from_object(tensor: Any, out: Any) -> int:
        calls.append("from")
        capsule = tensor.values.__dlpack__(max_version=(1, 1))
        out[0] = api.PyCapsule_GetPointer(capsule, versioned)
        api.PyCapsule_SetName(capsule, used)
        return 0

    class Holder:
        def __init__(self, managed: int) -> None:
            self.capsule = api.PyCapsule_New(managed, versioned, None)

        def __dlpack__(self, **options: Any) -> Any:
            return self.capsule

        def __dlpack_device__(self) -> tuple[int, int]:
            return (1, 0)

    def to_object(managed: int, out: Any) -> int:
        calls.append("to")
        tensor = Tensor(np.from_dlpack(Holder(managed)))
        api.Py_IncRef(tensor)
        out[0] = id(tensor)
        return 0

    take, give = (field[1] for field in ExchangeApi._fields_[4:6])
    table = ExchangeApi(1, 3, None, None, take(from_object), give(to_object))
    newer = ExchangeApi(2, 0, ctypes.addressof(table))
    Tensor.__dlpack_c_exchange_api__ = api.PyCapsule_New(  # type: ignore[attr-defined]
        ctypes.addressof(newer), b"dlpack_exchange_api", None
    )
    library = types.ModuleType("exchanging")
    Tensor.__module__ = "exchanging"
    monkeypatch.setitem(sys.modules, "exchanging", library)
    got = gather(Tensor(DY.T.copy().T))
    assert type(got) is Tensor and np.array_equal(got.values, WANT) and calls == ["from", "to"]
    out = np.zeros((4, 3), np.float32)
    gather(Tensor(DY), out=Tensor(out))
    assert np.array_equal(out, WANT) and calls[2:] == ["from", "from"]
    recorded = Tensor(DY)
    recorded.requires_grad = True
    with pytest.raises(BufferError, match="own words"):
        gather(recorded)
