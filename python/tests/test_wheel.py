"""The wheel that ./dev wheel built, if it did: what is in it, and what it needs."""

import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import gradloom
import pytest
from gradloom import _gradloom

ROOT = Path(__file__).parents[2]
MODULE = Path(_gradloom.__file__)


def test_one_symbol_is_exported() -> None:
    done = subprocess.run(["nm", "-D", "--defined-only", MODULE], capture_output=True, text=True, check=True)
    assert [line.split()[-1] for line in done.stdout.splitlines()] == ["PyInit__gradloom"]


def test_only_the_systems_libraries_are_needed() -> None:
    done = subprocess.run(["readelf", "-d", MODULE], capture_output=True, text=True, check=True)
    needed = set(re.findall(r"NEEDED.*\[(.*)\]", done.stdout))
    allowed = {"libstdc++.so.6", "libgcc_s.so.1", "libm.so.6", "libc.so.6", "libz.so.1", "ld-linux-x86-64.so.2"}
    assert "libc.so.6" in needed and needed <= allowed
    assert not re.search(r"RPATH|RUNPATH", done.stdout)


def test_the_wheel() -> None:
    tag = f"cp{sysconfig.get_config_var('py_version_nodot')}"
    wheels = list((ROOT / "build" / "wheel").glob(f"gradloom-{gradloom.__version__}-{tag}-{tag}-*.whl"))
    if not wheels:
        pytest.skip("./dev wheel has not run")
    assert re.search(r"-manylinux_2_\d+_x86_64\.whl$", wheels[0].name)
    names = zipfile.ZipFile(wheels[0]).namelist()
    licences = {name.rpartition("/")[2] for name in names if "/licenses/" in name}
    assert licences >= {"LICENSE", "THIRD_PARTY_NOTICES.md", "LLVM.txt", "fmt.txt", "nanobind.txt", "robin-map.txt"}
    assert "gradloom/py.typed" in names and "gradloom/_gradloom.pyi" in names


def test_what_is_missing_takes_one_line(tmp_path: Path) -> None:
    if not shutil.which("g++"):
        pytest.skip("there is no compiler here at all")
    for tool in ("cmake", "ninja"):  # a machine that has these, and no compiler
        (tmp_path / tool).symlink_to("/bin/true")
    build = ROOT / "python" / "build"
    program = f"import sys; sys.path.insert(0, {str(build)!r}); import gradloom_build; gradloom_build.build_wheel('.')"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, env={"PATH": str(tmp_path)}
    )
    assert done.returncode != 0
    assert re.fullmatch(r"gradloom: missing g\+\+: `./dev setup` .*\n", done.stderr)
