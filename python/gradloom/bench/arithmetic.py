"""The arithmetic that an elementwise op cannot do without: the operations of its expanded loop nest, each value once."""

import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gradloom import Runtime

_SOME = 1 << 12  # elements: any number has the same loop

# LLVM's operations on vectors. What is not named takes no operation of its own: loads, stores, bit casts, and changes
# of sign, which are parts of multiply-adds; a comparison and its select are one, such as a maximum.
_KINDS = {
    "multiply": ("fmul", "llvm.fma"),
    "divide": ("fdiv", "frem", "llvm.sqrt"),
    "other": (
        *("fadd", "fsub", "select", "add", "sub", "mul", "shl", "ashr", "lshr", "and", "or", "xor"),
        *("sitofp", "uitofp", "fptosi", "fptoui", "sext", "zext", "trunc", "fpext", "fptrunc"),
        *("llvm.fabs", "llvm.floor", "llvm.ceil", "llvm.trunc", "llvm.minimum", "llvm.maximum"),
        *("llvm.smin", "llvm.smax", "llvm.umin", "llvm.umax"),
    ),
}
_KIND_OF = {name: kind for kind, names in _KINDS.items() for name in names}
_ASSIGNED = re.compile(r"%\S+ = (?:(?:tail |musttail )?call [^@\n]*@(llvm\.[a-z]+)|([a-z]+))[^<\n]*<(\d+) x ")
_STORED = re.compile(r"store <(\d+) x ")


def operations_of(text: str) -> dict[str, float]:
    """By kind, per element that is stored, in the loops of optimised LLVM IR that store vectors."""
    counts, elements = dict.fromkeys(_KINDS, 0), 0
    for block in re.split(r"\n(?=\S+:)", text):
        if not (stored := sum(int(lanes) for lanes in _STORED.findall(block))):
            continue
        elements += stored
        for intrinsic, name, lanes in _ASSIGNED.findall(block):
            if kind := _KIND_OF.get(intrinsic or name):
                counts[kind] += int(lanes)
    return {kind: count / elements for kind, count in counts.items()} if elements else {}


def operations(op: str, operands: Sequence[Any]) -> dict[str, float]:
    """Of a call whose operands have one shape: by kind, in all."""
    with tempfile.TemporaryDirectory() as folder:
        runtime = Runtime(threads=1, policy="specialise", disk_cache="off", dump_folder=folder)
        runtime.run(op, [operand.reshape(-1)[:_SOME] for operand in operands])
        texts = [path.read_text() for path in Path(folder).glob("*.ll")]
    each = operations_of(texts[0]) if texts else {}
    return {kind: count * operands[0].size for kind, count in each.items()}
