"""The extension `_override.cpp`, compiled once for the PyTorch that is installed."""

import ctypes
from pathlib import Path

import torch

from gradloom._extension import Extension

TRIED = ("2.15",)
"""The versions of PyTorch that the tests have run with. For another one the extension is built, too, and says so."""

_here = Path(__file__).resolve().parent
_root = Path(torch.__file__).parent


def load() -> ctypes.PyDLL:
    """The extension, built where it is not there yet.

    Calls keep the interpreter's lock: no Python thread dispatches while a kernel is registered or taken back.
    """
    extension = Extension(
        "gradloom.torch",
        _here / "_override.cpp",
        [_here.parent / "_c_functions.h", *sorted(_here.glob("_override*.h"))],
        f"PyTorch {torch.__version__}",
        [_root / "include", _root / "include" / "torch" / "csrc" / "api" / "include"],
        flags=[f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}"],
        libraries=[f"-L{_root / 'lib'}", "-ltorch_cpu", "-lc10"],
        tried=TRIED,
        version=torch.__version__,
    ).load()
    for name, result, arguments in (
        ("enable", ctypes.c_char_p, [ctypes.c_int64]),
        ("disable", ctypes.c_char_p, []),
        ("memory_kept", ctypes.c_int64, []),
        ("kernel_name", ctypes.c_char_p, [ctypes.c_int]),
        ("outcome_name", ctypes.c_char_p, [ctypes.c_int]),
        ("count", ctypes.c_uint64, [ctypes.c_int, ctypes.c_int]),
        ("reset_counts", None, []),
    ):
        function = getattr(extension, f"gradloom_torch_{name}")
        function.restype, function.argtypes = result, arguments
    return extension


__all__ = ["TRIED", "load"]
