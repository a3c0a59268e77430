"""gradloom's shared library and llvmlite, which holds an LLVM of its own, compile and run kernels in one process, in turn and in threads at a time."""

import ctypes
import sys
import threading

try:
    import llvmlite.binding as llvm
except ImportError:
    print("skipped: Python has no llvmlite (pip install llvmlite)")
    sys.exit(77)


class Device(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("id", ctypes.c_int32)]


class DataType(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", Device),
        ("ndim", ctypes.c_int32),
        ("dtype", DataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


def tensor(data, code, bits, dims):
    shape = (ctypes.c_int64 * len(dims))(*dims)
    made = DLTensor(
        ctypes.cast(data, ctypes.c_void_p), Device(1, 0), len(dims), DataType(code, bits, 1), shape, None, 0
    )
    made.keep = (data, shape)
    return made


def pointers(tensors):
    return (ctypes.POINTER(DLTensor) * len(tensors))(*[ctypes.pointer(t) for t in tensors])


class Gradloom:
    def __init__(self, path):
        self.library = ctypes.CDLL(path)
        self.library.gradloom_last_error.restype = ctypes.c_char_p
        self.runtime = ctypes.c_void_p()
        self.check(self.library.gradloom_runtime_create(None, ctypes.byref(self.runtime)))

    def check(self, status):
        assert status == 0, self.library.gradloom_last_error().decode()

    def gather_grad(self, rows, features):
        """Row r of the gradient is r + 1 ones: token r appears so often. Another shape is another kernel."""
        tokens = [r for r in range(rows) for _ in range(r + 1)]
        out = (ctypes.c_float * (rows * features))()
        inputs = pointers(
            [
                tensor((ctypes.c_int64 * 2)(rows, features), 0, 64, [2]),
                tensor((ctypes.c_int64 * len(tokens))(*tokens), 0, 64, [len(tokens)]),
                tensor(
                    (ctypes.c_float * (len(tokens) * features))(*[1.0] * (len(tokens) * features)),
                    2,
                    32,
                    [len(tokens), features],
                ),
            ]
        )
        outputs = pointers([tensor(out, 2, 32, [rows, features])])
        self.check(self.library.gradloom_run_into(self.runtime, b"GatherGrad", inputs, 3, None, None, outputs, 1))
        assert list(out) == [float(r + 1) for r in range(rows) for _ in range(features)], list(out)


def llvmlite_adds(value):
    module = llvm.parse_assembly(
        f"define i64 @add(i64 %x) {{ %y = add i64 %x, {value} ret i64 %y }}".replace(" ret", "\n ret").replace(
            "{ %y", "{\n %y"
        )
    )
    module.verify()
    machine = llvm.Target.from_default_triple().create_target_machine()
    with llvm.create_mcjit_compiler(module, machine) as engine:
        engine.finalize_object()
        add = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(engine.get_function_address("add"))
        assert add(40) == 40 + value


def repeat(body, failures):
    try:
        for i in range(1, 20):
            body(i)
    except BaseException as error:  # of a thread: told to the main one
        failures.append(error)


def start_llvmlite():
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()


if sys.argv[2] == "llvmlite-first":
    start_llvmlite()
    llvmlite_adds(2)
gradloom = Gradloom(sys.argv[1])
gradloom.gather_grad(4, 3)
if sys.argv[2] != "llvmlite-first":
    start_llvmlite()
# Options that either registers would clash here: LLVM ends the process when one is registered twice, or is unknown.
llvm.set_option("", "--inline-threshold=10")
for i in range(1, 10):
    llvmlite_adds(i)
    gradloom.gather_grad(2, 100 + i)
failed = []
threads = [
    threading.Thread(target=repeat, args=(llvmlite_adds, failed)),
    threading.Thread(target=repeat, args=(lambda i: gradloom.gather_grad(3, i), failed)),
]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert not failed, failed
gradloom.library.gradloom_runtime_destroy(gradloom.runtime)
llvmlite_adds(1)
print("llvmlite with LLVM", ".".join(map(str, llvm.llvm_version_info)))
