"""The process's runtime, and calls that use it."""

from collections.abc import Sequence
from typing import Any, Literal, TypedDict

from gradloom._gradloom import Prepared, Runtime


class Options(TypedDict, total=False):
    """How a call is run, beside an op's attributes."""

    out: Any
    """Write there: an array, or a sequence of them with None for what is not wanted. It is returned."""
    outputs: Sequence[str] | None
    """The names of the outputs to compute; the others are None. All when not given."""
    accumulate: bool
    """Add into `out`."""
    strategy: str | None
    """The op's strategy; chosen by shape when not given."""
    determinism: Literal["sequential", "run_to_run", "relaxed"] | None
    """The weakest level allowed; the target's own when not given."""
    any_shape: bool
    """Use the kernel that serves every shape of this rank."""
    policy: Literal["specialise", "generic_first"] | None
    """For this call, instead of the runtime's."""


_default: Runtime | None = None


def default_runtime() -> Runtime:
    """The runtime of calls that name none: the process's shared one, made by the first call, with its defaults."""
    global _default
    if _default is None:
        _default = Runtime(_shared=True)
    return _default


def set_default_runtime(runtime: Runtime | None) -> None:
    """Another runtime for calls that name none; None: the process's shared one again."""
    global _default
    _default = runtime


def run(op: str, inputs: Sequence[Any], /, **options: Any) -> Any:
    """Runs an op by its ONNX name: its attributes, and `Options`, by name.

    Inputs are arrays of DLPack or of the buffer protocol, read in place; None for an optional one that is left out; a
    list of ints for a shape, starts, ends, axes or steps. The outputs are arrays of the inputs' library: numpy's, or
    that of the first input that is not numpy's. An op of one output gives it, others a tuple.
    """
    return default_runtime().run(op, inputs, **options)


def prepare(op: str, /, **options: Any) -> Prepared:
    """A handle for hot loops over any shapes: the op looked up, its attributes and `Options` but `out` checked once."""
    return default_runtime().prepare(op, **options)


__all__ = ["Options", "default_runtime", "prepare", "run", "set_default_runtime"]
