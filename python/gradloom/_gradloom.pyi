from collections.abc import Sequence
from typing import Any, Literal

version: str

def schemas() -> list[dict[str, Any]]:
    """Every op's name, documentation, inputs, outputs and attributes, each a dict."""

def log_level() -> str: ...
def set_log_level(level: str) -> None:
    """What goes to logging.getLogger("gradloom"): "off", "error", "warn", "info" or "debug".

    At first what the environment's GRADLOOM_LOG says, else "warn".
    """

class Array:
    """An output without a library: taken by DLPack or the buffer protocol, without a copy."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> str: ...
    def __dlpack__(self, **options: Any) -> Any: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

class Prepared:
    """An op with its attributes, for inputs of any dtypes and shapes: for hot loops."""

    def __call__(self, *inputs: Any, out: Any = None) -> Any:
        """As `run`."""

class Kernel:
    """A loop nest: what `parse` gives, and what each schedule gives again."""

    @property
    def name(self) -> str: ...
    @property
    def trace(self) -> list[str]:
        """The schedule's steps so far, a line each."""

    @property
    def loops(self) -> list[str]:
        """The names of all loops, outer before inner."""

    @property
    def scalars(self) -> list[tuple[str, str]]:
        """Name and dtype of each."""

    @property
    def buffers(self) -> list[tuple[str, str, str, tuple[str, ...]]]:
        """Name, role ("in", "out", "inout"), dtype and dims of each."""

    def schedule(self, steps: str | Sequence[str]) -> Kernel:
        """The nest after these steps, a line each, such as "split i 8". One that is not proved right is refused."""

    def emit(
        self,
        stage: Literal[
            "authored", "scheduled", "lowered", "llvm-raw", "llvm", "asm", "cuda", "ptx", "sass-report"
        ] = "lowered",
        *,
        target: str = "",
        after: str = "",
        threads: int = 0,
    ) -> str:
        """Its text at a stage, or after a pass of the lowering.

        `target` is "host", a level such as "x86-64-v3", or a GPU such as "sm_90": host when not given, for a GPU's
        stages sm_90.
        """

class CompiledKernel:
    """A compiled loop nest."""

    def __call__(self, **arguments: Any) -> Any:
        """Runs it with arrays and scalars by name.

        A scalar may be left out that is the dim of an array, and so may an output, which is then allocated. The outputs
        are returned: one as it is, several as a tuple.
        """

    @property
    def kernel(self) -> Kernel: ...
    def report(self) -> dict[str, Any]: ...

def parse(text: str) -> Kernel:
    """A loop nest from its text. `ParseError` says where it is wrong."""

class Runtime:
    """Compiles, caches and runs kernels, on threads of its own. May be used by any thread, and after a fork."""

    def __init__(
        self,
        *,
        target: Literal["automatic", "llvm", "interpreter", "cuda", "cuda-host"] = "automatic",
        threads: int = 0,
        isa: str = "host",
        cache_bytes: int = ...,
        recycle_bytes: int = ...,
        dump_folder: str = "",
        device: int = 0,
        disk_cache: str = "",
        disk_cache_read_only: Sequence[str] = ...,
        disk_cache_bytes: int = ...,
        policy: Literal["specialise", "generic_first"] = "generic_first",
        specialise_after: int = 32,
        specialisations: int = 4,
        compile_threads: int = 1,
        _shared: bool = False,
    ) -> None: ...
    def run(self, op: str, inputs: Sequence[Any], /, **options: Any) -> Any: ...
    def prepare(self, op: str, /, **options: Any) -> Prepared: ...
    def compile(self, kernel: Kernel | str, trace: str | Sequence[str] = "") -> CompiledKernel:
        """Compiles a loop nest, or its text, after the steps of `trace`.

        Only target interpreter checks every access: try a new nest there first.
        """

    def infer_outputs(
        self, op: str, inputs: Sequence[Any], /, **options: Any
    ) -> list[tuple[str, tuple[int, ...]] | None]:
        """What such a run gives, without running it: dtype and shape; None for an output that is not wanted."""

    def last_report(self) -> dict[str, Any]:
        """Which kernel served this thread's last call, and how: strategy, times, schedule."""

    def stats(self) -> dict[str, Any]: ...
    def clear_cache(self) -> None: ...
    def used_calls(self) -> bytes:
        """The calls whose kernels were used so far, for `prewarm` of a later process."""

    def prewarm(self, calls: bytes, /) -> dict[str, Any]: ...
    def wait_for_background(self) -> None: ...
    def synchronize(self) -> None: ...
    @property
    def threads(self) -> int: ...
    @property
    def target(self) -> str: ...
