"""Building loop nests: reads like C++'s KernelBuilder, with `with` for its lambdas.

    b = gradloom.kernel("scale")
    n = b.scalar("n", 0)
    x, y = b.input("x", "f32", [n]), b.output("y", "f32", [n])
    with b.loop("i", 0, n) as i:
        y[i] = x[i] * 2
    kernel = b.build()

A sum has a declared order, which vectors and threads share with the same bits (docs/sums.md):

    y[i] = b.sum("k", 0, m, lambda k: x[i, k])

A number beside an expression has its dtype. Statements go to the innermost open scope; a `let` and an `alloc` live to
its end.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Literal, NoReturn

from gradloom import _gradloom
from gradloom._gradloom import Expr, Kernel

Index = Expr | int | tuple[Expr | int, ...] | list[Expr | int]
Value = Expr | float
Dims = Sequence[Expr | int]
AccumulateOp = Literal["add", "min", "max", "fma", "mul"]
Term = Callable[[Expr], Expr]
Condition = Callable[[Expr], Expr]
LoopKind = Literal[
    "serial", "parallel", "vector", "unroll", "ordered", "grid", "thread", "warp", "lane", "cooperative", "fragment", "matrix_unit"
]


class _Load(Expr):
    """buffer[index], which may become the target of +=."""

    def __init__(self, buffer: "Buffer", index: Index) -> None:
        super().__init__(_gradloom._load(buffer._handle, index))
        self.buffer = buffer
        self.index = index

    def __iadd__(self, value: Value) -> Expr:
        return _Sum(self, value)


class _Sum(Expr):
    """buffer[index] + value: an accumulation, where it is stored to that element by +=."""

    def __init__(self, load: _Load, value: Value) -> None:
        super().__init__(load + value)
        self.buffer = load.buffer
        self.index = load.index
        self.value = value


class Buffer:
    """An array of a nest: `b[i, j]` is a load, `b[i, j] = v` a store, `b[i, j] += v` an accumulation."""

    def __init__(self, builder: "KernelBuilder", handle: _gradloom._Buffer) -> None:
        self._builder = builder
        self._handle = handle

    def __iter__(self) -> NoReturn:
        raise TypeError("a buffer of a nest is indexed, not iterated over")

    @property
    def name(self) -> str:
        return self._handle.name

    @property
    def dtype(self) -> str:
        return self._handle.dtype

    def __getitem__(self, index: Index) -> Expr:
        return _Load(self, index)

    def __setitem__(self, index: Index, value: Value) -> None:
        if isinstance(value, _Sum) and value.buffer is self and value.index is index:
            self._builder.accumulate(self, index, value.value)
        else:
            self._builder.store(self, index, value)

    def load(self, index: Index, guard: Expr | None = None, otherwise: Value | None = None) -> Expr:
        """The element, read only where `guard` holds; elsewhere `otherwise`."""
        return _gradloom._load(self._handle, index, guard, otherwise)


class KernelBuilder:
    """Builds one kernel in program order; `build` ends it."""

    def __init__(self, name: str) -> None:
        self._builder = _gradloom._Builder(name)

    def scalar(self, name: str, min: Value | None = None, max: Value | None = None, dtype: str = "i64") -> Expr:
        """A parameter with its declared inclusive range."""
        return self._builder.scalar(name, min, max, dtype)

    def input(self, name: str, dtype: str, dims: Dims, strides: Dims | None = None) -> Buffer:
        return Buffer(self, self._builder.input(name, dtype, dims, strides, 1))

    def output(self, name: str, dtype: str, dims: Dims, *, strides: Dims | None = None, alignment: int = 1) -> Buffer:
        return Buffer(self, self._builder.output(name, dtype, dims, strides, alignment))

    def inout(self, name: str, dtype: str, dims: Dims, *, strides: Dims | None = None, alignment: int = 1) -> Buffer:
        return Buffer(self, self._builder.inout(name, dtype, dims, strides, alignment))

    def alloc(self, name: str, dtype: str, dims: Dims, space: str = "global") -> Buffer:
        """Scratch memory to the end of the scope, its contents unspecified."""
        return Buffer(self, self._builder.alloc(name, dtype, dims, space))

    def let(self, name: str, value: Expr) -> Expr:
        """The value, evaluated once."""
        return self._builder.let(name, value)

    @contextmanager
    def loop(self, name: str, begin: Expr | int, extent: Expr | int, kind: LoopKind = "serial") -> Iterator[Expr]:
        """for name in [begin, begin + extent)."""
        index = self._builder.open_loop(name)
        with self._dropped_by_an_exception():
            yield index
            self._builder.close_loop(begin, extent, kind)

    @contextmanager
    def loops(self, name: str, extents: Dims) -> Iterator[tuple[Expr, ...]]:
        """A loop a dim, outermost first, named name0, name1, ..."""
        with ExitStack() as stack:
            yield tuple(stack.enter_context(self.loop(f"{name}{d}", 0, e)) for d, e in enumerate(extents))

    def if_then(self, condition: Expr) -> AbstractContextManager[None]:
        return self._scope(lambda: self._builder.close_if(condition))

    def otherwise(self) -> AbstractContextManager[None]:
        """The other case of the `if_then` before it."""
        return self._scope(self._builder.close_else)

    def check(self, condition: Expr, position: Expr | int, argument: str) -> AbstractContextManager[None]:
        """What follows runs where the condition holds; where it does not, the call fails with OutOfRange."""
        return self._scope(lambda: self._builder.close_check(condition, position, argument))

    def store(
        self, buffer: Buffer, index: Index, value: Value, guard: Expr | None = None, streaming: bool = False
    ) -> None:
        self._builder.store(buffer._handle, index, value, guard, streaming)

    def accumulate(
        self,
        buffer: Buffer,
        index: Index,
        value: Value,
        op: AccumulateOp = "add",
        factor: Value | None = None,
        guard: Expr | None = None,
        atomic: bool = False,
    ) -> None:
        """buffer[index] = buffer[index] op value; fma: value * factor + buffer[index], rounded once."""
        self._builder.accumulate(buffer._handle, index, value, op, factor, guard, atomic)

    def sum(
        self,
        name: str,
        begin: Expr | int,
        extent: Expr | int,
        value: Term,
        *,
        order: str = "tree 256",
        where: Condition | None = None,
    ) -> Expr:
        """The sum of value(name) for name in [begin, begin + extent), of the terms where the condition holds.

        order: "tree 256" (terms are neighbours in memory), "tree 16" (terms are rows apart), "loop" (one after the
        other), "chunks N" (N at a time, then the chunks), "any". A value of f16 or bf16 is cast first. It is computed
        here, once; the expression is good to the end of the scope.
        """
        return self._total("add", name, begin, extent, value, None, order, where)

    def min(
        self, name: str, begin: Expr | int, extent: Expr | int, value: Term, *, where: Condition | None = None
    ) -> Expr:
        """The least value; of none the largest number there is. A NaN wins."""
        return self._total("min", name, begin, extent, value, None, "tree 256", where)

    def max(
        self, name: str, begin: Expr | int, extent: Expr | int, value: Term, *, where: Condition | None = None
    ) -> Expr:
        """The largest value; of none the least number there is. A NaN wins."""
        return self._total("max", name, begin, extent, value, None, "tree 256", where)

    def dot(
        self,
        name: str,
        begin: Expr | int,
        extent: Expr | int,
        a: Term,
        b: Term,
        *,
        order: str = "tree 256",
        where: Condition | None = None,
    ) -> Expr:
        """The sum of products a(name) * b(name), each rounded once, with its addition."""
        return self._total("fma", name, begin, extent, a, b, order, where)

    def reduce(
        self,
        buffer: Buffer,
        index: Index,
        bounds: Sequence[tuple[str, Expr | int, Expr | int]],
        value: Callable[..., Value],
        op: AccumulateOp = "add",
        *,
        factor: Callable[..., Value] | None = None,
        order: str = "tree 256",
        where: Callable[..., Expr] | None = None,
    ) -> None:
        """buffer[index] = the fold of value(...) over variables (name, begin, extent), outermost first."""
        at = self._builder.open_reduction([name for name, _, _ in bounds])
        with self._dropped_by_an_exception():
            guard = None if where is None else where(*at)
            term, times = value(*at), None if factor is None else factor(*at)
            begins, extents = [begin for _, begin, _ in bounds], [extent for _, _, extent in bounds]
            self._builder.close_reduction(
                buffer._handle, index, op, begins, extents, term, times, guard, order
            )

    def exp(self, x: Expr) -> Expr:
        return self._builder.exp(x)

    def expm1(self, x: Expr) -> Expr:
        return self._builder.expm1(x)

    def log(self, x: Expr) -> Expr:
        return self._builder.log(x)

    def log1p(self, x: Expr) -> Expr:
        return self._builder.log1p(x)

    def tanh(self, x: Expr) -> Expr:
        return self._builder.tanh(x)

    def logistic(self, x: Expr) -> Expr:
        return self._builder.logistic(x)

    def softplus(self, x: Expr) -> Expr:
        return self._builder.softplus(x)

    def erf(self, x: Expr) -> Expr:
        return self._builder.erf(x)

    def sin(self, x: Expr) -> Expr:
        return self._builder.sin(x)

    def cos(self, x: Expr) -> Expr:
        return self._builder.cos(x)

    def pow(self, x: Expr, exponent: float) -> Expr:
        """x to a constant power, rounded to x's dtype, with C's values at 0, 1, infinities and NaN."""
        return self._builder.pow(x, exponent)

    def build(self) -> Kernel:
        """The kernel, verified."""
        return self._builder.build()

    def _total(
        self,
        op: AccumulateOp,
        name: str,
        begin: Expr | int,
        extent: Expr | int,
        value: Term,
        factor: Term | None,
        order: str,
        where: Condition | None,
    ) -> Expr:
        (at,) = self._builder.open_reduction([name])
        with self._dropped_by_an_exception():
            guard = None if where is None else where(at)
            term, times = value(at), None if factor is None else factor(at)
            return self._builder.close_total(op, [begin], [extent], term, times, guard, order)

    @contextmanager
    def _scope(self, close: Callable[[], None]) -> Iterator[None]:
        self._builder.open()
        with self._dropped_by_an_exception():
            yield
            close()

    @contextmanager
    def _dropped_by_an_exception(self) -> Iterator[None]:
        depth = self._builder.depth
        try:
            yield
        except BaseException:
            while self._builder.depth >= depth:
                self._builder.drop()
            raise


def kernel(name: str) -> KernelBuilder:
    """A builder of a loop nest."""
    return KernelBuilder(name)


def constant(dtype: str, value: float) -> Expr:
    return _gradloom._constant(dtype, value)


def cast(dtype: str, value: Expr) -> Expr:
    """The value in this dtype; to an int it truncates and saturates."""
    return _gradloom._cast(dtype, value)


def bitcast(dtype: str, value: Expr) -> Expr:
    """The same bits."""
    return _gradloom._bitcast(dtype, value)


def select(condition: Expr, a: Value, b: Value) -> Expr:
    """a where the condition holds, else b; both are evaluated."""
    return _gradloom._select(condition, a, b)


def minimum(a: Value, b: Value) -> Expr:
    """IEEE 754-2019's: a NaN wins."""
    return _gradloom._min(a, b)


def maximum(a: Value, b: Value) -> Expr:
    """IEEE 754-2019's: a NaN wins."""
    return _gradloom._max(a, b)


def fma(a: Expr, b: Value, c: Value) -> Expr:
    """a * b + c, rounded once."""
    return _gradloom._fma(a, b, c)


def sqrt(x: Expr) -> Expr:
    return _gradloom._unary("sqrt", x)


def floor(x: Expr) -> Expr:
    return _gradloom._unary("floor", x)


def ceil(x: Expr) -> Expr:
    return _gradloom._unary("ceil", x)


def trunc(x: Expr) -> Expr:
    return _gradloom._unary("trunc", x)
