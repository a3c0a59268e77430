"""examples/python, for a few steps."""

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

EXAMPLES = Path(__file__).parents[2] / "examples" / "python"
if not Path("/usr/share/common-licenses/GPL-3").exists():
    pytest.skip("the texts are Debian's", allow_module_level=True)


def example(name: str, *arguments: str, cache: Path) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"GRADLOOM_CACHE_DIR": str(cache)}
    command = [sys.executable, str(EXAMPLES / name), *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)


def rows(done: subprocess.CompletedProcess[str]) -> dict[str, list[str]]:
    assert done.returncode == 0, done.stderr + done.stdout
    return {line.split()[0]: line.split() for line in done.stdout.splitlines()[1:]}


def test_two_processes_have_the_losses_of_one_and_the_same_bits_again(tmp_path: Path) -> None:
    table = rows(example("train_distributed.py", "--steps", "4", cache=tmp_path))
    assert set(table) == {"characters", "licences"}
    for _, first, last, alone, apart, *runs in table.values():
        assert float(last) < float(first) and abs(float(last) - float(alone)) < 1e-5
        assert float(apart) < 1e-5
        assert runs == ["the", "same", "bits"]


def test_unequal_shares_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    train_distributed = importlib.import_module("train_distributed")
    train_distributed.check_shares(["characters", "licences"], 4)
    with pytest.raises(SystemExit, match="3 processes cannot share the 32 examples of characters equally"):
        train_distributed.check_shares(["characters"], 3)


def test_the_losses_are_pytorchs(tmp_path: Path) -> None:
    picture = tmp_path / "losses.png"
    arguments = ["--by", "modules", "--steps", "4", "--threads", "1", "--plot", str(picture)]
    table = rows(example("train_char.py", *arguments, cache=tmp_path))
    for name in ("characters", "licences"):
        assert max(float(far) for far in table[name][8:11]) < 1e-5
        assert table[name][11:] == ["the", "same", "bits"]
    assert picture.read_bytes().startswith(b"\x89PNG")
