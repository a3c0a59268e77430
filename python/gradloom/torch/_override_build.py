"""The extension `_override.cpp`, compiled once for the PyTorch that is installed, in the user's cache."""

import contextlib
import ctypes
import fcntl
import hashlib
import logging
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from gradloom import _gradloom
from gradloom.errors import Unsupported

TRIED = ("2.15",)
"""The versions of PyTorch that the tests have run with. For another one the extension is built, too, and says so."""

_log = logging.getLogger("gradloom")
_here = Path(__file__).resolve().parent


def _headers() -> Path:
    """The folder that has gradloom/gradloom.h: in an installed package, or in a clone."""
    candidates = (_here.parent / "include", _here.parents[2] / "include")
    for folder in candidates:
        if (folder / "gradloom" / "gradloom.h").is_file():
            return folder
    raise Unsupported(f"gradloom.torch: gradloom/gradloom.h is missing from {candidates[0]}: install gradloom again")


def _flags() -> list[str]:
    return [
        "-std=c++20",
        "-O2",
        "-fPIC",
        "-shared",
        "-fvisibility=hidden",
        f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}",
    ]


def _key(compiler: list[str], headers: Path) -> str:
    digest = hashlib.sha256()
    for part in (torch.__version__, sys.implementation.cache_tag, *compiler, *_flags()):
        digest.update(f"{part}\0".encode())
    public = [headers / "gradloom" / name for name in ("gradloom.h", "dlpack.h")]
    for source in sorted([*_here.glob("_override*.cpp"), *_here.glob("_*.h"), *public], key=lambda path: path.name):
        digest.update(source.read_bytes())
    return digest.hexdigest()[:16]


def _cache() -> Path | None:
    """The user's own folder, which nobody else may write to: what is in it gets loaded. None: there is none."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    folder = Path(base, "gradloom-python")
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.stat()
    except OSError as error:
        _log.warning("gradloom.torch: no cache: %s", error)
        return None
    if status.st_uid != os.getuid() or status.st_mode & 0o022 or not os.access(folder, os.W_OK):
        _log.warning("gradloom.torch: no cache: %s is not this user's alone to write to", folder)
        return None
    return folder


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with open(path, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _compile(compiler: list[str], headers: Path, into: Path) -> None:
    """Leaves the library in the folder `into` whole, or not at all: another process may look there at any time."""
    if shutil.which(compiler[0]) is None:
        raise Unsupported(
            f"gradloom.torch: enable() builds an extension and needs a C++ compiler: {compiler[0]} is missing; "
            "install g++, or name another one in CXX"
        )
    version = torch.__version__
    if not version.startswith(tuple(f"{tried}." for tried in TRIED)):
        _log.info("gradloom.torch: PyTorch %s has not been tried; tried are %s", version, ", ".join(TRIED))
    print(f"gradloom.torch: building its extension for PyTorch {version} (once, half a minute)", file=sys.stderr)
    root = Path(torch.__file__).parent
    with tempfile.TemporaryDirectory(prefix="building-", dir=into.parent) as building:
        command = [*compiler, *_flags(), f"-I{headers}", "-isystem", str(root / "include")]
        command += ["-isystem", str(root / "include" / "torch" / "csrc" / "api" / "include")]
        command += [str(_here / "_override.cpp"), f"-L{root / 'lib'}", "-ltorch_cpu", "-lc10"]
        made = Path(building, "made")
        made.mkdir()
        done = subprocess.run(
            [*command, "-o", str(made / "override.so")], capture_output=True, text=True, errors="replace"
        )
        if done.returncode != 0:
            _log.error("%s\n%s", shlex.join(command), done.stderr)
            first = next((line for line in done.stderr.splitlines() if "error" in line), "no message")
            raise Unsupported(
                f"gradloom.torch: its extension cannot be built for PyTorch {version} (tried: {', '.join(TRIED)}): "
                f"{first.strip()}"
            )
        shutil.rmtree(into, ignore_errors=True)
        made.rename(into)


def _open(path: Path) -> ctypes.PyDLL:
    """Calls keep the interpreter's lock: no Python thread dispatches while a kernel is registered or taken back."""
    try:
        extension = ctypes.PyDLL(str(path))
    except OSError as error:
        raise Unsupported(f"gradloom.torch: its extension cannot be loaded: {error}") from None
    for name, result, arguments in (
        ("open", ctypes.c_char_p, [ctypes.c_void_p]),
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
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    refusal = extension.gradloom_torch_open(pointer(_gradloom._c_functions(), b"gradloom.c_functions"))
    if refusal:
        raise Unsupported(f"gradloom.torch: {path}: {refusal.decode()}")
    return extension


def load() -> ctypes.PyDLL:
    """The extension, built where it is not there yet."""
    compiler = shlex.split(os.environ.get("CXX", "")) or ["g++"]
    headers = _headers()
    cache = _cache()
    if cache is None:
        with tempfile.TemporaryDirectory(prefix="gradloom-torch-") as folder:
            made = Path(folder, "extension")
            _compile(compiler, headers, made)
            return _open(made / "override.so")  # stays loaded without its file
    made = cache / f"torch-{_key(compiler, headers)}"
    if not (made / "override.so").is_file():
        with _locked(cache / "torch.lock"):
            if not (made / "override.so").is_file():  # another process may have built it meanwhile
                _compile(compiler, headers, made)
    return _open(made / "override.so")


__all__ = ["TRIED", "load"]
