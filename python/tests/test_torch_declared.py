"""gradloom.torch's relu, gelu, softmax, layer_norm and cross_entropy against PyTorch's own."""

from collections.abc import Callable, Iterator
from typing import Any

import gradloom
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import gradloom.torch as gt  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from torch import Tensor  # noqa: E402
from torch_fixtures import runtime, seeded  # noqa: E402, F401
from torch_op_samples import F64, Op, differentiated, floats, spread  # noqa: E402

SEED = 23
ROUNDING = {
    F64: {"rtol": 1e-11, "atol": 1e-11},
    torch.float32: {"rtol": 2e-5, "atol": 2e-5},
    torch.bfloat16: {"rtol": 2**-5, "atol": 2**-5},  # PyTorch's forward pass is rounded, and what is kept of it
    torch.float16: {"rtol": 2**-8, "atol": 2**-8},
}
Call = tuple[tuple[Any, ...], dict[str, Any]]


def elementwise() -> Iterator[Call]:
    for shape in ((), (7,), (3, 4), (2, 0, 3), (33, 65)):
        yield (floats(*shape),), {}


def gelus() -> Iterator[Call]:
    for approximate in ("none", "tanh"):
        for args, _ in elementwise():
            yield args, {"approximate": approximate}


def softmaxes() -> Iterator[Call]:
    for dim in (-2, -1, 0, 1):
        yield (floats(5, 4), dim), {}
    yield (floats(3, 4, 2), 1), {}
    yield (floats(), -1), {}
    yield (floats(1), 0), {}
    yield (floats(0, 3), 1), {}
    yield (floats(3, 0), 1), {}
    yield (floats(3, 200), 1), {}


def layer_norms() -> Iterator[Call]:
    yield (floats(3, 4), [4], floats(4), floats(4)), {}
    yield (floats(3, 4), [4], floats(4)), {"eps": 0.1}
    yield (floats(3, 4), [4], None, floats(4)), {}
    yield (floats(2, 3, 4), (3, 4)), {}
    yield (floats(2, 3, 4), (3, 4), floats(3, 4), floats(3, 4)), {}
    yield (floats(5), [5], floats(5), floats(5)), {}
    yield (floats(0, 5), [5], floats(5), floats(5)), {}
    yield (floats(2, 3, 70), [70], floats(70), floats(70)), {}


def losses() -> Iterator[Call]:
    for reduction in ("mean", "sum", "none"):
        yield (floats(5, 3), torch.randint(3, (5,))), {"reduction": reduction}
        yield (floats(5, 3), torch.tensor([0, 2, -100, 1, -100]), torch.rand(3, dtype=F64)), {"reduction": reduction}
        yield (floats(2, 3, 4, 2), torch.randint(3, (2, 4, 2))), {"reduction": reduction, "ignore_index": 1}
        yield (floats(3), torch.tensor(2)), {"reduction": reduction}
        yield (floats(0, 3), torch.randint(3, (0,))), {"reduction": reduction}
        yield (floats(6, 40), torch.randint(40, (6,))), {"reduction": reduction, "label_smoothing": 0.1}
        yield (floats(5, 3), torch.tensor([0, 2, 1, 1, 2], dtype=torch.uint8)), {"reduction": reduction}
    yield (floats(4, 3), torch.full((4,), -100)), {"reduction": "sum"}
    yield (floats(4, 3), torch.rand(4, 3, dtype=F64)), {}


OPS: dict[str, tuple[Op, Op, Callable[[], Iterator[Call]]]] = {
    "relu": (gt.relu, torch.relu, elementwise),
    "gelu": (gt.gelu, F.gelu, gelus),
    "softmax": (gt.softmax, torch.softmax, softmaxes),
    "log_softmax": (gt.log_softmax, torch.log_softmax, softmaxes),
    "layer_norm": (gt.layer_norm, F.layer_norm, layer_norms),
    "cross_entropy": (gt.cross_entropy, F.cross_entropy, losses),
}


def copied(args: tuple[Any, ...], dtype: Any = F64, layout: Callable[[Tensor], Tensor] = Tensor.clone) -> list[Any]:
    def copy(value: Any) -> Any:
        if not isinstance(value, Tensor) or not value.is_floating_point():
            return value
        return layout(value.detach().to(dtype)).requires_grad_(value.requires_grad)

    return [copy(value) for value in args]


def with_gradients(op: Op, args: list[Any], options: dict[str, Any], upstream: Tensor | None) -> list[Tensor]:
    result = op(*args, **options)
    upstream = torch.ones_like(result) if upstream is None else upstream.to(result.dtype)
    return [result, *torch.autograd.grad(result, differentiated(args), upstream)]


@pytest.mark.parametrize("layout", [Tensor.clone, spread], ids=["dense", "strided"])
@pytest.mark.parametrize("dtype", ROUNDING, ids=str)
@pytest.mark.parametrize("name", OPS)
def test_equals_pytorch(name: str, dtype: Any, layout: Callable[[Tensor], Tensor]) -> None:
    ours, theirs, samples = OPS[name]
    for args, options in samples():
        exact = copied(copied(args, dtype), F64)  # as rounded to dtype
        shape = theirs(*exact, **options).shape
        upstreams = [torch.randn(shape).to(dtype).double(), None]
        for upstream in upstreams if dtype == F64 else upstreams[:1]:
            want = with_gradients(theirs, exact, options, upstream)
            got = with_gradients(ours, copied(args, dtype, layout), options, upstream)
            for g, w in zip(got, want, strict=True):
                assert g.dtype == dtype
                torch.testing.assert_close(
                    g.double(), w, **ROUNDING[dtype], equal_nan=True, msg=lambda m: f"{args}, {options}: {m}"
                )


@pytest.mark.parametrize("name", OPS)
def test_gradients_of_both_orders(name: str) -> None:
    ours, _, samples = OPS[name]
    checked = 0
    for args, options in samples():
        places = [i for i, a in enumerate(args) if isinstance(a, Tensor) and a.requires_grad]
        if not 0 < sum(args[p].numel() for p in places) < 200:
            continue

        def function(*tensors: Tensor, call: Any = (args, options), places: list[int] = places) -> Tensor:
            full = list(call[0])
            for place, tensor in zip(places, tensors, strict=True):
                full[place] = tensor
            return ours(*full, **call[1])

        inputs = tuple(args[p] for p in places)
        assert torch.autograd.gradcheck(function, inputs, check_forward_ad=True, fast_mode=True)
        assert torch.autograd.gradgradcheck(function, inputs, fast_mode=True)
        checked += 1
    assert checked >= 3


def test_third_gradient() -> None:
    for op in (lambda x: gt.softmax(x, 1), lambda x: gt.gelu(x), lambda x: gt.layer_norm(x, [4])):

        def second(x: Tensor, op: Op = op) -> Tensor:
            (first,) = torch.autograd.grad(op(x).pow(3).sum(), x, create_graph=True)
            return torch.autograd.grad(first.square().sum(), x, create_graph=True)[0]

        assert torch.autograd.gradcheck(second, (floats(3, 4),), fast_mode=True)


@pytest.mark.parametrize("name", OPS)
def test_autocast(name: str) -> None:
    ours, theirs, samples = OPS[name]
    for args, options in samples():
        for dtype in (torch.float32, torch.bfloat16):
            if name == "cross_entropy" and args[1].is_floating_point():
                continue
            mine, plain = copied(args, dtype), copied(args, dtype)
            with torch.autocast("cpu", torch.bfloat16):
                got, want = with_gradients(ours, mine, options, None), with_gradients(theirs, plain, options, None)
            for g, w in zip(got, want, strict=True):
                assert g.dtype == w.dtype
                torch.testing.assert_close(g, w, **ROUNDING[torch.bfloat16], equal_nan=True)


class Program(torch.nn.Module):
    def __init__(self, modules: Any) -> None:
        super().__init__()
        self.norm, self.gelu, self.fast = modules.LayerNorm(6), modules.GELU(), modules.GELU("tanh")
        self.relu, self.softmax, self.logs = modules.ReLU(), modules.Softmax(-1), modules.LogSoftmax(1)
        self.loss = modules.CrossEntropyLoss(ignore_index=2)

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        y = self.relu(self.gelu(self.norm(x))) + self.softmax(x) * self.logs(self.fast(x))
        return self.loss(y, target)


def test_modules_and_compile() -> None:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    plain, mine = Program(torch.nn).double(), Program(gt.nn).double()
    mine.load_state_dict(plain.state_dict())
    compiled = torch.compile(mine, fullgraph=True, dynamic=True)
    for rows in (5, 9, 7):
        x, target = floats(rows, 6), torch.randint(6, (rows,))
        want = torch.autograd.grad(plain(x, target), [x, *plain.parameters()])
        for program in (mine, compiled):
            got = torch.autograd.grad(program(x, target), [x, *mine.parameters()])
            for g, w in zip(got, want, strict=True):
                torch.testing.assert_close(g, w)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1


OPCHECKS: dict[str, Callable[[], tuple[Any, ...]]] = {
    "relu": lambda: (floats(4, 5),),
    "relu_backward": lambda: (floats(4, 5), floats(4, 5)),
    "gelu": lambda: (floats(4, 5), "tanh"),
    "gelu_backward": lambda: (floats(4, 5), floats(4, 5), "none"),
    "softmax": lambda: (floats(4, 5), 1),
    "softmax_backward": lambda: (floats(4, 5), floats(4, 5), 0),
    "log_softmax": lambda: (floats(4, 5), 1),
    "log_softmax_backward": lambda: (floats(4, 5), floats(4, 5), 0),
    "layer_norm": lambda: (floats(4, 5), floats(5), floats(5), [5], 1e-5),
    "layer_norm_backward": lambda: (
        floats(4, 5),
        floats(4, 5),
        floats(5),
        torch.zeros(4, 1, dtype=F64),
        torch.ones(4, 1, dtype=F64),
        1,
        1e-5,
        [True, False, True],
    ),
    "cross_entropy": lambda: (floats(4, 5), torch.randint(5, (4,)), None, "mean", -100),
    "cross_entropy_backward": lambda: (floats(), floats(4, 5), torch.randint(5, (4,)), None, "mean", -100),
}


@pytest.mark.parametrize("name", OPCHECKS)
def test_opcheck(name: str) -> None:
    results = torch.library.opcheck(getattr(torch.ops.gradloom, name).default, OPCHECKS[name]())
    assert set(results.values()) == {"SUCCESS"}, results


@pytest.mark.filterwarnings("ignore:.*batching rule")
@pytest.mark.parametrize("name", ["relu", "gelu", "softmax", "log_softmax", "layer_norm", "cross_entropy"])
def test_transforms(name: str) -> None:
    target, weight = torch.randint(4, (3,)), floats(4).detach()
    ours, theirs, _ = OPS[name]
    rest = {"softmax": (1,), "log_softmax": (1,), "layer_norm": ([4], weight), "cross_entropy": (target,)}.get(name, ())
    x = floats(3, 4).detach()
    batch = torch.stack([x, -x])
    transforms: list[Callable[[Op], Any]] = [
        lambda f: torch.func.grad(lambda a: f(a).pow(3).sum())(x),
        lambda f: torch.func.vmap(torch.func.grad(lambda a: f(a).pow(3).sum()))(batch),
        lambda f: torch.func.vmap(f)(batch),
        lambda f: torch.func.jacrev(f)(x),
        lambda f: torch.func.jacfwd(f)(x),
        lambda f: torch.func.hessian(lambda a: f(a).pow(3).sum())(x),
        lambda f: torch.func.jacrev(torch.func.jacrev(lambda a: f(a).pow(3).sum()))(x),
    ]
    for transform in transforms:
        got, want = transform(lambda a: ours(a, *rest)), transform(lambda a: theirs(a, *rest))
        torch.testing.assert_close(got, want)


def test_the_same_bits_with_any_threads() -> None:
    x = torch.randn(300, 700).requires_grad_()
    weight, target = torch.rand(700).requires_grad_(), torch.randint(700, (300,))

    def loss() -> Tensor:
        return gt.cross_entropy(gt.layer_norm(gt.gelu(x), [700], weight) + gt.softmax(x, 1), target)

    results = []
    for threads in (1, 2, 1, 2):
        torch.set_num_threads(threads)
        results.append(torch.autograd.grad(loss(), (x, weight)))
    assert all(torch.equal(a, b) for again in results[1:] for a, b in zip(again, results[0], strict=True))


def test_second_gradient_where_all_is_ignored() -> None:
    x = floats(3, 4)
    (first,) = torch.autograd.grad(gt.cross_entropy(x, torch.full((3,), -100)), x, create_graph=True)
    assert not first.any()
    assert not torch.autograd.grad(first.sum(), x)[0].any()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_second_gradients_of_16_bits_are_computed_in_32(dtype: Any) -> None:
    x, weight = (1000 * torch.randn(4, 16)).to(dtype), torch.randn(16).to(dtype)
    upstream, along = torch.randn(4, 16).to(dtype), torch.randn(4, 16).to(dtype)

    def second(kind: Any) -> list[Tensor]:
        leaves = [t.to(kind).requires_grad_() for t in (x, weight, upstream)]
        y = gt.layer_norm(leaves[0], [16], leaves[1])
        (first,) = torch.autograd.grad(y, leaves[0], leaves[2], create_graph=True)
        return list(torch.autograd.grad(first, leaves, along.to(kind)))

    for got, want in zip(second(dtype), second(F64), strict=True):
        largest = want.abs().max().item()
        torch.testing.assert_close(got.double(), want, rtol=0, atol=2**-6 * largest + 2**-24)


def test_what_pytorch_refuses_is_refused_while_recording() -> None:
    x, target = floats(3, 4), torch.tensor([0, 1, 2])
    with pytest.raises(RuntimeError, match="not differentiable with respect to argument 'weight'"):
        gt.cross_entropy(x, target, torch.ones(4, dtype=F64, requires_grad=True))
    half = x.detach().to(torch.bfloat16).requires_grad_()
    for weight, bias in ((torch.float16, None), (torch.bfloat16, torch.float32), (F64, F64)):
        parameters = [None if kind is None else torch.ones(4, dtype=kind) for kind in (weight, bias)]
        for op in (F.layer_norm, gt.layer_norm):
            with pytest.raises(RuntimeError):
                op(half, [4], *parameters)
    ragged = torch.nested.nested_tensor([torch.randn(2, 3), torch.randn(4, 3)], requires_grad=True)
    with pytest.raises(gradloom.Unsupported, match="input is a nested tensor; expected a dense one"):
        gt.relu(ragged)


def test_bad_arguments_are_pytorchs_errors() -> None:
    x = floats(3, 4)
    for wrong in (
        lambda: gt.softmax(x, 2),
        lambda: gt.layer_norm(x, [3]),
        lambda: gt.gelu(x, approximate="cubic"),
        lambda: gt.cross_entropy(x, torch.tensor([0, 4, 1])),
        lambda: gt.cross_entropy(x, torch.tensor([0, 1])),
        lambda: gt.cross_entropy(x, torch.tensor([0, 1, 2]), reduction="most"),
    ):
        with pytest.raises((RuntimeError, IndexError, ValueError)):
            wrong()
