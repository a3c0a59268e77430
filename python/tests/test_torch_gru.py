"""gradloom.torch.nn.GRU against torch.nn.GRU, with all its options."""

import copy
import itertools
import pickle
from typing import Any

import gradloom
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import gradloom.torch as gt  # noqa: E402
from torch import Tensor  # noqa: E402
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pack_sequence, pad_packed_sequence  # noqa: E402
from torch_fixtures import runtime, seeded  # noqa: E402, F401

F64 = torch.float64
SEED = 7
INPUT, HIDDEN = 3, 4


def pair(dtype: Any = F64, **options: Any) -> tuple[Any, Any]:
    """PyTorch's and ours, with the same parameters."""
    theirs = torch.nn.GRU(INPUT, HIDDEN, dtype=dtype, **options)
    ours = gt.nn.GRU(INPUT, HIDDEN, dtype=dtype, **options)
    ours.load_state_dict(theirs.state_dict())
    return theirs, ours


def gradients(layer: Any, sequences: Any, hx: Tensor | None, enforce_sorted: bool = True) -> list[Tensor]:
    """Outputs, then all gradients, with dropout and upstream gradients from the same seeds."""
    layer.zero_grad()
    packs = isinstance(sequences, list)
    leaves = [s.clone().requires_grad_() for s in (sequences if packs else [sequences])]
    state = None if hx is None else hx.clone().requires_grad_()
    torch.manual_seed(1)
    output, final = layer(pack_sequence(leaves, enforce_sorted) if packs else leaves[0], state)
    values = output.data if packs else output
    torch.manual_seed(2)
    upstream = [torch.randn(t.shape, dtype=F64).to(t.dtype) for t in (values, final)]
    torch.autograd.backward((values, final), upstream)
    inputs = leaves if state is None else [*leaves, state]
    if packs:
        assert isinstance(output, PackedSequence)
        padded, lengths = pad_packed_sequence(output)
        assert lengths.tolist() == [len(s) for s in sequences]
        values = padded
    return [values, final, *(t.grad for t in inputs), *(p.grad for p in layer.parameters())]


STACKS = [
    {"num_layers": layers, "bidirectional": both, "bias": bias, "batch_first": bias == (layers == 1)}
    for layers, both, bias in itertools.product((1, 3), (False, True), (True, False))
]


def named(options: dict[str, Any]) -> str:
    return "-".join(f"{key}={value}" for key, value in options.items())


@pytest.mark.parametrize("options", STACKS, ids=named)
def test_equals_pytorch(options: dict[str, Any]) -> None:
    theirs, ours = pair(**options)
    states = options["num_layers"] * (2 if options["bidirectional"] else 1)
    batched = torch.randn(2, 5, INPUT, dtype=F64) if options["batch_first"] else torch.randn(5, 2, INPUT, dtype=F64)
    falling = [torch.randn(n, INPUT, dtype=F64) for n in (5, 3, 3, 1)]
    unsorted = [torch.randn(n, INPUT, dtype=F64) for n in (2, 5, 1, 4)]

    def state(*batch: int) -> Tensor:
        return torch.randn(states, *batch, HIDDEN, dtype=F64)

    for sequences, hx, enforce_sorted in (
        (batched, None, True),
        (batched, state(2), True),
        (torch.randn(5, INPUT, dtype=F64), None, True),
        (torch.randn(5, INPUT, dtype=F64), state(), True),
        (falling, None, True),
        (falling, state(4), False),
        (unsorted, None, False),
        (unsorted, state(4), False),
    ):
        got = gradients(ours, sequences, hx, enforce_sorted)
        want = gradients(theirs, sequences, hx, enforce_sorted)
        for g, w in zip(got, want, strict=True):
            torch.testing.assert_close(g, w, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("both", [False, True])
def test_dropout_between_layers(both: bool) -> None:
    theirs, ours = pair(num_layers=3, dropout=0.4, bidirectional=both)
    x = torch.randn(5, 2, INPUT, dtype=F64)
    for training in (True, False):
        theirs.train(training), ours.train(training)
        for g, w in zip(gradients(ours, x, None), gradients(theirs, x, None), strict=True):
            torch.testing.assert_close(g, w, rtol=1e-10, atol=1e-12)
    # On packed sequences another stream of the same distribution: what is dropped is dropped with its gradient.
    ours.train()
    leaf = torch.randn(6, INPUT, dtype=F64, requires_grad=True)

    def run(x: Tensor) -> Tensor:
        torch.manual_seed(4)
        output, _ = ours(PackedSequence(x, torch.tensor([3, 2, 1])))
        return output.data

    assert torch.autograd.gradcheck(run, (leaf,))
    torch.manual_seed(5)
    different, _ = ours(PackedSequence(leaf, torch.tensor([3, 2, 1])))
    assert not torch.equal(run(leaf), different.data)


ROUNDING = {
    torch.float32: {"rtol": 1e-4, "atol": 1e-5},
    torch.bfloat16: {"rtol": 0.1, "atol": 0.15},
    torch.float16: {"rtol": 0.02, "atol": 0.02},
}


@pytest.mark.parametrize("dtype", ROUNDING, ids=str)
def test_dtypes(dtype: Any) -> None:
    theirs, ours = pair(dtype, num_layers=2, bidirectional=True)
    exact, _ = pair(num_layers=2, bidirectional=True)
    exact.load_state_dict(theirs.state_dict())
    x, hx = torch.randn(5, 2, INPUT).to(dtype), torch.randn(4, 2, HIDDEN).to(dtype)
    wanted = gradients(exact, x.double(), hx.double())
    for g, w in zip(gradients(ours, x, hx), wanted, strict=True):
        assert g.dtype == dtype
        torch.testing.assert_close(g.double(), w, **ROUNDING[dtype])


def test_autocast() -> None:
    theirs, ours = pair(torch.float32, num_layers=2)
    x, hx = torch.randn(5, 2, INPUT), torch.randn(2, 2, HIDDEN)
    for given in ((x, None), (x, hx), (x.bfloat16(), None), (x.bfloat16(), hx)):
        with torch.autocast("cpu", torch.bfloat16):
            got, want = ours(*given), theirs(*given)
        for g, w in zip(got, want, strict=True):
            assert g.dtype == w.dtype
            torch.testing.assert_close(g, w, rtol=0.05, atol=0.05)
        (got[0].sum() + got[1].sum()).backward()
        assert all(p.grad.dtype == torch.float32 for p in ours.parameters())
    with pytest.raises(ValueError, match="does not match weight dtype"):
        ours(x.bfloat16())


def test_strided_inputs() -> None:
    theirs, ours = pair(num_layers=2, bidirectional=True)
    x = torch.randn(2, 10, 2 * INPUT, dtype=F64)[:, ::2, 1::2].transpose(0, 1)
    hx = torch.randn(HIDDEN, 2, 4, dtype=F64).permute(2, 1, 0)
    assert not x.is_contiguous() and not hx.is_contiguous()
    for g, w in zip(gradients(ours, x, hx), gradients(theirs, x, hx), strict=True):
        torch.testing.assert_close(g, w, rtol=1e-10, atol=1e-12)
    ours.zero_grad(), theirs.zero_grad()
    for layer in (ours, theirs):  # an upstream gradient of strides 0, and one output left unused
        layer(x, hx)[0].sum().backward()
    for ourp, theirp in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(ourp.grad, theirp.grad)
    ours.zero_grad(), theirs.zero_grad()
    for layer in (ours, theirs):
        layer(x, hx)[1].sum().backward()
    for ourp, theirp in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(ourp.grad, theirp.grad)


def test_empty_batches() -> None:
    _, ours = pair(bidirectional=True)
    x = torch.randn(5, 0, INPUT, dtype=F64, requires_grad=True)
    output, final = ours(x)
    assert output.shape == (5, 0, 2 * HIDDEN) and final.shape == (2, 0, HIDDEN)
    output.sum().backward()
    assert all(not p.grad.any() for p in ours.parameters())


def test_the_same_bits_with_any_threads() -> None:
    layer = gt.nn.GRU(40, 64, 2, bidirectional=True)
    x = torch.randn(20, 16, 40)
    results = []
    for threads in (1, 2, 1, 2):
        torch.set_num_threads(threads)
        results.append(gradients(layer, x, None))
    for again in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], again, strict=True))


def layer_arguments(both: bool, bias: bool, lengths: bool) -> tuple[Any, ...]:
    parameters: list[Any] = []
    for direction in range(2):
        for shape, wanted in (((12, 3), True), ((12, 4), True), ((12,), bias), ((12,), bias)):
            present = wanted and (direction == 0 or both)
            parameters.append(torch.randn(shape, dtype=F64, requires_grad=True) if present else None)
    x = torch.randn(5, 2, INPUT, dtype=F64, requires_grad=True)
    hx = torch.randn(2 if both else 1, 2, HIDDEN, dtype=F64, requires_grad=True)
    return x, hx, torch.tensor([5, 2], dtype=torch.int32) if lengths else None, *parameters


@pytest.mark.parametrize(("both", "bias", "lengths"), [(False, True, False), (True, True, True), (True, False, False)])
def test_opcheck_of_a_layer(both: bool, bias: bool, lengths: bool) -> None:
    args = layer_arguments(both, bias, lengths)
    torch.library.opcheck(torch.ops.gradloom.gru_layer.default, args)
    output, final, gates = torch.ops.gradloom.gru_layer(*args)
    upstream = torch.randn_like(output), torch.randn_like(final)
    saved = output.detach(), gates.detach()
    torch.library.opcheck(
        torch.ops.gradloom.gru_layer_backward.default,
        (*(a if a is None else a.detach() for a in args), *saved, *upstream, [both, bias, not lengths]),
        test_utils=("test_schema", "test_faketensor"),
    )


def test_opcheck_and_gradcheck_of_a_stack() -> None:
    both, directions = True, 2
    layer = gt.nn.GRU(INPUT, HIDDEN, 2, bidirectional=both, dtype=F64)
    parameters = [p.detach().requires_grad_() for p in layer.parameters()]
    hx = torch.randn(2 * directions, 3, HIDDEN, dtype=F64, requires_grad=True)
    x = torch.randn(3, 4, INPUT, dtype=F64, requires_grad=True)
    options = True, 2, 0.0, True, both
    torch.library.opcheck(
        torch.ops.gradloom.gru.input, (x, hx[:, :2].repeat(1, 2, 1).detach(), parameters, *options, False)
    )
    data, sizes = torch.randn(6, INPUT, dtype=F64, requires_grad=True), torch.tensor([3, 2, 1])

    def packed(data: Tensor, hx: Tensor, *parameters: Tensor) -> Any:
        return torch.ops.gradloom.gru.data(data, sizes, hx, parameters, *options)

    assert torch.autograd.gradcheck(packed, (data, hx, *parameters), fast_mode=True)

    def dense(x: Tensor, hx: Tensor, *parameters: Tensor) -> Any:
        return torch.ops.gradloom.gru.input(x, hx, parameters, *options, True)

    assert torch.autograd.gradcheck(dense, (x, hx, *parameters), fast_mode=True)


def test_compiled() -> None:
    """By inductor in test_torch_ops.py."""
    torch._dynamo.reset()
    theirs, ours = pair(num_layers=2, bidirectional=True, batch_first=True)
    compiled = torch.compile(ours, backend="aot_eager", fullgraph=True, dynamic=True)
    for batch, steps in ((2, 5), (3, 7)):
        x = torch.randn(batch, steps, INPUT, dtype=F64)
        for g, w in zip(gradients(compiled, x, None), gradients(theirs, x, None), strict=True):
            torch.testing.assert_close(g, w, rtol=1e-10, atol=1e-12)


def test_packed_sequences_break_the_graph_of_a_compiler() -> None:
    torch._dynamo.reset()
    _, ours = pair()
    packed = pack_sequence([torch.randn(3, INPUT, dtype=F64), torch.randn(2, INPUT, dtype=F64)])
    compiled = torch.compile(ours, backend="aot_eager")
    torch.testing.assert_close(compiled(packed)[0].data, ours(packed)[0].data)


@pytest.mark.filterwarnings("ignore:.*batching rule")
def test_gradients_by_sample() -> None:
    _, ours = pair(num_layers=2)
    parameters = {name: p.detach() for name, p in ours.named_parameters()}

    def loss(parameters: dict[str, Tensor], x: Tensor) -> Tensor:
        output: Tensor = torch.func.functional_call(ours, parameters, (x,))[0]
        return output.square().sum()

    samples = torch.randn(3, 5, 2, INPUT, dtype=F64)
    together = torch.func.vmap(torch.func.grad(loss), (None, 0))(parameters, samples)
    for number, sample in enumerate(samples):
        for name, want in torch.func.grad(loss)(parameters, sample).items():
            torch.testing.assert_close(together[name][number], want)


def test_frozen_parameters_get_no_gradient() -> None:
    theirs, ours = pair(num_layers=2, bidirectional=True)
    x = torch.randn(5, 2, INPUT, dtype=F64)
    for frozen in ("weight_ih_l0", "bias_hh_l1_reverse", "weight_hh_l1"):
        for layer in (theirs, ours):
            getattr(layer, frozen).requires_grad_(False)
            layer.zero_grad()
            layer(x)[0].square().sum().backward()
        for name, parameter in ours.named_parameters():
            want = getattr(theirs, name).grad
            assert (parameter.grad is None) == (want is None)
            if want is not None:
                torch.testing.assert_close(parameter.grad, want)
    ours.requires_grad_(False)
    leaf = x.clone().requires_grad_()
    ours(leaf)[0].sum().backward()
    assert leaf.grad is not None
    assert not ours(x)[0].requires_grad


@pytest.mark.parametrize("both", [False, True])
def test_second_gradients(both: bool) -> None:
    theirs, ours = pair(num_layers=2, bidirectional=both, bias=not both)
    x = torch.randn(5, 2, INPUT, dtype=F64, requires_grad=True)
    penalties = []
    for layer in (ours, theirs):
        output, final = layer(x)
        penalised = [x, *layer.parameters()]
        first = torch.autograd.grad(output.square().sum() + final.sum(), penalised, create_graph=True)
        penalty = sum(g.square().sum() for g in first)
        penalties.append(torch.autograd.grad(penalty, penalised, create_graph=True))
    for got, want in zip(*penalties, strict=True):
        torch.testing.assert_close(got, want)
    packs = torch.randn(6, INPUT, dtype=F64, requires_grad=True), torch.randn(4 if both else 2, 3, HIDDEN, dtype=F64)

    def packed(data: Tensor, hx: Tensor) -> Any:
        return ours(PackedSequence(data, torch.tensor([3, 2, 1])), hx)[0].data

    assert torch.autograd.gradgradcheck(packed, (packs[0], packs[1].requires_grad_()), fast_mode=True)


def test_forward_mode_is_refused_by_name() -> None:
    layer = gt.nn.GRU(INPUT, HIDDEN, dtype=F64)
    x = torch.randn(5, 2, INPUT, dtype=F64)
    with pytest.raises(gradloom.Unsupported, match="gru_layer: forward-mode derivatives are not implemented"):
        torch.func.jvp(lambda a: layer(a)[0], (x,), (x,))


def test_gradients_of_functions() -> None:
    theirs, ours = pair(num_layers=2)
    x = torch.randn(5, 2, INPUT, dtype=F64)

    def gradient(layer: Any) -> dict[str, Tensor]:
        def loss(parameters: dict[str, Tensor]) -> Tensor:
            output: Tensor = torch.func.functional_call(layer, parameters, (x,))[0]
            return output.square().sum()

        found: dict[str, Tensor] = torch.func.grad(loss)({k: v.detach() for k, v in layer.named_parameters()})
        return found

    def by_autograd(layer: Any) -> dict[str, Tensor]:
        layer.zero_grad()
        layer(x)[0].square().sum().backward()
        return {name: p.grad for name, p in layer.named_parameters()}

    torch.testing.assert_close(gradient(ours), by_autograd(theirs))


def test_state_and_options_are_pytorchs() -> None:
    theirs, ours = pair(num_layers=2, bidirectional=True, dropout=0.1)
    assert ours.state_dict().keys() == theirs.state_dict().keys()
    theirs.load_state_dict(ours.state_dict())
    assert repr(ours) == repr(theirs)
    x = torch.randn(5, 2, INPUT, dtype=F64)
    ours.eval()
    for again in (copy.deepcopy(ours), pickle.loads(pickle.dumps(ours)), ours.float().double()):
        torch.testing.assert_close(again(x)[0], ours(x)[0])
    ours.weight_ih_l0 = torch.nn.Parameter(torch.zeros_like(ours.weight_ih_l0))  # replaced, not only written
    theirs.weight_ih_l0 = torch.nn.Parameter(torch.zeros_like(theirs.weight_ih_l0))
    torch.testing.assert_close(ours(x)[0], theirs.eval()(x)[0])


def test_what_pytorch_refuses_is_refused() -> None:
    layer = gt.nn.GRU(INPUT, HIDDEN, dtype=F64)
    x = torch.randn(5, 2, INPUT, dtype=F64)
    with pytest.raises(ValueError, match="proj_size"):
        gt.nn.GRU(INPUT, HIDDEN, proj_size=2)
    with pytest.raises(ValueError, match="got 4D"):
        layer(x.unsqueeze(0))
    with pytest.raises(RuntimeError, match="hx is 2-D; expected 3-D"):
        layer(x, torch.zeros(1, HIDDEN, dtype=F64))
    with pytest.raises(RuntimeError, match="Expected hidden size"):
        layer(x, torch.zeros(1, 3, HIDDEN, dtype=F64))
    with pytest.raises(RuntimeError, match="must be equal to input_size"):
        layer(x[..., :2])
    with pytest.raises(RuntimeError, match="sequence length"):
        layer(x[:0])
    short = layer_arguments(True, True, False)
    with pytest.raises(gradloom.InvalidArgument, match="the parameters of its directions differ"):
        torch.ops.gradloom.gru_layer(*short[:-1], None)
    with pytest.raises(gradloom.InvalidArgument, match="hx of 5 features it must have 15 rows"):
        torch.ops.gradloom.gru_layer(short[0], torch.zeros(2, 2, 5, dtype=F64), *short[2:])
    with pytest.raises(gradloom.InvalidArgument, match="params has 4 tensors; expected 8"):
        torch.ops.gradloom.gru.input(
            x, torch.zeros(2, 2, 4), list(layer.parameters()), True, 2, 0.0, False, False, False
        )


def test_packed_from_padded() -> None:
    theirs, ours = pair(batch_first=True)
    padded = torch.randn(3, 6, INPUT, dtype=F64)
    packed = pack_padded_sequence(padded, torch.tensor([2, 6, 3]), batch_first=True, enforce_sorted=False)
    for got, want in zip(ours(packed)[0], theirs(packed)[0], strict=True):
        torch.testing.assert_close(got, want)
