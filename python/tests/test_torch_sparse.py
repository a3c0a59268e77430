"""Embedding bags, sparse gradients and indexing by several tensors: gradloom.torch and `enable()` against PyTorch."""

from collections.abc import Iterator
from typing import Any

import gradloom
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import gradloom.torch as gt  # noqa: E402
from torch import Tensor  # noqa: E402
from torch_fixtures import runtime, seeded  # noqa: E402, F401
from torch_samples import at_threads, bits  # noqa: E402

F = torch.nn.functional
F64 = torch.float64
SEED = 12


@pytest.fixture(autouse=True)
def alone() -> Iterator[None]:
    gt.disable()
    gt.stats(reset=True)
    yield
    gt.disable()


def bags(rows: int = 9, count: int = 14, dtype: Any = torch.int64) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Arguments of embedding_bag but for the table."""
    indices = torch.randint(0, rows, (count,), dtype=dtype)
    offsets = torch.tensor([0, 4, 4, 9], dtype=dtype)
    for mode in ("sum", "mean", "max"):
        for padding in (None, 2, -1):
            yield indices, {"offsets": offsets, "mode": mode, "padding_idx": padding}
        yield indices.view(2, -1), {"mode": mode}
        last = torch.tensor([0, 3, count], dtype=dtype)
        yield indices, {"offsets": last, "mode": mode, "include_last_offset": True}
        if mode != "max":
            yield indices, {"offsets": offsets, "mode": mode, "scale_grad_by_freq": True, "padding_idx": 1}
        yield indices[:0], {"offsets": offsets[:1], "mode": mode}
    weights = torch.randn(count, dtype=F64, requires_grad=True)
    for padding in (None, 2):
        yield indices, {"offsets": offsets, "mode": "sum", "per_sample_weights": weights, "padding_idx": padding}


def gradients(function: Any, indices: Tensor, table: Tensor, options: dict[str, Any]) -> list[Tensor]:
    out = function(indices, table, **options)
    wanted = [table, *(v for v in options.values() if isinstance(v, Tensor) and v.requires_grad)]
    upstream = torch.arange(out.numel(), dtype=F64).remainder(7).sub(3).view(out.shape).to(out.dtype)
    return [out, *torch.autograd.grad(out, wanted, upstream)]


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
def test_embedding_bag_equals_pytorchs(dtype: Any) -> None:
    for indices, options in bags(dtype=dtype):
        table = torch.randn(9, 5, dtype=F64, requires_grad=True)
        want = gradients(F.embedding_bag, indices, table, options)
        torch.testing.assert_close(gradients(gt.embedding_bag, indices, table, options), want, rtol=1e-13, atol=1e-13)


def test_embedding_bag_has_gradients_of_both_orders() -> None:
    for indices, options in bags(count=12):
        if not indices.numel() or options["mode"] == "max":
            continue
        weights = options.pop("per_sample_weights", None)

        def call(table: Tensor, *weights: Tensor) -> Any:
            extra = {"per_sample_weights": weights[0]} if weights else {}
            return gt.embedding_bag(indices, table, **options, **extra)  # noqa: B023

        inputs = (torch.randn(9, 3, dtype=F64, requires_grad=True), *([] if weights is None else [weights]))
        if not options.get("scale_grad_by_freq"):  # whose gradient is no derivative
            assert torch.autograd.gradcheck(call, inputs)
        assert options.get("scale_grad_by_freq") or torch.autograd.gradgradcheck(call, inputs)
    table = torch.randn(9, 3, dtype=F64, requires_grad=True)
    at, offsets = torch.randint(0, 9, (11,)), torch.tensor([0, 4, 4])
    assert torch.autograd.gradgradcheck(lambda t: gt.embedding_bag(at, t, offsets, mode="max", padding_idx=1), (table,))


def test_embedding_bag_the_module() -> None:
    plain, mine = (kind(20, 6, mode="max", padding_idx=3) for kind in (torch.nn.EmbeddingBag, gt.nn.EmbeddingBag))
    mine.load_state_dict(plain.state_dict())
    tokens = torch.randint(0, 20, (5, 4))
    for module in (plain, mine):
        module(tokens).square().sum().backward()
    torch.testing.assert_close(mine.weight.grad, plain.weight.grad)
    compiled = torch.compile(mine, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(tokens), plain(tokens))


def test_embedding_bags_of_no_index() -> None:
    table = torch.randn(4, 3, requires_grad=True)
    bags_of_none = gt.embedding_bag(torch.zeros(2, 0, dtype=torch.long), table, mode="sum")
    assert torch.equal(bags_of_none, torch.zeros(2, 3))
    assert torch.equal(torch.autograd.grad(bags_of_none.sum(), table)[0], torch.zeros(4, 3))


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("offsets", [[0, 2, 4], [0, 2, 6], [0]])
def test_indices_beyond_the_last_offset_are_in_no_bag(offsets: list[int], mode: str) -> None:
    """PyTorch's own gradient of these reads memory that is not its own."""
    indices, table = torch.tensor([0, 1, 2, 3, 4, 0]), torch.randn(5, 3, dtype=F64, requires_grad=True)
    got = gt.embedding_bag(indices, table, torch.tensor(offsets), mode=mode, include_last_offset=True)
    fold = {"sum": lambda rows: rows.sum(0), "mean": lambda rows: rows.mean(0), "max": lambda rows: rows.amax(0)}[mode]
    parts = [fold(table[indices[a:b]]) for a, b in zip(offsets, offsets[1:], strict=False)]
    want = torch.stack(parts) if parts else table[:0]
    assert torch.equal(got, want)
    upstream = torch.randn_like(got)
    (mine,), (plain,) = (torch.autograd.grad(y, table, upstream, retain_graph=True) for y in (got, want))
    torch.testing.assert_close(mine, plain)


def test_no_bags() -> None:
    table = torch.randn(5, 3, requires_grad=True)
    got = gt.embedding_bag(torch.tensor([0, 1]), table, torch.tensor([], dtype=torch.long), mode="sum")
    assert got.shape == (0, 3)
    assert torch.equal(torch.autograd.grad(got.sum(), table)[0], torch.zeros(5, 3))


def test_embedding_bag_in_16_bits_rounds_once() -> None:
    table = torch.randn(9, 40).bfloat16().requires_grad_()
    indices, upstream = torch.randint(0, 9, (300,)), torch.randn(30, 40).bfloat16()
    out = gt.embedding_bag(indices.view(30, 10), table, mode="sum")
    got = torch.autograd.grad(out, table, upstream)[0]
    want = torch.zeros(9, 40, dtype=F64).index_add_(0, indices, upstream.double().repeat_interleave(10, 0))
    torch.testing.assert_close(got.double(), want, rtol=2**-8, atol=1e-5)


def test_bad_bags_are_refused() -> None:
    table = torch.randn(4, 3, requires_grad=True)
    with pytest.raises(gradloom.InvalidArgument, match="mode is 'least'"):
        gt.embedding_bag(torch.tensor([0]), table, torch.tensor([0]), mode="least")
    with pytest.raises(gradloom.InvalidArgument, match="offsets must be None"):
        gt.embedding_bag(torch.tensor([[0]]), table, torch.tensor([0]))
    with pytest.raises(gradloom.InvalidArgument, match=r"padding_idx is 4; it must be in \[-4, 3\]"):
        gt.embedding_bag(torch.tensor([[0]]), table, padding_idx=4)
    with pytest.raises(gradloom.InvalidArgument, match=r"offsets\)\[2\] is 1; it must be in \[2, 3\]"):
        ones = torch.ones(3, 3)
        gradloom.embedding_bag_grad([4, 3], torch.tensor([0, 1, 2]), torch.tensor([0, 2, 1]), ones, mode="sum")


@pytest.mark.parametrize("padding", [None, 0, -2])
def test_sparse_gradients_of_an_embedding(padding: int | None) -> None:
    for dtype in (F64, torch.bfloat16):
        weight = torch.randn(50, 6, dtype=dtype, requires_grad=True)
        tokens = torch.randint(0, 50, (3, 8))
        upstream = torch.randn(3, 8, 6, dtype=dtype)
        got = torch.autograd.grad(gt.embedding(tokens, weight, padding, sparse=True), weight, upstream)[0]
        dense = torch.autograd.grad(gt.embedding(tokens, weight, padding), weight, upstream)[0]
        assert got.is_sparse and got.is_coalesced()
        assert bits([got.to_dense()]) == bits([dense])
        want = torch.autograd.grad(F.embedding(tokens, weight, padding, sparse=True), weight, upstream)[0].coalesce()
        assert torch.equal(got.indices(), want.indices())
    module = gt.nn.Embedding(50, 6, sparse=True)
    module(tokens).sum().backward()
    torch.optim.SparseAdam(module.parameters()).step()
    with pytest.raises(gradloom.Unsupported, match="scale_grad_by_freq with sparse=True"):
        gt.embedding(tokens, weight, scale_grad_by_freq=True, sparse=True)


def test_sparse_gradients_of_sparse_gradients() -> None:
    weight, tokens = torch.randn(5, 3, dtype=F64, requires_grad=True), torch.tensor([0, 2, 2, 4, 0])
    second = []
    for op in (gt.embedding, F.embedding):
        (first,) = torch.autograd.grad(op(tokens, weight, sparse=True).pow(3).sum(), weight, create_graph=True)
        second.append(torch.autograd.grad(first.to_dense().square().sum(), weight)[0].to_dense())
    torch.testing.assert_close(*second)


def test_sparse_gradients_in_transforms_are_pytorchs() -> None:
    weight, tokens = torch.randn(50, 6), torch.randint(0, 50, (3, 8))
    got = torch.func.grad(lambda w: gt.embedding(tokens, w, sparse=True).sum())(weight)
    assert torch.equal(got.to_dense(), torch.bincount(tokens.reshape(-1), minlength=50)[:, None].expand(50, 6).float())
    rows = torch.func.vmap(lambda i: gt.embedding(i, weight, sparse=True))(tokens)
    assert torch.equal(rows, F.embedding(tokens, weight))
    meta = gt.embedding(tokens.to("meta"), weight.to("meta").requires_grad_(), sparse=True)
    assert meta.shape == (3, 8, 6)


# Indices of several dims: x's sizes, of 256 KiB in any dtype, the first dim, the indices' shapes.
SEVERAL = [
    ((40, 50, 80), 0, [(300,), (300,)]),
    ((40, 50, 80), 1, [(30, 1), (1, 7)]),
    ((300, 500), 0, [(5, 60), (60,)]),
    ((20, 30, 20, 12), 1, [(100,), (1,)]),
    ((60, 40, 60), 0, [(40,), (40,), (40,)]),
]


@pytest.mark.parametrize("case", SEVERAL, ids=str)
def test_several_indices_equal_pytorchs(case: Any) -> None:
    sizes, dim, shapes = case
    indices = [torch.randint(-sizes[dim + i], sizes[dim + i], shape) for i, shape in enumerate(shapes)]
    at = (slice(None),) * dim + tuple(indices)
    listed = [None] * dim + indices
    for dtype in (F64, torch.bfloat16):
        x = torch.randn(sizes, dtype=dtype, requires_grad=True)
        upstream = torch.randn(x[at].shape, dtype=dtype)
        values = torch.randn(x[at].shape, dtype=dtype)

        def run() -> list[Tensor]:
            into = x.detach().clone()
            torch.ops.aten.index_put_(into, listed, values, True)  # noqa: B023
            return [torch.autograd.grad(x[at], x, upstream)[0], into]  # noqa: B023

        want = [torch.zeros(sizes, dtype=F64), x.detach().double().clone()]
        for out, source in zip(want, (upstream, values), strict=True):
            torch.ops.aten.index_put_(out, listed, source.double(), True)
        with gt.enabled():
            results = [at_threads(threads, run) for threads in (1, 2)]
        assert bits(results[0]) == bits(results[1])
        tight = {"rtol": 1e-13, "atol": 1e-12} if dtype == F64 else {"rtol": 2**-7, "atol": 2**-4}
        torch.testing.assert_close([t.double() for t in results[0]], want, **tight)
    ops = gt.stats().ops
    assert ops["index_backward"].served == 4, ops["index_backward"]
    assert ops["index_put"].served + ops["index_put"].fallback.get("slower", 0) == 4, ops["index_put"]


def test_several_indices_that_are_not_served() -> None:
    x = torch.randn(40, 50, 60, requires_grad=True)
    i, j = torch.randint(0, 40, (70,)), torch.randint(0, 40, (70,))
    with gt.enabled():
        got = torch.autograd.grad(x[i, :, j].sum(), x)[0]
        torch.ops.aten.index_put_(torch.zeros(40, 5, 40), [i, None, j], torch.ones(70, 5), True)
        assert gt.stats().ops["index_put"].fallback == {"option": 2}  # dims apart; the gradient is one of these
        assert gt.stats().ops["index_backward"].served == 0
        with pytest.raises(IndexError, match="is out of bounds for dimension 1 with size 50"):
            x[i, j + 50]
        with pytest.raises(IndexError):
            torch.ops.aten.index_put_(torch.zeros(40, 64, 64), [i, j + 64], torch.ones(70, 64), True)
        create = torch.autograd.grad(x[i, j].square().sum(), x, create_graph=True)[0]
        assert gt.stats().ops["index_backward"].fallback == {"graph": 1}
    assert torch.equal(got, torch.autograd.grad(x[i, :, j].sum(), x)[0])
    assert create.requires_grad


def test_bags_of_unchanged_models() -> None:
    for indices, options in bags(rows=300, count=900):
        table = torch.randn(300, 40, dtype=F64, requires_grad=True)
        want = gradients(F.embedding_bag, indices, table, options)
        with gt.enabled():
            run = lambda: gradients(F.embedding_bag, indices, table, options)  # noqa: B023, E731
            got = [at_threads(threads, run) for threads in (1, 2)]
        torch.testing.assert_close(got[0], want, rtol=1e-12, atol=1e-12)
        assert bits(got[0]) == bits(got[1])
    done = gt.stats().ops["_embedding_bag_dense_backward"]
    assert done.served == 2 * 19 and done.fallback == {"shape": 6}, done
    one = torch.tensor([0])
    for mode in (-1, 3, 10**6):  # as PyTorch refuses them, not beyond the library's table
        with gt.enabled(), pytest.raises(RuntimeError, match="mode"):
            torch.ops.aten._embedding_bag_dense_backward(
                torch.ones(1, 3), one, one, one + 1, torch.zeros(1, 3, dtype=torch.long), 5, False, mode, None, -1
            )
