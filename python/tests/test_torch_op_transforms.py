"""gradloom.torch's indexing ops in compilers, autocast and transforms of torch.func."""

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import gradloom  # noqa: E402
import gradloom.torch as gt  # noqa: E402
import test_torch_declared  # noqa: E402
from torch import Tensor  # noqa: E402
from torch_fixtures import runtime, seeded  # noqa: E402, F401
from torch_op_samples import F64, OPS, ROUNDING, Arguments, Op, copied, differentiated, floats, ints  # noqa: E402
from torch_op_samples import embedding_of  # noqa: E402

SEED = 11


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
        floats(3, 5),
        ints(4, 7),
        torch.tensor([0, 3, 3]),
        None,
        ints(4, 3, 5),
        4,
        2,
        1,
        False,
        False,
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
    checked = OPCHECKS.keys() | test_torch_declared.OPCHECKS.keys()
    assert {n for n in names if not n.startswith(("gru", "_"))} == checked


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
