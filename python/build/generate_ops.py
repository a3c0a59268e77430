"""Writes gradloom/ops.py from the library's schemas: python python/build/generate_ops.py > python/gradloom/ops.py"""

import re
import textwrap
from typing import Any

from gradloom._gradloom import schemas

HEADER = '''"""A function an op, with ONNX's names. Written by generate_ops.py from the library's schemas."""

from collections.abc import Sequence
from typing import Any, Unpack

from gradloom._gradloom import Runtime
from gradloom.runtime import Options, default_runtime
'''

TYPES = {
    "int": "int",
    "float": "float",
    "string": "str",
    "ints": "Sequence[int]",
    "floats": "Sequence[float]",
    "strings": "Sequence[str]",
}


def snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def wrapped(text: str, indent: int, hang: int = 0) -> str:
    return textwrap.fill(
        text, width=116, initial_indent=" " * indent, subsequent_indent=" " * (indent + hang), break_on_hyphens=False
    )


def described(argument: dict[str, Any]) -> str:
    dtypes = argument["dtypes"]
    listed = "any dtype" if len(dtypes) == 13 else ", ".join(dtypes)
    optional = "; optional" if argument["optional"] else ""
    return f"{argument['name']}: {argument['doc']} ({listed}{optional})"


def function(op: dict[str, Any]) -> str:
    name = snake(op["name"])
    inputs, attributes, outputs = op["inputs"], op["attributes"], op["outputs"]
    required = max(i for i, argument in enumerate(inputs) if not argument["optional"])
    signature = [f"{argument['name']}: Any{' = None' if i > required else ''}" for i, argument in enumerate(inputs)]
    signature.append("*")
    for attribute in attributes:
        kind = TYPES[attribute["type"]]
        default = attribute["default"]
        value = f'"{default}"' if isinstance(default, str) else repr(default)
        signature.append(f"{attribute['name']}: {kind}{' | None' if default is None else ''} = {value}")
    signature += ["runtime: Runtime | None = None", "**options: Unpack[Options]"]
    result = "Any" if len(outputs) == 1 else f"tuple[{', '.join(['Any'] * len(outputs))}]"

    lines = [f"def {name}(", *(f"    {part}," for part in signature), f") -> {result}:"]
    lines += [wrapped(f'"""{op["doc"]}', 4), "", "    Args:"]
    lines += [wrapped(described(argument), 8, 4) for argument in inputs]
    lines += [wrapped(f"{attribute['name']}: {attribute['doc']}", 8, 4) for attribute in attributes]
    lines += ["        runtime: the process's shared one when not given"]
    lines += ["        options: how the call is run: `Options`"]
    lines += ["", "    Returns:" if len(outputs) == 1 else "    Returns a tuple:"]
    lines += [wrapped(described(argument), 8, 4) for argument in outputs]
    lines += ['    """']
    given = ", ".join(argument["name"] for argument in inputs)
    lines += [f"    result: {result} = (runtime or default_runtime()).run("]
    lines += [f'        "{op["name"]}",', f"        ({given}{',' if len(inputs) == 1 else ''}),"]
    lines += [f"        {attribute['name']}={attribute['name']}," for attribute in attributes]
    lines += ["        **options,", "    )", "    return result", "", "", f"{op['name']} = {name}"]
    return "\n".join(lines)


def module() -> str:
    all_ops = schemas()
    names = sorted(name for op in all_ops for name in (op["name"], snake(op["name"])))
    listed = "__all__ = [\n" + "".join(f'    "{name}",\n' for name in names) + "]\n"
    return HEADER + "\n\n" + "\n\n\n".join(function(op) for op in all_ops) + "\n\n" + listed


if __name__ == "__main__":
    print(module(), end="")
