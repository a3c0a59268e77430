"""`python -m gradloom.bench`: its cases, what it measures, its picture."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import gradloom
import numpy as np
import pytest
from gradloom.bench import arithmetic, case_list, cases, declared, race

TINY: list[cases.Case] = [
    cases.GatherElements("ge_2d", (40, 9), 1, (30, 20)),
    cases.GatherElements("ge_1d", (40,), 0, (300,)),
    cases.Gather("gg", (40, 9), (5, 20)),
    cases.Gather("gg_zipf", (40, 9), (100,), zipf=True),
    cases.Slice("sl", (8, 9, 7), {1: (1, -1, 1), 2: (None, None, 3)}),
    cases.Slice("sl_back", (8, 9, 7), {0: (None, None, -2), 2: (-2, None, -1)}),
    cases.Broadcast("bg", (8, 9, 7), (9, 1)),
    cases.Gru("gru", 5, 3, 4, 6),
    *(declared.Declared(case.op, case.op, (7, 9)) for case in case_list.CASES if case.group == "declared"),
]


OF_THE_COMMAND = [case for case in case_list.CASES if case.group != "declared"]


def bench(arguments: Sequence[str], before: str = "") -> subprocess.CompletedProcess[str]:
    program = f"{before}\nimport sys; from gradloom.bench.__main__ import main; sys.exit(main({list(arguments)!r}))"
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)


@pytest.mark.parametrize("case", TINY, ids=lambda case: str(case.name))
def test_a_case_is_measured_and_verified(case: cases.Case) -> None:
    result = race.measure(case, gradloom.Runtime(threads=2, disk_cache="off"), seconds=0.02)
    assert result.wrong is None
    assert set(result.seconds) == {"gradloom", "numpy"}
    assert all(len(samples) >= 2 and min(samples) > 0 for samples in result.seconds.values())
    assert result.roof > 0


LOOP = """
entry:
  %c = fmul <8 x float> %k, %k
  br label %loop

loop:                                             ; preds = %entry, %loop
  %x = load <8 x float>, ptr %1, align 4
  %y = fmul <8 x float> %x, %c
  %z = fneg <8 x float> %y
  %w = tail call <8 x float> @llvm.fma.v8f32(<8 x float> %z, <8 x float> %y, <8 x float> %x)
  %m = fcmp ogt <8 x float> %w, %x
  %s = select <8 x i1> %m, <8 x float> %w, <8 x float> %x
  %b = bitcast <8 x float> %s to <8 x i32>
  %n = shl <8 x i32> %b, %i
  %q = fdiv <8 x float> %s, %w
  %i.next = add i64 %i, 8
  store <8 x float> %q, ptr %2, align 4, !nontemporal !0
  br i1 %done, label %exit, label %loop

exit:
  ret void
"""


def test_operations_are_those_of_the_loop_that_stores() -> None:
    assert arithmetic.operations_of(LOOP) == {"multiply": 2, "divide": 1, "other": 2}
    assert arithmetic.operations_of("") == {}


def test_elementwise_cases_have_a_roof_of_their_arithmetic() -> None:
    x = np.ones((64, 8), np.float32)
    counts = {op: arithmetic.operations(op, [x, x]) for op in ("ReluGrad", "GeluGrad", "FastGeluGrad")}
    if not counts["ReluGrad"]:
        pytest.skip("no LLVM")
    assert counts["ReluGrad"] == {"multiply": 0, "divide": 0, "other": x.size}
    assert counts["GeluGrad"]["divide"] == 0 and counts["FastGeluGrad"]["divide"] == x.size
    assert 20 * x.size < counts["GeluGrad"]["multiply"] < 40 * x.size
    result = race.measure(declared.Declared("gelu", "GeluGrad", (64, 8)), gradloom.Runtime(threads=1), seconds=0.02)
    assert set(result.roofs) == {"bytes", "arithmetic"} and result.roof == max(result.roofs.values())


@pytest.mark.parametrize("case", TINY, ids=lambda case: str(case.name))
def test_a_wrong_output_is_found(case: cases.Case) -> None:
    operands = case.operands()
    got = gradloom.run(case.op, operands, **case.attributes)
    want = case.in_numpy(operands)()
    first = got[1] if isinstance(got, tuple) else got
    first.reshape(-1)[3] += np.abs(first).max() * 1e-3
    assert case.difference(got, operands, want)


def test_the_cases_are_those_of_the_command() -> None:
    text = (Path(__file__).parents[2] / "cli" / "bench" / "bench_cases.cpp").read_text()
    of_the_gpu = text.index("make_more_gpu_cases() {")
    for case in OF_THE_COMMAND:
        assert 0 < text.index(f'"{case.name}"')
    before = text[text.index("make_cases() {") : of_the_gpu]
    assert sorted(case.name for case in OF_THE_COMMAND if case.group != "gru_grad") == sorted(
        word.partition('"')[0] for word in before.split('("')[1:]
    )


def test_list() -> None:
    done = bench(["--list"])
    assert done.returncode == 0
    assert [line.split()[0] for line in done.stdout.splitlines()] == [case.name for case in case_list.CASES]


def test_a_run_and_its_picture(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    picture = tmp_path / "roof.png"
    done = bench(["gru_c", "sl_neginner", "--seconds", "0.02", "--threads", "1", "--json", "--plot", str(picture)])
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["case"] for line in lines] == ["sl_neginner", "gru_c"]
    assert all(line["verified"] and line["roof_ms"] > 0 and line["median_ms"]["numpy"] > 0 for line in lines)
    assert picture.read_bytes().startswith(b"\x89PNG") and picture.stat().st_size > 20000


WITHOUT = "import sys; sys.modules[{!r}] = None"


@pytest.mark.parametrize(
    ("arguments", "before", "code", "message"),
    [
        (["gg_none"], "", 2, "got case 'gg_none', expected all, ge, gg,"),
        (["--threads", "9999"], "", 2, "--threads is 9999, expected 0 to"),
        (["--seconds", "nan"], "", 2, "--seconds is nan, expected 0.01 to 600"),
        (["--plot", "roof.txt"], "", 2, "expected a name that ends with .png"),
        (["--plot", "nowhere/roof.png"], "", 2, "whose folder is not there"),
        (["--plot", "roof.png"], WITHOUT.format("matplotlib"), 1, "--plot needs matplotlib: pip install matplotlib"),
        ([], WITHOUT.format("numpy"), 1, "the bench needs numpy: pip install numpy"),
    ],
)
def test_a_refusal_takes_one_line(arguments: list[str], before: str, code: int, message: str) -> None:
    done = bench(arguments, before)
    assert done.returncode == code and done.stdout == ""
    assert done.stderr.startswith("gradloom.bench: ") and message in done.stderr and done.stderr.count("\n") == 1


INTERRUPTED = """
from gradloom.bench import race
measure = race.measure

def interrupted(case, *rest):
    if case.name != "gru_c":
        raise KeyboardInterrupt
    return measure(case, *rest)

race.measure = interrupted
from gradloom.bench import case_list
case_list.CASES.sort(key=lambda case: case.name != "gru_c")
"""


def test_what_was_measured_is_shown_after_ctrl_c() -> None:
    done = bench(["--seconds", "0.02"], INTERRUPTED)
    assert done.returncode == 130 and done.stderr == ""
    table = done.stdout.split("\n\n")[1].splitlines()
    assert [line.split()[0] for line in table] == ["case", "gru_c"]
