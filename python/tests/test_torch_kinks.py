"""The gradients that PyTorch gives at kinks and ties, and of infinities, NaN and -0: what
tests/text/differentiate/pytorch.loop says of them, with which loop_file_test compares derived nests."""

import os
import re
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

FILE = Path(__file__).resolve().parents[2] / "tests" / "text" / "differentiate" / "pytorch.loop"
CASE = re.compile(
    r"^// === (?P<title>.*)\n(?:// .*\n)*?// gradient (?P<wanted>[\w,]+).*\n// torch (?P<expression>.*)\n"
    r"// values (?P<inputs>.*): ?(?P<gradients>.*)$",
    re.MULTILINE,
)
CASES = list(CASE.finditer(FILE.read_text()))


def numbers(text: str) -> dict[str, list[float]]:
    """ "x=1,-0 w=nan,2": lists by name."""
    return {name: [float(v) for v in values.split(",")] for name, values in re.findall(r"(\w+)=(\S+)", text)}


def pytorchs(case: re.Match[str]) -> str:
    inputs = {name: torch.tensor(values, dtype=torch.float64) for name, values in numbers(case["inputs"]).items()}
    upstream = inputs.pop("d_y")
    inputs.pop("n")
    wanted = [inputs[name].requires_grad_() for name in case["wanted"].split(",")]
    output = eval(case["expression"], {"torch": torch, **inputs})
    gradients = torch.autograd.grad(output, wanted, upstream)
    return " ".join(
        f"d_{name}=" + ",".join(f"{v:.17g}" for v in gradient.tolist())
        for name, gradient in zip(case["wanted"].split(","), gradients, strict=True)
    )


@pytest.mark.parametrize("case", CASES, ids=[case["title"] for case in CASES])
def test_stored_gradients_are_pytorchs(case: re.Match[str]) -> None:
    actual = pytorchs(case)
    if "GRADLOOM_UPDATE" in os.environ:
        head, tail = case[0].rsplit(":", 1)[0], f": {actual}"
        FILE.write_text(FILE.read_text().replace(case[0], head + tail))
        return
    stored = numbers(case["gradients"])
    for name, values in numbers(actual).items():
        torch.testing.assert_close(
            torch.tensor(stored[name]), torch.tensor(values), rtol=1e-6, atol=0.0, equal_nan=True
        )


def test_there_are_cases() -> None:
    assert len(CASES) == FILE.read_text().count("// torch ")
