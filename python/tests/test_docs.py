"""The examples of docs/python.md and docs/sparse.md, and types."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

PROGRAM = """
from typing import assert_type

import gradloom


def main() -> None:
    runtime = gradloom.Runtime(threads=2, policy="specialise")
    handle = gradloom.prepare("GatherGrad", axis=0)
    assert_type(handle, gradloom.Prepared)
    gradloom.gather_grad([2], [0], [1], axis=1, out=None, accumulate=True, runtime=runtime)
    first, second = gradloom.broadcast_gradient_args([2], [1])
    kernel = gradloom.parse("text").schedule(["split i 8"])
    assert_type(kernel.emit("asm", target="x86-64-v3"), str)
    assert_type(runtime.compile(kernel, trace="unroll i"), gradloom.CompiledKernel)
    assert_type(runtime.threads, int)
    try:
        runtime.compile(kernel)(n=3)
    except gradloom.ParseError as error:
        assert_type(error.line, int)
"""

WRONG = {
    "gradloom.gather_grad([2], [0], [1], axs=1)": "call-arg",
    'gradloom.gather_grad([2], [0], [1], accumulate="yes")': "arg-type",
    "gradloom.gather_grad([2], [0])": "call-arg",
    'gradloom.Runtime(policy="generic")': "arg-type",
    'gradloom.parse("").emit("assembly")': "arg-type",
    "a, b, c = gradloom.broadcast_gradient_args([2], [1])": "misc",
    "gradloom.gather_grads": "attr-defined",
}


def mypy(tmp_path: Path, text: str) -> subprocess.CompletedProcess[str]:
    program = tmp_path / "program.py"
    program.write_text(text)
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path.parent / "mypy"), str(program)]
    return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)


def test_the_example_runs() -> None:
    page = (ROOT / "docs" / "python.md").read_text()
    example, built, _ = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    example += built + "assert str(kernel) == str(gradloom.parse(str(kernel)))\n"
    done = subprocess.run([sys.executable, "-c", example], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for comment in re.findall(r"print\(error\)  # (.*)", example):
        assert comment in done.stdout
    assert "ymm" in done.stdout


def test_the_example_of_sparse_gradients_runs() -> None:
    (example,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "sparse.md").read_text(), re.DOTALL)
    subprocess.run([sys.executable, "-c", example], check=True)


def test_the_pages_three_lines() -> None:
    page = (ROOT / "docs" / "python.md").read_text()
    (line,) = re.findall(r'^python3 -c "(.*)"$', page, re.MULTILINE)
    done = subprocess.run([sys.executable, "-c", line], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[2] == " [2. 2. 2.]"


def test_types_of_a_program(tmp_path: Path) -> None:
    done = mypy(tmp_path, PROGRAM)
    assert done.returncode == 0, done.stdout


def test_wrong_types_are_found(tmp_path: Path) -> None:
    done = mypy(tmp_path, "import gradloom\n" + "\n".join(WRONG))
    found = {int(line.split(":")[1]): line for line in done.stdout.splitlines() if ": error:" in line}
    for number, (line, code) in enumerate(WRONG.items(), start=2):
        assert f"[{code}]" in found.get(number, ""), (line, done.stdout)
