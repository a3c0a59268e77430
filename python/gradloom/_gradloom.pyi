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
