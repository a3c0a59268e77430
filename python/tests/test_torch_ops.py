"""gradloom.torch's indexing ops against PyTorch's own: values, gradients of both orders, refusals."""

import subprocess
import sys
from typing import Any

import gradloom
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import gradloom.torch as gt  # noqa: E402
from torch import Tensor  # noqa: E402
from torch_fixtures import runtime, seeded  # noqa: E402, F401
from torch_op_samples import F64, OPS, ROUNDING, Arguments, Op, copied, differentiated, floats, ints  # noqa: E402
from torch_op_samples import embedding_of, slice_of, spread, take_of, with_gradients  # noqa: E402

SEED = 11


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
        apart = tuple(spread(a.detach()).requires_grad_(a.requires_grad) if isinstance(a, Tensor) else a for a in args)
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
