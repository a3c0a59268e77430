"""The extension that `gradloom.torch.enable()` builds, once a machine; one line where that fails; processes with it."""

import ctypes
import logging
import os
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import gradloom  # noqa: E402
import gradloom.torch  # noqa: E402
from gradloom.torch import _override, _override_build  # noqa: E402
from torch_fixtures import alone  # noqa: E402, F401

FAKE = """#!/bin/sh
# Stands for a compiler: takes its time, counts its runs, and copies what a real one made.
echo run >> {log}
sleep 1
while [ "$1" != -o ]; do shift; done
cp {made} "$2"
"""
ENABLE = "import gradloom.torch; gradloom.torch.enable(); gradloom.torch.disable()"


def run_program(text: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(text)],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, **environment},
    )


def test_a_process_ends_while_a_kernel_is_compiled() -> None:
    done = run_program("""
        import os
        os.environ["GRADLOOM_CACHE_DIR"] = "off"
        import torch, gradloom.torch
        gradloom.torch.enable()
        w, tokens = torch.randn(500, 64, requires_grad=True), torch.arange(100)
        for _ in range(17):
            torch.autograd.grad(torch.nn.functional.embedding(tokens, w).sum(), w)
        """)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.fixture
def compiler(tmp_path: Path) -> Path:
    gradloom.torch.enable()
    (path,) = {
        Path(line.split()[-1])
        for line in Path("/proc/self/maps").read_text().splitlines()
        if line.endswith("extension.so") and "/torch-" in line
    }
    fake = tmp_path / "fake-c++"
    fake.write_text(FAKE.format(log=tmp_path / "log", made=path))
    fake.chmod(0o755)
    return fake


def test_two_processes_build_once(tmp_path: Path, compiler: Path) -> None:
    environment = {"XDG_CACHE_HOME": str(tmp_path / "cache"), "CXX": str(compiler)}
    with ThreadPoolExecutor(2) as pool:
        done = list(pool.map(lambda _: run_program(ENABLE, **environment), range(2)))
    assert [each.returncode for each in done] == [0, 0], done
    assert (tmp_path / "log").read_text() == "run\n"
    assert sorted(each.stderr.count("building its extension for PyTorch") for each in done) == [0, 1]
    (made,) = (tmp_path / "cache" / "gradloom-python").glob("torch-*/")
    assert [file.name for file in made.iterdir()] == ["extension.so"]
    assert oct((tmp_path / "cache" / "gradloom-python").stat().st_mode)[-3:] == "700"


@pytest.fixture
def cache(monkeypatch: Any, tmp_path: Path) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "gradloom-python"


def test_without_a_cache_it_is_built_for_the_process(
    monkeypatch: Any, cache: Path, compiler: Path, caplog: Any
) -> None:
    cache.mkdir(parents=True)
    cache.chmod(0o777)
    monkeypatch.setenv("CXX", str(compiler))
    assert isinstance(_override_build.load(), ctypes.PyDLL)
    assert "not this user's alone" in caplog.text and not list(cache.iterdir())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "needs a C++ compiler: {} is missing; install g++, or name another one in CXX"),
        ("#!/bin/sh\necho 'x.cpp:3: error: no such thing' >&2; exit 1", "cannot be built for PyTorch"),
        ('#!/bin/sh\nwhile [ "$1" != -o ]; do shift; done; echo text > "$2"', "cannot be loaded"),
    ],
)
def test_a_build_that_fails_is_one_line(
    monkeypatch: Any, tmp_path: Path, cache: Path, text: str | None, message: str
) -> None:
    fake = tmp_path / "c++"
    if text:
        fake.write_text(text)
        fake.chmod(0o755)
    monkeypatch.setenv("CXX", str(fake))
    monkeypatch.setattr(_override, "_extension", None)
    with pytest.raises(gradloom.Unsupported) as error:
        gradloom.torch.enable()
    assert message.format(fake) in str(error.value) and "\n" not in str(error.value)
    assert "_override.cpp" not in torch._C._dispatch_dump("aten::scatter_add")


def test_an_untried_version_says_so(monkeypatch: Any, cache: Path, compiler: Path, caplog: Any) -> None:
    monkeypatch.setattr(_override_build, "TRIED", ("1.0",))
    monkeypatch.setenv("CXX", str(compiler))
    with caplog.at_level(logging.INFO, "gradloom"):
        assert isinstance(_override_build.load(), ctypes.PyDLL)
    assert f"PyTorch {torch.__version__} has not been tried; tried are 1.0" in caplog.text
