"""`gradloom.torch.enable()`: what is served, what is left to PyTorch and why, and that all of it can be taken back."""

import multiprocessing
import threading
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import gradloom  # noqa: E402
import gradloom.torch  # noqa: E402
from gradloom.torch import _override  # noqa: E402
from torch_fixtures import alone  # noqa: E402, F401
from torch_samples import SEEDS, at_threads, bits  # noqa: E402

F = torch.nn.functional
OVERRIDDEN = {
    "CPU": "embedding_dense_backward _embedding_bag_dense_backward scatter_add scatter_add_ index_add index_add_ _index_put_impl_".split()
    + "slice_backward select_backward".split(),
    "AutogradCPU": "gather_backward index_select_backward index.Tensor".split(),
}


def counts(op: str) -> _override.OpStats:
    return gradloom.torch.stats().ops[op]


def gradient(f: Callable[[Any], Any], x: Any) -> Any:
    x = x.detach().requires_grad_()
    out = f(x)
    weights = torch.arange(out.numel(), dtype=torch.float64).remainder(7).sub(3).to(out.dtype).view(out.shape)
    return torch.autograd.grad(out, x, weights)[0]


# Sizes are drawn from small ones, where edges are, and from those that take other kernels and several threads.
def drawn(seed: int) -> tuple[Any, list[int], int]:
    generator = torch.Generator().manual_seed(seed)

    def draw(low: int, high: int) -> int:
        return int(torch.randint(low, high, (), generator=generator))

    rank = draw(1, 5)
    largest = (5, 40, 5, 400)[seed % 4] if rank < 4 else 24
    sizes = [draw(1, largest + 1) for _ in range(rank)]
    return draw, sizes, draw(-rank, rank)


def served_case(op: str, seed: int) -> tuple[Callable[[Any], Any], Any]:
    """A function whose gradient is that of `op`, and its argument in f64."""
    draw, sizes, dim = drawn(seed)
    torch.manual_seed(seed)
    size = sizes[dim]
    x = torch.randn(sizes, dtype=torch.float64)
    if seed % 3 == 1:  # strided
        x = torch.randn([2 * n for n in sizes], dtype=torch.float64)[tuple(slice(None, None, 2) for _ in sizes)]
    if op == "gather_backward":
        shape = [draw(1, n + 1) for n in sizes]
        shape[dim] = draw(1, 2 * size + 1)
        index = torch.randint(0, size, shape)
        if seed % 5 == 0:  # a list, expanded over whole slices
            shape = [1] * len(sizes)
            shape[dim] = draw(1, 2 * size + 1)
            index = torch.randint(0, size, shape).expand(
                [n if d != dim % len(sizes) else shape[dim] for d, n in enumerate(sizes)]
            )
        return lambda x: x.gather(dim, index), x
    if op == "index_select_backward":
        index = torch.randint(0, size, (draw(1, 2 * size + 1),), dtype=(torch.int64, torch.int32)[seed % 2])
        return lambda x: x.index_select(dim, index), x
    if op == "embedding_dense_backward":
        rows, width = draw(1, 300), draw(1, 200)
        tokens = torch.randint(0, rows, [draw(1, 20) for _ in range(draw(0, 4))])
        padding = (None, 0, -1, draw(-rows, rows))[seed % 4]
        options = {"padding_idx": padding, "scale_grad_by_freq": seed % 3 == 0}
        return lambda w: torch.nn.functional.embedding(tokens, w, **options), torch.randn(
            rows, width, dtype=torch.float64
        )
    if op == "index_put" or op == "index_backward":
        if op == "index_backward":  # large enough for the whole gradient
            sizes[dim] = size = -(-(1 << 18) // (x.numel() // size))
            x = torch.randn(sizes, dtype=torch.float64)
        shape = [draw(1, 20) for _ in range(draw(0, 3))]
        index = torch.randint(-size, size, shape) if shape else torch.tensor([draw(-size, size)])
        return lambda x: x[(slice(None),) * (dim % len(sizes)) + (index,)], x
    if op == "slice_backward":
        start, step = draw(-size - 2, size), draw(1, 4)
        end = draw(start + 1, start + size + 3)
        part = slice(start, None if end == 0 else end, step)
        if not len(range(size)[part]):
            part = slice(0, None, step)
        return lambda x: x[(slice(None),) * (dim % len(sizes)) + (part,)], x
    assert op == "select_backward"
    at = draw(-size, size)
    return lambda x: x.select(dim, at), x


@pytest.mark.parametrize(
    "op",
    [
        "gather_backward",
        "index_select_backward",
        "embedding_dense_backward",
        "index_put",
        "index_backward",
        "slice_backward",
        "select_backward",
    ],
)
def test_gradients_equal_pytorchs(op: str) -> None:
    for seed in range(SEEDS):
        f, x = served_case(op, seed)
        want = gradient(f, x)
        with gradloom.torch.enabled():
            got = gradient(f, x)
            torch.testing.assert_close(got, want, rtol=1e-13, atol=1e-12)
            low = [at_threads(threads, lambda: gradient(f, x.to(torch.bfloat16))) for threads in (1, 2)]
        assert bits([low[0]]) == bits([low[1]])
        scale = float(want.abs().max()) + 1
        torch.testing.assert_close(
            low[0].double(), gradient(f, x.to(torch.bfloat16).double()), rtol=2**-7, atol=2**-7 * scale
        )
    done = counts(op)
    assert done.served >= (SEEDS if op == "index_put" else 2.5 * SEEDS), done  # slices of all of x have no kernel


def into_case(seed: int) -> tuple[str, Any, tuple[Any, ...]]:
    """A method that adds in place, its tensor and its arguments, of every kind that _override_choice.h serves."""
    draw, sizes, dim = drawn(seed)
    torch.manual_seed(seed)
    kind, dtype = seed % 4, (torch.float32, torch.bfloat16, torch.float64, torch.float16)[seed // 4 % 4]
    rows, width = draw(1, 50), draw(64, 100)
    if kind == 0:  # elements, many of them
        return (
            "scatter_add_",
            torch.randn(rows, width),
            (0, torch.randint(0, rows, (2 * rows, width)), torch.randn(2 * rows + 1, width + 1).to(dtype)),
        )
    if kind == 1:  # an expanded list
        return (
            "scatter_add_",
            torch.randn(rows, 64),
            (0, torch.randint(0, rows, (rows, 1)).expand(rows, 64), torch.randn(rows, 64).to(dtype)),
        )
    if kind == 2:
        return (
            "index_add_",
            torch.randn(rows + 16, width),
            (1, torch.randint(0, width, (2 * width,)), torch.randn(rows + 16, 2 * width).to(dtype)),
        )
    return (
        "index_add_",
        torch.randn(rows, 64),
        (-2, torch.randint(0, rows, (3 * rows,), dtype=torch.int32), torch.randn(3 * rows, 64).to(dtype)),
    )


@pytest.mark.parametrize("layout", ["dense", "transposed", "strided", "functional"])
def test_adding_in_place(layout: str) -> None:
    for seed in range(2 * SEEDS):
        name, x, (dim, index, values) = into_case(seed)
        start = x.to(values.dtype)

        def run(dtype: Any) -> Any:
            y = start.to(dtype).clone()
            if layout == "functional":
                return getattr(y, name[:-1])(dim, index, values.to(dtype))
            if layout == "transposed":
                y = y.t().contiguous().t()
            if layout == "strided":
                y = torch.zeros(y.shape[0], 2 * y.shape[1], dtype=dtype)[:, ::2].copy_(y)
            alias = y
            assert getattr(y, name)(dim, index, values.to(dtype)) is y
            if layout == "strided":
                assert not alias._base[:, 1::2].any()
            return alias.clone()

        want = run(torch.float64)
        with gradloom.torch.enabled():
            got = [at_threads(threads, lambda: run(values.dtype)) for threads in (1, 2)]
        assert bits([got[0]]) == bits([got[1]]) and got[0].is_contiguous() | (layout == "transposed")
        eps = torch.finfo(values.dtype).eps
        torch.testing.assert_close(got[0].double(), want, rtol=2 * eps, atol=8 * eps)
    served = counts("scatter_add").served + counts("index_add").served
    assert served >= 4 * SEEDS * 0.9, gradloom.torch.stats()


def test_index_put_adds_in_place() -> None:
    for shape, index, position in (
        ((50, 20), (7,), 0),
        ((20, 50), (3, 4), 1),
        ((3000,), (40000,), 0),
        ((4, 9, 16), (5,), 1),
    ):
        x = torch.randn(shape, dtype=torch.float64)
        at = torch.randint(-shape[position], shape[position], index)
        values = torch.randn(x[(slice(None),) * position + (at,)].shape, dtype=torch.float64)
        for v in (values, values[..., :1], torch.randn((), dtype=torch.float64)):  # broadcast
            for indices in ([None] * position + [at], [None] * position + [at] + [None] * (x.dim() - position - 1)):
                want = torch.ops.aten.index_put(x, indices, v, True)
                with gradloom.torch.enabled():
                    torch.testing.assert_close(torch.ops.aten.index_put(x, indices, v, True), want)
                    torch.testing.assert_close(torch.ops.aten.index_put_(x.clone(), indices, v, True), want)
    assert counts("index_put").served >= 40


def test_the_gradient_of_indexing_is_the_same_every_time() -> None:
    """PyTorch's own adds large float32 gradients by atomic operations, in any order."""
    index, weights = torch.randint(0, 50, (100000,)), torch.randn(100000, 16)
    x = torch.zeros(50, 16, requires_grad=True)

    def run() -> bytes:
        return bits([torch.autograd.grad(x[index], x, weights)[0]])[0]

    with gradloom.torch.enabled():
        assert len({at_threads(threads, run) for threads in (1, 2) * 5}) == 1


def test_a_large_gradient_has_the_same_bits_with_its_own_kernel() -> None:
    """Which it gets when its sizes come for the eighth time."""
    weight, tokens = torch.randn(5000, 256, requires_grad=True), torch.randint(0, 5000, (700,))
    upstream = torch.randn(700, 256)
    with gradloom.torch.enabled():
        runs = [torch.autograd.grad(F.embedding(tokens, weight), weight, upstream)[0] for _ in range(12)]
        assert counts("embedding_dense_backward").served == 12
    want = torch.zeros(5000, 256, dtype=torch.float64).index_add_(0, tokens, upstream.double())
    torch.testing.assert_close(runs[0].double(), want, rtol=1e-6, atol=1e-6)
    assert all(torch.equal(run, runs[0]) for run in runs)


# What PyTorch says of bad calls, word for word, and what it does with those that it takes.
BAD: dict[str, Callable[[], Any]] = {
    "scatter_add too large": lambda: torch.zeros(3, 64).scatter_add_(0, torch.full((9, 64), 3), torch.ones(9, 64)),
    "scatter_add negative": lambda: torch.zeros(3, 64).scatter_add_(0, torch.full((9, 64), -1), torch.ones(9, 64)),
    "scatter_add dtype": lambda: torch.zeros(3, 64).scatter_add_(
        0, torch.zeros(9, 64, dtype=torch.int16), torch.ones(9, 64)
    ),
    "scatter_add self dtype": lambda: torch.zeros(3, 64).scatter_add_(
        0, torch.zeros(9, 64, dtype=torch.int64), torch.ones(9, 64).double()
    ),
    "scatter_add index larger than src": lambda: torch.zeros(3, 64).scatter_add_(
        0, torch.zeros(9, 64, dtype=torch.int64), torch.ones(8, 64)
    ),
    "scatter_add index wider": lambda: torch.zeros(3, 63).scatter_add_(
        0, torch.zeros(9, 64, dtype=torch.int64), torch.ones(9, 64)
    ),
    "scatter_add dim": lambda: torch.zeros(3, 64).scatter_add_(
        2, torch.zeros(9, 64, dtype=torch.int64), torch.ones(9, 64)
    ),
    "scatter_add rank": lambda: torch.zeros(3, 64).scatter_add_(
        0, torch.zeros(9, dtype=torch.int64), torch.ones(9, 64)
    ),
    "scatter_add into expanded": lambda: (
        torch.zeros(1, 64).expand(3, 64).scatter_add_(0, torch.zeros(9, 64, dtype=torch.int64), torch.ones(9, 64))
    ),
    "scatter_add itself": lambda: (x := torch.ones(64, 64)).scatter_add_(0, torch.zeros(64, 64, dtype=torch.int64), x),
    "index_add too large": lambda: torch.zeros(3, 64).index_add_(0, torch.tensor([3] * 9), torch.ones(9, 64)),
    "index_add negative": lambda: torch.zeros(3, 64).index_add_(0, torch.tensor([-1] * 9), torch.ones(9, 64)),
    "index_add sizes": lambda: torch.zeros(3, 64).index_add_(0, torch.tensor([1] * 9), torch.ones(8, 64)),
    "index_add dtype": lambda: torch.zeros(3, 64).index_add_(0, torch.tensor([1] * 9), torch.ones(9, 64).double()),
    "index_add out": lambda: torch.index_add(torch.zeros(3, 64), 0, torch.tensor([3] * 9), torch.ones(9, 64)),
    "index_put too large": lambda: torch.zeros(3, 64).index_put_((torch.tensor([3]),), torch.ones(64), accumulate=True),
    "index_put too small": lambda: torch.zeros(3, 64).index_put_(
        (torch.tensor([-4]),), torch.ones(64), accumulate=True
    ),
    "index_put values": lambda: torch.zeros(3, 64).index_put_(
        (torch.tensor([1, 2]),), torch.ones(3, 64), accumulate=True
    ),
    "index_put many": lambda: torch.zeros(3).index_put_(
        (torch.tensor([1]), torch.tensor([1])), torch.ones(1), accumulate=True
    ),
    "index_put unsafe": lambda: torch.ops.aten._index_put_impl_(
        torch.zeros(3, 64), [torch.tensor([3])], torch.ones(64), True, True
    ),
    "index too large": lambda: torch.zeros(300, 400, requires_grad=True)[torch.tensor([300])],
    "embedding too large": lambda: F.embedding(torch.tensor([3]), torch.zeros(3, 4, requires_grad=True)),
    "embedding gradient's dtype": lambda: torch.ops.aten.embedding_dense_backward(
        torch.ones(2, 4), torch.ones(2), 3, -1, False
    ),
    "gather too large": lambda: torch.zeros(3, 4, requires_grad=True).gather(0, torch.tensor([[3]])),
    "gather negative": lambda: torch.zeros(3, 4, requires_grad=True).gather(0, torch.tensor([[-1]])),
    "slice's gradient too long": lambda: torch.ops.aten.slice_backward(torch.ones(5), [4], 0, 0, 4, 1),
    "select's gradient out of range": lambda: torch.ops.aten.select_backward(torch.ones(()), [4], 0, 4),
    "memory": lambda: torch.ops.aten.select_backward(torch.ones(()), [1 << 50], 0, 4),
}


@pytest.mark.parametrize("name", BAD)
def test_errors_are_pytorchs(name: str) -> None:
    with pytest.raises(Exception) as want:
        BAD[name]()
    with gradloom.torch.enabled(), pytest.raises(Exception) as got:
        BAD[name]()
    if name == "memory":
        assert "memory" in str(got.value)
    elif name == "index_put unsafe":  # PyTorch's own would write there
        assert got.type is IndexError
    else:
        assert (got.type, str(got.value)) == (want.type, str(want.value))


def test_what_is_not_served_falls_back_and_is_counted() -> None:
    with gradloom.torch.enabled():
        index = torch.randint(0, 5, (5, 64))
        complex_x = torch.randn(5, 64, dtype=torch.complex64, requires_grad=True)
        complex_x.gather(0, index).abs().sum().backward()
        assert counts("gather_backward").fallback == {"dtype": 1}
        x = torch.randn(5, 64, requires_grad=True)
        x.gather(0, index, sparse_grad=True).sum().backward()
        assert x.grad.is_sparse and counts("gather_backward").fallback == {"dtype": 1, "option": 1}
        torch.zeros(5, 64).index_add_(0, torch.arange(5), torch.ones(5, 64), alpha=2)
        assert counts("index_add").fallback == {"option": 1}
        torch.zeros(5, 64, dtype=torch.int64).scatter_add_(0, index, index)
        assert counts("scatter_add").fallback == {"dtype": 2}  # that of the complex gather among them
        torch.zeros(5).index_add_(0, torch.tensor([1]), torch.ones(1))
        assert counts("index_add").fallback == {"option": 1, "slower": 1}
        torch.zeros(3, 4).index_put_((torch.tensor([True, False, True]),), torch.ones(4), accumulate=True)
        assert counts("index_put").fallback == {"dtype": 1}
        empty = torch.zeros(0, 4, requires_grad=True)
        empty.gather(0, torch.zeros(0, 4, dtype=torch.int64)).sum().backward()
        assert counts("gather_backward").fallback == {"dtype": 1, "option": 1, "shape": 1}
        out = torch.empty(5, 64)  # left to PyTorch altogether
        torch.scatter_add(torch.zeros(5, 64), 0, index, torch.ones(5, 64), out=out)
        assert counts("scatter_add").served == 0
    fallback = gradloom.torch.stats(reset=True).ops["gather_backward"].fallback
    assert sum(fallback.values()) == 3 and not counts("gather_backward").fallback


def test_other_tensors_and_modes() -> None:
    index = torch.randint(0, 300, (40, 400))
    x = torch.randn(300, 400, dtype=torch.float64, requires_grad=True)

    def f(x: Any) -> Any:
        return (x.gather(0, index) ** 2).sum() + (x[index[:, 0]] ** 3).sum() + (x[1:5] ** 2).sum()

    want = torch.autograd.grad(f(x), x)[0]
    want_twice = torch.autograd.grad(torch.autograd.grad(f(x), x, create_graph=True)[0].pow(2).sum(), x)[0]
    tangent = torch.randn_like(x)
    want_jvp = torch.func.jvp(torch.func.grad(f), (x.detach(),), (tangent,))[1]
    with gradloom.torch.enabled():
        torch.testing.assert_close(torch.autograd.grad(f(x), x)[0], want)
        twice = torch.autograd.grad(torch.autograd.grad(f(x), x, create_graph=True)[0].pow(2).sum(), x)[0]
        torch.testing.assert_close(twice, want_twice)
        torch.testing.assert_close(torch.func.grad(f)(x.detach()), want)
        torch.testing.assert_close(torch.func.jvp(torch.func.grad(f), (x.detach(),), (tangent,))[1], want_jvp)
        batch = torch.stack([x.detach(), 2 * x.detach()])
        torch.testing.assert_close(torch.func.vmap(torch.func.grad(f))(batch)[0], want)
        with torch.inference_mode():
            assert torch.zeros(9, 64).index_add_(1, torch.arange(64), torch.ones(9, 64)).sum() == 9 * 64
        meta = torch.zeros(3, 64, device="meta").scatter_add_(
            0, torch.zeros(3, 64, dtype=torch.int64, device="meta"), torch.zeros(3, 64, device="meta")
        )
        assert meta.shape == (3, 64)
        from torch._subclasses.fake_tensor import FakeTensorMode

        with FakeTensorMode():
            fake = torch.randn(300, 400, requires_grad=True)
            at = torch.zeros(40, 400, dtype=torch.int64)
            assert torch.autograd.grad(fake.gather(0, at).sum() + fake[at[:, 0]].sum(), fake)[0].shape == (300, 400)
        compiled = torch.compile(f, backend="aot_eager", fullgraph=True, dynamic=True)
        torch.testing.assert_close(torch.autograd.grad(compiled(x), x)[0], want)
        with torch.autocast("cpu", torch.bfloat16):
            torch.testing.assert_close(torch.autograd.grad(f(x), x)[0], want)
        checkpointed = torch.utils.checkpoint.checkpoint(f, x, use_reentrant=False)
        torch.testing.assert_close(torch.autograd.grad(checkpointed, x)[0], want)


def test_hooks_and_accumulation() -> None:
    weight = torch.nn.Parameter(torch.randn(300, 400))
    tokens, seen = torch.randint(0, 300, (20,)), []
    weight.register_hook(lambda grad: seen.append(grad.clone()))
    with gradloom.torch.enabled():
        for _ in range(3):
            (F.embedding(tokens, weight).sum() + weight[tokens].sum()).backward()
    want = torch.zeros_like(weight).index_add_(0, tokens, torch.ones(20, 400)) * 2
    assert torch.equal(weight.grad, 3 * want) and all(torch.equal(grad, want) for grad in seen)
    weight.grad.resize_(700, 400)  # an output is an ordinary tensor


def dispatch_table() -> str:
    names = [name for group in OVERRIDDEN.values() for name in group]
    return "".join(
        torch._C._dispatch_dump(f"aten::{name}") + torch._C._dispatch_dump_table(f"aten::{name}") for name in names
    )


def test_disable_gives_the_dispatcher_its_kernels_back() -> None:
    before = dispatch_table()
    index, values = torch.randint(0, 64, (128,)), torch.ones(64, 128)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gradloom.torch.enable()
    gradloom.torch.enable()  # once more changes nothing
    for key, group in OVERRIDDEN.items():
        for name in group:
            assert f"{key}: registered at" in torch._C._dispatch_dump(f"aten::{name}")
            assert "_override.cpp" in torch._C._dispatch_dump(f"aten::{name}"), name
    torch.zeros(64, 64).index_add_(1, index, values)
    assert counts("index_add").served == 1
    gradloom.torch.disable()
    assert dispatch_table() == before
    torch.zeros(64, 64).index_add_(1, index, values)
    assert counts("index_add") == _override.OpStats(1, {})
    gradloom.torch.disable()


def test_contexts_nest_and_survive_exceptions() -> None:
    def on() -> bool:
        return "_override.cpp" in torch._C._dispatch_dump("aten::scatter_add")

    with gradloom.torch.enabled():
        with pytest.raises(ZeroDivisionError), gradloom.torch.enabled():
            raise ZeroDivisionError
        assert on()
    assert not on()
    gradloom.torch.enable()
    with gradloom.torch.enabled():
        pass
    assert on()
    with gradloom.torch.enabled():
        gradloom.torch.disable()
        assert not on()
    assert not on()
    with pytest.raises(gradloom.InvalidArgument, match="memory is -1"):
        gradloom.torch.enable(memory=-1)
    assert not on()


def test_memory_is_kept_bounded_and_given_back() -> None:
    x = torch.randn(1 << 20, requires_grad=True)

    def kept() -> int:
        return gradloom.torch.stats().memory_kept

    gradloom.torch.enable(memory=6 << 20)
    grads = [torch.autograd.grad(x[1:].sum(), x)[0] for _ in range(4)]
    assert kept() == 0
    addresses = {grad.data_ptr() for grad in grads}
    alive = grads.pop()
    del grads
    assert kept() == 4 << 20  # one more would be beyond 6 MiB
    again = torch.autograd.grad(x[1:].sum(), x)[0]
    assert again.data_ptr() in addresses and kept() == 0
    del again
    gradloom.torch.disable()
    assert kept() == 0 and alive[1:].eq(1).all() and alive[0] == 0
    del alive
    assert kept() == 0


def test_8_threads() -> None:
    weight, tokens = torch.randn(500, 64), torch.randint(0, 500, (8, 300))

    def run(i: int) -> bytes:
        w = weight.clone().requires_grad_()
        return bits([torch.autograd.grad(F.embedding(tokens[i], w).sin().sum() + w[tokens[i]].cos().sum(), w)[0]])[0]

    gradloom.torch.enable()
    want = [run(i) for i in range(8)]
    with ThreadPoolExecutor(8) as pool:
        for round in range(10):
            assert list(pool.map(run, range(8))) == want
    barrier = threading.Barrier(8)

    def toggles(i: int) -> None:
        barrier.wait()
        for _ in range(50):
            with gradloom.torch.enabled():
                pass

    gradloom.torch.disable()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(toggles, range(8)))
    assert "_override.cpp" not in torch._C._dispatch_dump("aten::scatter_add")


def gradient_in_child(queue: Any, weight: Any, tokens: Any) -> None:
    torch.set_num_threads(1)  # as the workers of a DataLoader do
    w = weight.clone().requires_grad_()
    grad = torch.autograd.grad(F.embedding(tokens, w).sum(), w)[0]
    queue.put((bits([grad])[0], counts("embedding_dense_backward").served))


def test_a_child_of_fork() -> None:
    weight, tokens = torch.randn(500, 64), torch.randint(0, 500, (3000,))
    gradloom.torch.enable()
    w = weight.clone().requires_grad_()
    want = bits([torch.autograd.grad(F.embedding(tokens, w).sum(), w)[0]])[0]
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    children = [context.Process(target=gradient_in_child, args=(queue, weight, tokens)) for _ in range(2)]
    for child in children:
        child.start()
    results = [queue.get(timeout=60) for _ in children]
    for child in children:
        child.join(60)
        assert child.exitcode == 0
    assert results == [(want, 2)] * 2
