"""How other libraries take an output."""

import sys
from collections.abc import Callable
from typing import Any


def from_dlpack_of(kind: type) -> Callable[[Any], Any] | None:
    """The function by which an array type's library takes DLPack; None where it has none, or is numpy."""
    if not hasattr(kind, "__dlpack__"):
        return None
    package = kind.__module__.partition(".")[0]
    if package in ("numpy", "gradloom"):
        return None
    library: Any = sys.modules.get("jax" if package == "jaxlib" else package)
    for home in (library, getattr(library, "dlpack", None)):
        function: Callable[[Any], Any] | None = getattr(home, "from_dlpack", None)
        if callable(function):
            return function
    return None
