"""scikit-build-core, after a look at what it needs and pip cannot install: a failure then takes one line."""

import os
import shutil
import sys
from pathlib import Path

from scikit_build_core.build import *  # noqa: F403
from scikit_build_core.build import build_editable as _build_editable
from scikit_build_core.build import build_wheel as _build_wheel

_LLVM = Path("/usr/lib/llvm-22")


def _prepare() -> None:
    # The compilers that cmake takes by itself, not those that built this Python: the compiler's cache is then shared
    # with other builds of the repository.
    os.environ.setdefault("CC", "cc")
    os.environ.setdefault("CXX", "c++")
    has = {
        "g++": shutil.which("g++") or shutil.which("c++"),
        "cmake": shutil.which("cmake"),
        "ninja-build": shutil.which("ninja"),
        "llvm-22-dev": (_LLVM / "lib/libLLVMCore.a").exists() or shutil.which("llvm-config"),
        "libfmt-dev": any(Path(root, "fmt/format-inl.h").exists() for root in ("/usr/include", "/usr/local/include")),
    }
    missing = [package for package, found in has.items() if not found]
    if missing:
        sys.exit(f"gradloom: missing {', '.join(missing)}: `./dev setup` in its repository installs them (Debian 12)")


_Settings = dict[str, list[str] | str] | None


def build_wheel(wheel_directory: str, config_settings: _Settings = None, metadata_directory: str | None = None) -> str:
    _prepare()
    return _build_wheel(wheel_directory, config_settings, metadata_directory)


def build_editable(
    wheel_directory: str, config_settings: _Settings = None, metadata_directory: str | None = None
) -> str:
    _prepare()
    return _build_editable(wheel_directory, config_settings, metadata_directory)
