"""gradloom's errors: a class a code, each also Python's own class of that kind."""

from typing import ClassVar


class Error(Exception):
    """Any error of gradloom's. Its message is one line that names what was wrong and what was allowed."""

    code: ClassVar[str] = "error"


class InvalidArgument(Error, ValueError):
    """A bad argument: rank, dims, dtype, attribute, overlap."""

    code = "invalid_argument"


class OutOfRange(Error, IndexError):
    """A bad index value inside an array of indices."""

    code = "out_of_range"


class Unsupported(Error, NotImplementedError):
    """A valid request that this build or target cannot do."""

    code = "unsupported"


class ResourceExhausted(Error, MemoryError):
    """Out of memory, or over a stated limit."""

    code = "resource_exhausted"


class CompileFailed(Error, RuntimeError):
    """LLVM or NVRTC refused; the message holds its log."""

    code = "compile_failed"


class DeviceError(Error, RuntimeError):
    """A driver or a device is missing or failed."""

    code = "device_error"


class InternalError(Error, RuntimeError):
    """A fault of gradloom itself."""

    code = "internal"


class ParseError(InvalidArgument):
    """A loop nest that does not parse: at `line` and `column`, both from 1, of `text`."""

    def __init__(self, message: str, line: int, column: int, text: str) -> None:
        super().__init__(message)
        self.line = line
        self.column = column
        self.text = text
        lines = text.splitlines()
        if 1 <= line <= len(lines):
            self.add_note(f"{lines[line - 1]}\n{' ' * (column - 1)}^")

    def __reduce__(self) -> tuple[type["ParseError"], tuple[str, int, int, str]]:
        return type(self), (str(self), self.line, self.column, self.text)
