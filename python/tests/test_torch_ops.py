"""gradloom.torch's ops against PyTorch's own: values, gradients of both orders, transforms, compilers, refusals."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import gradloom
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import gradloom.torch as gt  # noqa: E402
from torch import Tensor  # noqa: E402
from torch_fixtures import runtime, seeded  # noqa: E402, F401

F64 = torch.float64
SEED = 11
ROUNDING = {
    F64: {"rtol": 1e-11, "atol": 1e-11},
    torch.float32: {"rtol": 1e-5, "atol": 1e-5},
    torch.bfloat16: {"rtol": 2**-7, "atol": 2**-6},  # a gradient of two ops is rounded twice
    torch.float16: {"rtol": 2**-10, "atol": 2**-9},
}
Op = Callable[..., Tensor]
Arguments = tuple[Any, ...]


def floats(*shape: int, dtype: Any = F64) -> Tensor:
    return torch.randn(shape, dtype=F64).to(dtype).requires_grad_()


def ints(high: int, *shape: int, low: int = 0, dtype: Any = torch.int64) -> Tensor:
    return torch.randint(low, high, shape, dtype=dtype)


def gathers(dtype: Any) -> Iterator[Arguments]:
    for dim in (-2, -1, 0, 1):
        yield floats(5, 4, dtype=dtype), dim, ints(4, 3, 2)
    yield floats(5, 4, dtype=dtype), 0, ints(5, 9, 4)  # longer than the dim
    yield floats(3, 4, 2, dtype=dtype), 1, ints(4, 3, 6, 1)
    yield floats(dtype=dtype), 0, ints(1)
    yield floats(dtype=dtype), -1, ints(1, 3)
    yield floats(4, dtype=dtype), 0, ints(4)
    yield floats(4, 3, dtype=dtype), 1, ints(1, 0, 3)
    yield floats(4, 3, dtype=dtype), 0, ints(1, 0)
    yield floats(0, 3, dtype=dtype), 0, ints(1, 0, 2)
    yield floats(64, 32, dtype=dtype), 0, ints(2, 200, 32)


def takes(dtype: Any) -> Iterator[Arguments]:
    yield floats(5, 4, dtype=dtype), ints(5, 3, 4, low=-5), 0
    yield floats(5, 4, dtype=dtype), ints(4, 5, 2), -1
    yield floats(5, 1, 3, dtype=dtype), ints(5, 2, 4, 1, low=-5), 0
    yield floats(1, 4, dtype=dtype), ints(4, 6, 2), 1
    yield floats(5, 4, dtype=dtype), ints(20, 3, 2)
    yield floats(dtype=dtype), ints(1)
    yield floats(5, 4, dtype=dtype), ints(1, 0, 4), 0


def index_selects(dtype: Any) -> Iterator[Arguments]:
    for dim in (-1, 0, 1):
        yield floats(5, 4, 3, dtype=dtype), dim, ints(3, 7)
    yield floats(5, 4, dtype=dtype), 0, ints(5, 6, dtype=torch.int32)
    yield floats(5, 4, dtype=dtype), 0, ints(5)
    yield floats(5, 4, dtype=dtype), 1, ints(1, 0)
    yield floats(5, 0, dtype=dtype), 0, ints(5, 3)
    yield floats(dtype=dtype), 0, ints(1, 1)
    yield floats(dtype=dtype), -1, ints(1)
    yield floats(30, 64, dtype=dtype), 0, ints(2, 300)


def index_adds(dtype: Any) -> Iterator[Arguments]:
    for dim in (-1, 0, 1):
        source = [5, 4, 3]
        source[dim] = 7
        yield floats(5, 4, 3, dtype=dtype), dim, ints(3, 7), floats(*source, dtype=dtype)
    yield floats(5, 4, dtype=dtype), 0, ints(5, 6, dtype=torch.int32), floats(6, 4, dtype=dtype)
    yield floats(5, dtype=dtype), 0, ints(5, 1), floats(1, dtype=dtype)
    yield floats(dtype=dtype), 0, ints(1, 1), floats(dtype=dtype)
    yield floats(dtype=dtype), 0, ints(1), floats(dtype=dtype)
    yield floats(5, 4, dtype=dtype), 0, ints(1, 0), floats(0, 4, dtype=dtype)
    yield floats(40, 8, dtype=dtype), 0, ints(40, 100), floats(100, 8, dtype=dtype)


def scatter_adds(dtype: Any) -> Iterator[Arguments]:
    for dim in (-1, 0):
        yield floats(5, 4, dtype=dtype), dim, ints(4, 3, 2), floats(3, 2, dtype=dtype)
    yield floats(5, 4, dtype=dtype), 0, ints(5, 9, 3), floats(9, 3, dtype=dtype)
    yield floats(dtype=dtype), 0, ints(1), floats(dtype=dtype)
    yield floats(dtype=dtype), 0, ints(1, 3), floats(3, dtype=dtype)
    yield floats(4, dtype=dtype), 0, ints(4), floats(dtype=dtype)
    yield floats(5, 4, dtype=dtype), 0, ints(1, 0, 4), floats(0, 4, dtype=dtype)
    yield floats(50, 40, dtype=dtype), 1, ints(40, 50, 60), floats(50, 60, dtype=dtype)


def embeddings(dtype: Any) -> Iterator[Arguments]:
    for padding in (None, 0, 2, -1, -5):
        for scale in (False, True):
            yield ints(5, 2, 7), floats(5, 3, dtype=dtype), padding, None, 2.0, scale
    yield ints(5), floats(5, 3, dtype=dtype)
    yield ints(5, 4, dtype=torch.int32), floats(5, 3, dtype=dtype), 1, None, 2.0, True
    yield ints(5, 0, 2), floats(5, 3, dtype=dtype), 1, None, 2.0, True
    yield ints(5, 2, 3, 2), floats(5, 0, dtype=dtype)
    yield ints(1, 0), floats(0, 3, dtype=dtype)
    yield ints(9, 3), floats(9, 2, dtype=dtype), None, 0.5  # max_norm
    yield ints(3, 400), floats(90, 64, dtype=dtype), 1


def slices(dtype: Any) -> Iterator[Arguments]:
    for where in ((), (0, 1), (0, 1, 3), (0, -3, -1), (0, None, 2), (0, 1, 5, 2), (0, 3, 1), (0, -99, 99)):
        yield floats(5, 4, dtype=dtype), *where
    yield floats(5, 4, dtype=dtype), -1, 1, 2**63 - 1
    yield floats(5, 0, dtype=dtype), 0, 1, 3
    yield floats(0, dtype=dtype), 0, 1, 3


def narrows(dtype: Any) -> Iterator[Arguments]:
    for where in ((0, 1, 3), (-1, 0, 4), (1, -2, 2), (0, 5, 0), (0, torch.tensor(2), 2)):
        yield floats(5, 4, dtype=dtype), *where
    yield floats(0, 4, dtype=dtype), 0, 0, 0


def selects(dtype: Any) -> Iterator[Arguments]:
    for where in ((0, 0), (0, -1), (-1, 2), (1, -4)):
        yield floats(5, 4, dtype=dtype), *where
    yield floats(5, dtype=dtype), 0, 3
    yield floats(5, 0, dtype=dtype), 0, 3


def expands(dtype: Any) -> Iterator[Arguments]:
    yield floats(1, 4, dtype=dtype), 5, 4
    yield floats(1, 4, dtype=dtype), (2, 5, -1)
    yield floats(dtype=dtype), 3, 2
    yield floats(dtype=dtype), ()
    yield floats(3, 1, dtype=dtype), [3, 0]
    yield floats(2, 1, 3, dtype=dtype), torch.Size([4, 2, 60, 3])


def sums(dtype: Any) -> Iterator[Arguments]:
    yield floats(5, 4, dtype=dtype), 5, 4
    yield floats(5, 4, dtype=dtype), (1, 4)
    yield floats(2, 5, 4, dtype=dtype), [5, 1]
    yield floats(3, 2, dtype=dtype), ()
    yield floats(dtype=dtype), ()
    yield floats(3, 0, dtype=dtype), (3, 1)


def embedding_of(input: Tensor, weight: Tensor, *options: Any) -> Tensor:
    return torch.nn.functional.embedding(input, weight, *options)


def slice_of(input: Tensor, *where: Any) -> Tensor:
    return torch.ops.aten.slice.Tensor(input, *where)


def take_of(input: Tensor, *where: Any) -> Tensor:
    return torch.take_along_dim(input, *where)


OPS: dict[str, tuple[Op, Op, Callable[[Any], Iterator[Arguments]]]] = {
    "gather": (gt.gather, torch.gather, gathers),
    "take_along_dim": (gt.take_along_dim, take_of, takes),
    "index_select": (gt.index_select, torch.index_select, index_selects),
    "index_add": (gt.index_add, torch.index_add, index_adds),
    "scatter_add": (gt.scatter_add, torch.scatter_add, scatter_adds),
    "embedding": (gt.embedding, embedding_of, embeddings),
    "slice": (gt.slice, slice_of, slices),
    "narrow": (gt.narrow, torch.narrow, narrows),
    "select": (gt.select, torch.select, selects),
    "expand": (gt.expand, Tensor.expand, expands),
    "sum_to_size": (gt.sum_to_size, Tensor.sum_to_size, sums),
}


def differentiated(args: Arguments) -> list[Tensor]:
    return [a for a in args if isinstance(a, Tensor) and a.requires_grad]


def with_gradients(op: Op, args: Arguments, upstream: Tensor | None = None) -> list[Tensor]:
    result = op(*args)
    upstream = torch.randn_like(result) if upstream is None else upstream
    torch.manual_seed(5)
    return [result, *torch.autograd.grad(result, differentiated(args), upstream)]


def copied(args: Arguments, dtype: Any = None) -> Arguments:
    def copy(value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        same = value.detach().clone()
        return same.to(dtype or same.dtype).requires_grad_() if value.requires_grad else same

    return tuple(map(copy, args))


def spread(tensor: Tensor) -> Tensor:
    """The same values with gaps between them, in a reversed order of dims."""
    if not tensor.dim():
        return tensor
    memory = torch.zeros([2 * size + 1 for size in reversed(tensor.shape)], dtype=tensor.dtype)
    view = memory[tuple(slice(1, None, 2) for _ in tensor.shape)].permute(*reversed(range(tensor.dim())))
    return view.copy_(tensor)


@pytest.mark.parametrize("dtype", ROUNDING, ids=str)
@pytest.mark.parametrize("name", OPS)
def test_equals_pytorch(name: str, dtype: Any) -> None:
    ours, theirs, samples = OPS[name]
    every = list(samples(dtype))
    assert len(every) >= 5
    for args in every if dtype == F64 else every[::-3]:
        exact = copied(args, F64)  # PyTorch rounds after each addition
        upstream = torch.randn(theirs(*copied(exact)).shape).to(dtype)
        wanted = with_gradients(theirs, exact, upstream.double())
        got = with_gradients(ours, copied(args), upstream)
        for g, w in zip(got, wanted, strict=True):
            assert g.dtype == dtype
            torch.testing.assert_close(g.double(), w, **ROUNDING[dtype], equal_nan=True, msg=lambda m: f"{args}: {m}")


@pytest.mark.parametrize("alpha", [2, -0.5, 0])
def test_index_adds_alpha(alpha: float) -> None:
    args = floats(5, 4), 1, ints(4, 7), floats(5, 7)
    upstream = torch.randn(5, 4, dtype=F64)
    got = with_gradients(lambda *args: gt.index_add(*args, alpha=alpha), args, upstream)
    want = with_gradients(lambda *args: torch.index_add(*args, alpha=alpha), args, upstream)
    for g, w in zip(got, want, strict=True):
        torch.testing.assert_close(g, w, **ROUNDING[F64])


@pytest.mark.parametrize("name", OPS)
def test_takes_any_strides(name: str) -> None:
    ours, theirs, samples = OPS[name]
    for args in samples(F64):
        if name == "embedding" and len(args) == 4:  # max_norm, which writes into the weights
            continue
        apart = tuple(
            spread(a.detach()).requires_grad_(a.requires_grad) if isinstance(a, Tensor) else a for a in args
        )
        dense = theirs(*args)
        upstream = spread(torch.randn(dense.shape, dtype=F64))
        for got, want in zip(
            with_gradients(ours, apart, upstream), with_gradients(theirs, args, upstream), strict=True
        ):
            torch.testing.assert_close(got, want, **ROUNDING[F64])
        # What sum().backward() gives: strides of 0.
        once = torch.ones((), dtype=F64).expand(dense.shape)
        for got, want in zip(with_gradients(ours, apart, once), with_gradients(theirs, args, once), strict=True):
            torch.testing.assert_close(got, want, **ROUNDING[F64])


@pytest.mark.parametrize("name", OPS)
def test_gradients_of_both_orders(name: str) -> None:
    ours, _, samples = OPS[name]
    checked = 0
    for args in samples(F64):
        if name == "embedding" and len(args) > 2:
            continue  # with padding_idx and scaled by frequency it is no derivative, and max_norm writes
        if sum(t.numel() for t in differentiated(args)) > 150:
            continue
        places = [i for i, a in enumerate(args) if isinstance(a, Tensor) and a.requires_grad]

        def function(*tensors: Tensor, args: Arguments = args, places: list[int] = places) -> Tensor:
            full = list(args)
            for place, tensor in zip(places, tensors, strict=True):
                full[place] = tensor
            return ours(*full)

        inputs = tuple(args[p] for p in places)
        assert torch.autograd.gradcheck(function, inputs, check_forward_ad=True, fast_mode=True)
        assert torch.autograd.gradgradcheck(function, inputs, fast_mode=True)
        checked += 1
    assert checked >= 3


def test_an_embeddings_second_gradient_with_frequencies() -> None:
    """By its own definition: the first gradient is linear in the upstream gradient."""
    weight, tokens = floats(5, 3), torch.tensor([0, 2, 2, 4, 2, 1])
    upstream = floats(6, 3)

    def gradient(upstream: Tensor) -> Tensor:
        result = gt.embedding(tokens, weight, 1, None, 2.0, True)
        return torch.autograd.grad(result, weight, upstream, create_graph=True)[0]

    share = torch.tensor([1, 1 / 3, 1 / 3, 1, 1 / 3, 0], dtype=F64).unsqueeze(1)
    want = torch.zeros(5, 3, dtype=F64).index_add(0, tokens, upstream.detach() * share)
    torch.testing.assert_close(gradient(upstream), want)
    assert torch.autograd.gradcheck(gradient, (upstream,))
    assert torch.autograd.gradgradcheck(gradient, (upstream,))


OPCHECKS: dict[str, Callable[[], tuple[Any, ...]]] = {
    "gather": lambda: (floats(4, 5), -2, ints(4, 3, 5)),
    "gather_backward": lambda: (floats(3, 5), [4, 5], 0, ints(4, 3, 5)),
    "take_along_dim": lambda: (floats(4, 5), ints(4, 3, 5, low=-4), 0),
    "index_select": lambda: (floats(4, 5), 0, ints(4, 6)),
    "index_select_backward": lambda: (floats(6, 5), [4, 5], 0, ints(4, 6)),
    "index_add": lambda: (floats(4, 5), 0, ints(4, 6), floats(6, 5)),
    "scatter_add": lambda: (floats(4, 5), 0, ints(4, 3, 5), floats(3, 5)),
    "embedding": lambda: (floats(4, 5), ints(4, 3, 2), 1, True),
    "embedding_backward": lambda: (floats(3, 2, 5), ints(4, 3, 2), 4, 1, True),
    "embedding_bag": lambda: (floats(4, 5), ints(4, 7), torch.tensor([0, 3, 3]), floats(7), 0, 1, False, False),
    "embedding_bag_backward": lambda: (
        floats(3, 5), ints(4, 7), torch.tensor([0, 3, 3]), None, ints(4, 3, 5), 4, 2, 1, False, False
    ),
    "slice": lambda: (floats(4, 5), 1, 1, 4, 2),
    "slice_backward": lambda: (floats(4, 2), [4, 5], 1, 1, 4, 2),
    "narrow": lambda: (floats(4, 5), 1, 1, 3),
    "select": lambda: (floats(4, 5), -1, -2),
    "expand": lambda: (floats(4, 1), [2, 4, 5]),
    "expand_backward": lambda: (floats(2, 4, 5), [4, 1]),
    "sum_to_size": lambda: (floats(4, 5), [1, 5]),
}


@pytest.mark.parametrize("name", OPCHECKS)
def test_opcheck(name: str) -> None:
    op = getattr(torch.ops.gradloom, name).default
    results = torch.library.opcheck(op, OPCHECKS[name]())
    assert set(results.values()) == {"SUCCESS"}, results
    if name == "index_add":
        torch.library.opcheck(op, OPCHECKS[name](), {"alpha": 0.5})


def test_all_ops_are_checked() -> None:
    names = {n.split("::")[1].partition(".")[0] for n in torch._C._dispatch_get_all_op_names() if "gradloom::" in n}
    assert {n for n in names if not n.startswith("gru")} >= OPCHECKS.keys()
    mine = {n for n in names if not n.startswith(("gru", "_"))}
    assert mine - OPCHECKS.keys() == set()


@pytest.mark.parametrize("name", ["gather", "index_select", "index_add", "scatter_add", "embedding", "sum_to_size"])
def test_the_same_bits_with_any_threads(name: str) -> None:
    ours = OPS[name][0]
    args: Arguments = {
        "gather": lambda: (floats(40, 3000, dtype=torch.float32), 0, ints(40, 200, 3000)),
        "index_select": lambda: (floats(50, 600, dtype=torch.float32), 0, ints(50, 2000)),
        "index_add": lambda: (
            floats(50, 600, dtype=torch.float32), 0, ints(50, 2000), floats(2000, 600, dtype=torch.float32)
        ),
        "scatter_add": lambda: (
            floats(50, 600, dtype=torch.float32), 0, ints(50, 900, 600), floats(900, 600, dtype=torch.float32)
        ),
        "embedding": lambda: (ints(50, 2000), floats(50, 600, dtype=torch.float32), 3),
        "sum_to_size": lambda: (floats(700, 900, dtype=torch.float32), (1, 900)),
    }[name]()  # fmt: skip
    upstream = torch.randn(ours(*args).shape)
    results = []
    for threads in (1, 2, 1, 2):
        torch.set_num_threads(threads)
        assert gt.runtime().threads == threads
        results.append(with_gradients(ours, args, upstream))
    for again in results[1:]:
        for a, b in zip(results[0], again, strict=True):
            assert torch.equal(a.view(torch.int32), b.view(torch.int32))


def test_threads_follow_pytorchs() -> None:
    torch.set_num_threads(3)
    runtime = gt.runtime()
    assert runtime.threads == 3 and gt.runtime() is runtime
    launches = runtime.stats()["launches"]
    gt.gather(floats(4, 3), 0, ints(4, 2, 3)).sum().backward()
    assert runtime.stats()["launches"] == launches + 1
    before = gradloom.default_runtime()
    shared = gradloom.Runtime(threads=2, disk_cache="off")
    gradloom.set_default_runtime(shared)
    try:
        torch.set_num_threads(2)
        assert gt.runtime() is shared
    finally:
        gradloom.set_default_runtime(before)


def everything(
    layer: torch.nn.Module, table: Tensor, index: Tensor, places: Tensor, source: Tensor, weight: Tensor
) -> tuple[Tensor, Tensor]:
    looked_up = gt.embedding(index, weight, 0, None, 2.0, True)
    rows = gt.index_select(looked_up, 0, index)
    added = gt.index_add(rows, 0, index, looked_up, alpha=2)
    gathered = gt.gather(table, 0, places) + gt.take_along_dim(table, places - 1, 0)
    scattered = gt.scatter_add(table, 0, places, source)
    cut = gt.slice(scattered, 1, 0, None, 2) + gt.narrow(scattered, 1, 0, 2) * gt.select(scattered, 0, -1)[:1]
    wide = gt.expand(gt.sum_to_size(cut, 1, cut.shape[1]), cut.shape[0], cut.shape[1])
    states, _ = layer(looked_up.unsqueeze(1))
    return (added.sin() * looked_up).sum() + (gathered * source).sum(), (wide * cut).sum() + states.sum()


def program_inputs(rows: int) -> Arguments:
    index = ints(rows, rows)
    return floats(rows, 4), index, ints(rows, rows, 4), floats(rows, 4), floats(rows, 3)


def test_compiled() -> None:
    """The whole program by inductor, for any number of rows."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    layer = gt.nn.GRU(3, 4, dtype=F64)
    compiled = torch.compile(everything, fullgraph=True, dynamic=True)
    for rows in (5, 9, 7):
        args = program_inputs(rows)
        leaves = [*differentiated(args), *layer.parameters()]
        want = torch.autograd.grad(sum(everything(layer, *args)), leaves)
        got = torch.autograd.grad(sum(compiled(layer, *args)), leaves)
        for g, w in zip(got, want, strict=True):
            torch.testing.assert_close(g, w)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1


def test_traced() -> None:
    from torch.fx.experimental.proxy_tensor import make_fx

    def gradient(x: Tensor, index: Tensor) -> Tensor:
        x = x.requires_grad_()
        return torch.autograd.grad(gt.gather(x, 0, index).square().sum(), x)[0]

    x, index = floats(4, 5), ints(4, 3, 5)
    traced = make_fx(gradient, tracing_mode="symbolic")(x.detach(), index)
    assert "aten.gather" in traced.code and "gradloom.gather_backward" in traced.code
    torch.testing.assert_close(traced(x.detach(), index), gradient(x, index))


def test_exported() -> None:
    class Program(torch.nn.Module):
        def forward(self, table: Tensor, places: Tensor, source: Tensor) -> Tensor:
            return gt.gather(gt.scatter_add(table, 0, places, source), 0, places)

    args = floats(5, 4).detach(), ints(5, 5, 4), floats(5, 4).detach()
    exported = torch.export.export(Program(), args)
    torch.testing.assert_close(exported.module()(*args), Program()(*args))
    assert "gradloom.scatter_add" in exported.graph_module.code


@pytest.mark.parametrize("name", OPS)
def test_autocast_changes_what_it_changes_in_pytorch(name: str) -> None:
    ours, theirs, samples = OPS[name]
    for args in samples(torch.float32):
        with torch.autocast("cpu", torch.bfloat16):
            got, want = ours(*copied(args)), theirs(*copied(args))
        assert got.dtype == want.dtype
        torch.testing.assert_close(got, want, **ROUNDING[torch.float32])


def test_autocast_between_matrix_products() -> None:
    weight, projection, tokens = floats(9, 4, dtype=torch.float32), floats(4, 4, dtype=torch.float32), ints(9, 6)

    def loss(lookup: Op, select: Op) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return (select(lookup(tokens, weight) @ projection, 0, tokens.clamp(max=5)) @ projection).sum()

    got = torch.autograd.grad(loss(gt.embedding, gt.index_select), (weight, projection))
    want = torch.autograd.grad(loss(embedding_of, torch.index_select), (weight, projection))
    for g, w in zip(got, want, strict=True):
        torch.testing.assert_close(g, w, rtol=0.05, atol=0.1)


TRANSFORMS: dict[str, Callable[[Op, Tensor], Any]] = {
    "grad": lambda f, x: torch.func.grad(lambda a: f(a).pow(3).sum())(x),
    "vmap": lambda f, x: torch.func.vmap(f)(torch.stack([x, 2 * x])),
    "vmap of grad": lambda f, x: torch.func.vmap(torch.func.grad(lambda a: f(a).pow(3).sum()))(torch.stack([x, -x])),
    "grad of vmap": lambda f, x: torch.func.grad(lambda a: torch.func.vmap(f)(a).pow(3).sum())(torch.stack([x, -x])),
    "jacrev": lambda f, x: torch.func.jacrev(f)(x),
    "jacfwd": lambda f, x: torch.func.jacfwd(f)(x),
    "jvp": lambda f, x: torch.func.jvp(f, (x,), (x.cos(),)),
    "jvp of grad": lambda f, x: torch.func.jvp(torch.func.grad(lambda a: f(a).pow(3).sum()), (x,), (x.cos(),)),
    "hessian": lambda f, x: torch.func.hessian(lambda a: f(a).pow(3).sum())(x),
    "jacrev of jacrev": lambda f, x: torch.func.jacrev(torch.func.jacrev(lambda a: f(a).pow(3).sum()))(x),
}


@pytest.mark.filterwarnings("ignore:.*batching rule")
@pytest.mark.parametrize("transform", TRANSFORMS)
def test_transforms(transform: str) -> None:
    tokens, places, rows, source = ints(4, 3, 2), ints(4, 3, 5), ints(4, 6), floats(6, 5).detach()
    functions: dict[str, tuple[Op, Op]] = {
        "gather": (lambda a: gt.gather(a, 0, places), lambda a: torch.gather(a, 0, places)),
        "take": (lambda a: gt.take_along_dim(a, places - 2, 0), lambda a: torch.take_along_dim(a, places - 2, 0)),
        "index_select": (lambda a: gt.index_select(a, 0, rows), lambda a: torch.index_select(a, 0, rows)),
        "index_add": (lambda a: gt.index_add(a, 0, rows, source), lambda a: torch.index_add(a, 0, rows, source)),
        "added": (
            lambda a: gt.index_add(source, 0, places[0, :4], a),
            lambda a: torch.index_add(source, 0, places[0, :4], a),
        ),
        "scatter_add": (
            lambda a: gt.scatter_add(a, 0, places, source),
            lambda a: torch.scatter_add(a, 0, places, source),
        ),
        "embedding": (lambda a: gt.embedding(tokens, a, 2), lambda a: embedding_of(tokens, a, 2)),
        "slice": (lambda a: gt.slice(a, 1, 1, 5, 2), lambda a: a[:, 1:5:2]),
        "narrow": (lambda a: gt.narrow(a, 1, 1, 3), lambda a: torch.narrow(a, 1, 1, 3)),
        "select": (lambda a: gt.select(a, 1, -1), lambda a: torch.select(a, 1, -1)),
        "expand": (lambda a: gt.expand(a, 2, 4, 5), lambda a: a.expand(2, 4, 5)),
        "sum_to_size": (lambda a: gt.sum_to_size(a, 1, 5), lambda a: a.sum_to_size(1, 5)),
    }
    x = floats(4, 5).detach()
    for name, (ours, theirs) in functions.items():
        got, want = TRANSFORMS[transform](ours, x), TRANSFORMS[transform](theirs, x)
        torch.testing.assert_close(got, want, msg=lambda m, name=name: f"{name}: {m}")


@pytest.mark.filterwarnings("ignore:.*batching rule")
def test_a_transform_over_the_index_too() -> None:
    x, index = floats(2, 5, 4).detach(), ints(5, 2, 3)

    def per_sample(lookup: Op) -> Any:
        return torch.func.vmap(torch.func.grad(lambda x, index: lookup(x, index).pow(2).sum()))(x, index)

    got = per_sample(lambda x, index: gt.embedding(index, x, 1))
    torch.testing.assert_close(got, per_sample(lambda x, index: embedding_of(index, x, 1)))
    got = per_sample(lambda x, index: gt.index_select(x, 0, index))
    torch.testing.assert_close(got, per_sample(lambda x, index: torch.index_select(x, 0, index)))


def test_compiled_transforms() -> None:
    torch._dynamo.reset()
    x, index = floats(4, 5).detach(), ints(4, 3)

    def gradient(x: Tensor) -> Tensor:
        result: Tensor = torch.func.grad(lambda a: gt.index_select(a, 0, index).pow(2).sum())(x)
        return result

    def mapped(x: Tensor) -> Tensor:
        result: Tensor = torch.func.vmap(lambda a: gt.index_select(a, 0, index))(torch.stack([x, 2 * x]))
        return result

    for function, fullgraph in ((gradient, False), (mapped, True)):
        compiled = torch.compile(function, backend="aot_eager", fullgraph=fullgraph)
        torch.testing.assert_close(compiled(x), function(x))
    torch._dynamo.reset()
    with pytest.raises(Exception, match=r"torch\.ops\.gradloom\.index_select in a transform of torch\.func"):
        torch.compile(gradient, backend="aot_eager", fullgraph=True)(x)


def test_an_op_mapped_is_pytorchs() -> None:
    """In reverse mode beneath vmap, too."""
    x, index = floats(2, 4, 5).detach(), ints(4, 3)

    def gradient(select: Op) -> Any:
        def loss(x: Tensor) -> Tensor:
            return torch.func.vmap(lambda a: select(a, 0, index))(x).pow(3).sum()

        return torch.func.grad(loss)(x)

    torch.testing.assert_close(gradient(torch.ops.gradloom.index_select), gradient(torch.index_select))


def test_forward_mode_without_a_transform() -> None:
    forward_ad = torch.autograd.forward_ad
    x, tangent, index = floats(4, 5).detach(), floats(4, 5).detach(), ints(4, 3)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, tangent)
        for function in (
            lambda a: gt.index_select(a, 0, index),
            lambda a: gt.index_add(x * 0, 0, index, a[:3]),
            lambda a: gt.sum_to_size(a, 1, 5),
            lambda a: torch.ops.gradloom.expand_backward(a, [4, 1]),
        ):
            torch.testing.assert_close(forward_ad.unpack_dual(function(dual)).tangent, function(tangent))


def test_an_op_inside_a_transform_is_refused_by_name() -> None:
    places = ints(4, 3, 5)
    with pytest.raises(gradloom.Unsupported, match=r"torch\.ops\.gradloom\.gather in a transform of torch\.func"):
        torch.func.grad(lambda a: torch.ops.gradloom.gather(a, 0, places).sum())(floats(4, 5).detach())


def test_what_is_not_served_is_refused_by_name() -> None:
    weight, x = floats(5, 3), floats(4, 5)
    with pytest.raises(gradloom.Unsupported, match="embedding_bag: sparse is True"):
        gt.embedding_bag(ints(5, 2, 2), weight, sparse=True)
    with pytest.raises(gradloom.Unsupported, match="gather: sparse_grad is True"):
        gt.gather(x, 0, ints(4, 2, 5), sparse_grad=True)
    with pytest.raises(gradloom.Unsupported, match="slice: input requires a gradient and has dtype complex128"):
        gt.slice(x.detach().to(torch.complex128).requires_grad_(), 0, 1)
    rows, one = torch.tensor([1]), torch.ones(1, 5, dtype=F64)
    with pytest.raises(gradloom.Unsupported, match=r"gradloom\.index_add\.default: got a tensor of layout sparse_coo"):
        gt.index_add(x.detach().to_sparse(), 0, rows, one)
    with pytest.raises(gradloom.Unsupported, match="gather: input has layout sparse_coo; expected strided"):
        gt.gather(x.detach().to_sparse().requires_grad_(), 0, ints(4, 2, 5))
    with pytest.raises(gradloom.InvalidArgument, match=r"padding_idx is 5; it must be in \[-5, 4\]"):
        gt.embedding(ints(5, 2), weight, 5)


def test_bad_indices_are_refused() -> None:
    x, source = floats(4, 5), floats(2, 5)
    for bad in (torch.tensor([0, 4]), torch.tensor([-1, 0])):
        for call in (
            lambda bad: gt.index_select(x, 0, bad),
            lambda bad: gt.gather(x, 0, bad.unsqueeze(1)),
            lambda bad: gt.embedding(bad, x),
            lambda bad: gt.index_add(x, 0, bad, source),
            lambda bad: gt.scatter_add(x, 0, bad.unsqueeze(1), source),
        ):
            with pytest.raises((IndexError, RuntimeError)):
                call(bad)
    with pytest.raises(gradloom.OutOfRange, match=r"index_add: index\[1\] is -1; it must be in \[0, 3\]"):
        gt.index_add(x, 0, torch.tensor([0, -1]), source)
    for bad in (torch.tensor([[4]]), torch.tensor([[-5]])):
        with pytest.raises((IndexError, RuntimeError)):
            gt.take_along_dim(x, bad, 0)
    with pytest.raises(gradloom.InvalidArgument, match="source has dtype torch.float32"):
        gt.index_add(x, 0, torch.tensor([0, 1]), source.float())
    with pytest.raises(gradloom.InvalidArgument, match="src has dtype torch.float32"):
        gt.scatter_add(x, 0, torch.tensor([[0], [1]]), source.float())


def test_bad_shapes_are_refused_as_in_pytorch() -> None:
    x = floats(4, 5)
    calls: list[tuple[Op, Op, Arguments]] = [
        (gt.index_add, torch.index_add, (x, 0, ints(4, 3), floats(2, 5))),
        (gt.index_add, torch.index_add, (x, 0, ints(4, 3), floats(3, 4))),
        (gt.index_add, torch.index_add, (x, 2, ints(4, 3), floats(3, 5))),
        (gt.index_add, torch.index_add, (x, 0, ints(4, 3, 1), floats(3, 5))),
        (gt.scatter_add, torch.scatter_add, (x, 0, ints(4, 3, 6), floats(3, 6))),
        (gt.scatter_add, torch.scatter_add, (x, 0, ints(4, 3), floats(3))),
        (gt.scatter_add, torch.scatter_add, (x, 0, ints(4, 3, 5), floats(2, 5))),
        (gt.scatter_add, torch.scatter_add, (x, -3, ints(4, 3, 5), floats(3, 5))),
        (gt.scatter_add, torch.scatter_add, (x, 0, ints(4, 3, 5).int().short(), floats(3, 5))),
        (gt.gather, torch.gather, (x, 0, ints(4, 3))),
        (gt.index_select, torch.index_select, (x, 0, ints(4, 3, 1))),
        (gt.take_along_dim, take_of, (x, ints(4, 3), 0)),
        (gt.sum_to_size, Tensor.sum_to_size, (x, (2, 5))),
        (gt.sum_to_size, Tensor.sum_to_size, (x, (1, 4, 5))),
        (gt.expand, Tensor.expand, (x, (4, 6))),
        (gt.narrow, torch.narrow, (x, 0, 3, 2)),
        (gt.select, torch.select, (x, 0, 4)),
        (gt.slice, slice_of, (x, 2)),
        (gt.slice, slice_of, (x, 0, 0, 2, 0)),
    ]
    for ours, theirs, args in calls:
        with pytest.raises((RuntimeError, IndexError, ValueError)):
            theirs(*args)
        with pytest.raises((RuntimeError, IndexError, ValueError)):
            ours(*args)


def test_dtypes_without_a_gradient_are_pytorchs() -> None:
    numbers, rows = torch.arange(20).view(4, 5), torch.tensor([1, 1, 3])
    for ours, theirs, args in (
        (gt.gather, torch.gather, (numbers, 0, ints(4, 3, 5))),
        (gt.index_select, torch.index_select, (numbers, 0, rows)),
        (gt.index_add, torch.index_add, (numbers, 0, rows, numbers[:3])),
        (gt.scatter_add, torch.scatter_add, (numbers, 0, ints(4, 3, 5), numbers[:3])),
        (gt.sum_to_size, Tensor.sum_to_size, (numbers, (1, 5))),
        (gt.slice, slice_of, (numbers, 0, 1)),
    ):
        assert torch.equal(ours(*args), theirs(*args))


def test_views_are_views() -> None:
    x = floats(4, 5)
    for view in (gt.slice(x, 0, 1), gt.narrow(x, 0, 1, 2), gt.select(x, 0, 1), gt.expand(x, 2, 4, 5)):
        assert view.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()


def test_a_negated_view_is_read_with_its_sign() -> None:
    """Its sign is a flag of the tensor, which DLPack does not carry."""
    imaginary = torch.randn(3, 4, dtype=torch.complex128).conj().imag
    assert imaginary.is_neg()
    x, index = floats(5, 4), ints(5, 3)
    (got,) = torch.autograd.grad(gt.index_select(x, 0, index), x, imaginary)
    (want,) = torch.autograd.grad(torch.index_select(x, 0, index), x, imaginary)
    torch.testing.assert_close(got, want)
    torch.testing.assert_close(gt.index_add(x, 0, index, imaginary), torch.index_add(x, 0, index, imaginary))


def test_only_what_needs_a_gradient_gets_one() -> None:
    x, source, index = floats(4, 5), floats(3, 5).detach(), ints(4, 3)
    gt.index_add(x, 0, index, source).sum().backward()
    assert source.grad is None and torch.equal(x.grad, torch.ones(4, 5, dtype=F64))
    with torch.no_grad():
        assert not gt.gather(x, 0, ints(4, 3, 5)).requires_grad
    with torch.inference_mode():
        assert gt.index_add(x, 0, index, source).is_inference()


def test_the_index_is_watched_for_changes() -> None:
    x, index = floats(4, 5), ints(4, 3)
    result = gt.index_select(x, 0, index)
    index.add_(0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        result.sum().backward()


def test_hooks_checkpoints_and_accumulation() -> None:
    from torch.utils.checkpoint import checkpoint

    weight, tokens = floats(7, 3), ints(7, 20)
    layer = gt.nn.Embedding(7, 3, dtype=F64)
    layer.weight.data.copy_(weight.detach())
    for _ in range(2):
        checkpoint(layer, tokens, use_reentrant=False).square().sum().backward()
        embedding_of(tokens, weight).square().sum().backward()
    torch.testing.assert_close(layer.weight.grad, weight.grad)


def test_embedding_the_module() -> None:
    options: dict[str, Any] = {"padding_idx": -1, "scale_grad_by_freq": True, "dtype": F64}
    theirs, ours = torch.nn.Embedding(6, 3, **options), gt.nn.Embedding(6, 3, **options)
    assert isinstance(ours, torch.nn.Embedding) and repr(ours) == repr(theirs)
    ours.load_state_dict(theirs.state_dict())
    theirs.load_state_dict(ours.state_dict())
    tokens = ints(6, 4, 5)
    for layer in (theirs, ours):
        layer(tokens).sin().sum().backward()
    torch.testing.assert_close(ours.weight.grad, theirs.weight.grad)
    assert not ours.weight.grad[5].any()
    pretrained = gt.nn.Embedding.from_pretrained(theirs.weight.detach(), freeze=False)
    assert type(pretrained) is gt.nn.Embedding and pretrained(tokens).requires_grad


def test_one_step_of_training_is_the_same_in_every_run() -> None:
    def run(threads: int) -> list[Tensor]:
        torch.set_num_threads(threads)
        torch.manual_seed(3)
        model = torch.nn.Sequential(gt.nn.Embedding(50, 64), torch.nn.Flatten(0, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            model(ints(50, 40, 30)).square().mean().backward()
            optimizer.step()
        return [p.detach().clone() for p in model.parameters()]

    assert all(torch.equal(a, b) for a, b in zip(run(1), run(2), strict=True))


def python(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)


def test_gradloom_alone_imports_no_torch() -> None:
    done = python("import gradloom, sys; assert not any(m.partition('.')[0] == 'torch' for m in sys.modules)")
    assert done.returncode == 0, done.stderr


def test_without_torch_the_import_says_so_in_one_line() -> None:
    done = python("import sys; sys.modules['torch'] = None; import gradloom.torch")
    assert done.returncode != 0
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: gradloom.torch needs PyTorch: pip install torch")
    assert "During handling" not in done.stderr
