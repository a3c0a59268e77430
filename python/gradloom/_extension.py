"""An extension in C++ for another package of the user's, compiled once for its version, in the user's cache."""

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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from gradloom import _gradloom
from gradloom.errors import Unsupported

_log = logging.getLogger("gradloom")
_here = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Extension:
    module: str
    """Of gradloom's, as messages name it."""
    source: Path
    headers: Sequence[Path]
    """gradloom's own, beside the public ones."""
    package: str
    """The other package and its version."""
    include: Sequence[Path]
    """Folders of its headers."""
    flags: Sequence[str] = ()
    libraries: Sequence[str] = ()
    """Of the other package, as the linker is told."""
    tried: Sequence[str] = ()
    """The versions of the other package that the tests have run with; none are named: any."""
    version: str = ""

    def load(self) -> ctypes.PyDLL:
        """Built where it is not there yet, then opened and given the library's C interface.

        Calls keep the interpreter's lock.
        """
        compiler = shlex.split(os.environ.get("CXX", "")) or ["g++"]
        name = self.module.rpartition(".")[2]
        cache = self._cache()
        if cache is None:
            with tempfile.TemporaryDirectory(prefix="gradloom-") as folder:
                self._compile(compiler, Path(folder, "made"))
                return self._open(Path(folder, "made", "extension.so"))  # stays loaded without its file
        made = cache / f"{name}-{self._key(compiler)}"
        if not (made / "extension.so").is_file():
            with _locked(cache / f"{name}.lock"):
                if not (made / "extension.so").is_file():  # another process may have built it meanwhile
                    self._compile(compiler, made)
        return self._open(made / "extension.so")

    def _flags(self) -> list[str]:
        folders = [flag for folder in self.include for flag in ("-isystem", str(folder))]
        own = ["-std=c++20", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", f"-I{self._public()}"]
        return [*own, *folders, *self.flags]

    def _public(self) -> Path:
        """The folder that has gradloom/gradloom.h: in an installed package, or in a clone."""
        candidates = (_here / "include", _here.parents[1] / "include")
        for folder in candidates:
            if (folder / "gradloom" / "gradloom.h").is_file():
                return folder
        raise Unsupported(f"{self.module}: gradloom/gradloom.h is missing from {candidates[0]}: install gradloom again")

    def _key(self, compiler: Sequence[str]) -> str:
        digest = hashlib.sha256()
        for part in (self.package, sys.implementation.cache_tag or "", *compiler, *self._flags(), *self.libraries):
            digest.update(f"{part}\0".encode())
        public = [self._public() / "gradloom" / name for name in ("gradloom.h", "dlpack.h")]
        for file in (self.source, *self.headers, *public):
            digest.update(file.read_bytes())
        return digest.hexdigest()[:16]

    def _cache(self) -> Path | None:
        """The user's own folder, which nobody else may write to: what is in it gets loaded. None: there is none."""
        base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
        folder = Path(base, "gradloom-python")
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            status = folder.stat()
        except OSError as error:
            _log.warning("%s: no cache: %s", self.module, error)
            return None
        if status.st_uid != os.getuid() or status.st_mode & 0o022 or not os.access(folder, os.W_OK):
            _log.warning("%s: no cache: %s is not this user's alone to write to", self.module, folder)
            return None
        return folder

    def _compile(self, compiler: Sequence[str], into: Path) -> None:
        """Leaves the library in the folder `into` whole, or not at all: another process may look there at any time."""
        if shutil.which(compiler[0]) is None:
            raise Unsupported(
                f"{self.module}: it builds an extension and needs a C++ compiler: {compiler[0]} is missing; "
                "install g++, or name another one in CXX"
            )
        if self.tried and not self.version.startswith(tuple(f"{version}." for version in self.tried)):
            _log.info("%s: %s has not been tried; tried are %s", self.module, self.package, ", ".join(self.tried))
        print(f"{self.module}: building its extension for {self.package} (once, up to a minute)", file=sys.stderr)
        with tempfile.TemporaryDirectory(prefix="building-", dir=into.parent) as building:
            made = Path(building, "made")
            made.mkdir()
            command = [*compiler, *self._flags(), str(self.source), *self.libraries]
            command += ["-o", str(made / "extension.so")]
            done = subprocess.run(command, capture_output=True, text=True, errors="replace")
            if done.returncode != 0:
                _log.error("%s\n%s", shlex.join(command), done.stderr)
                first = next((line for line in done.stderr.splitlines() if "error" in line), "no message")
                tried = f" (tried: {', '.join(self.tried)})" if self.tried else ""
                raise Unsupported(
                    f"{self.module}: its extension cannot be built for {self.package}{tried}: {first.strip()}"
                )
            shutil.rmtree(into, ignore_errors=True)
            made.rename(into)

    def _open(self, path: Path) -> ctypes.PyDLL:
        try:
            extension = ctypes.PyDLL(str(path))
        except OSError as error:
            raise Unsupported(f"{self.module}: its extension cannot be loaded: {error}") from None
        pointer = ctypes.pythonapi.PyCapsule_GetPointer
        pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
        extension.gradloom_open.restype, extension.gradloom_open.argtypes = ctypes.c_char_p, [ctypes.c_void_p]
        refusal = extension.gradloom_open(pointer(_gradloom._c_functions(), b"gradloom.c_functions"))
        if refusal:
            raise Unsupported(f"{self.module}: {path}: {refusal.decode()}")
        return extension


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with open(path, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


__all__ = ["Extension"]
