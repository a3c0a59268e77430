"""An unchanged nn.GRU under `gradloom.torch.enable()`."""

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("expecttest")  # PyTorch's samples need it

import gradloom.torch  # noqa: E402
from gradloom.torch import _override_gru  # noqa: E402
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence  # noqa: E402
from torch_fixtures import alone  # noqa: E402, F401
from torch_samples import ALL, DTYPES, THREADS, at_threads, bits  # noqa: E402

F64 = torch.float64


def results(module: Any, *arguments: Any) -> list[Any]:
    """Outputs, and the gradients of all that has one."""
    torch.manual_seed(1)  # of dropout
    outputs, final = module(*arguments)
    outputs = outputs.data if isinstance(outputs, PackedSequence) else outputs
    tensors = [a.data if isinstance(a, PackedSequence) else a for a in arguments if a is not None]
    wanted = [t for t in [*tensors, *module.parameters()] if t.requires_grad]
    generator = torch.Generator().manual_seed(2)
    upstream = [torch.randn(t.shape, generator=generator).to(torch.bfloat16).to(t.dtype) for t in (outputs, final)]
    return [outputs.detach(), final.detach(), *torch.autograd.grad((outputs, final), wanted, upstream)]


def in_f64(module: Any, *arguments: Any) -> list[Any]:
    def cast(argument: Any) -> Any:
        if argument is None:
            return None
        double = argument.detach().to(F64)
        return double if isinstance(double, PackedSequence) else double.requires_grad_(argument.requires_grad)

    twin = type(module)(module.input_size, module.hidden_size, **options_of(module), dtype=F64)
    twin.load_state_dict(module.state_dict())
    return results(twin, *map(cast, arguments))


def options_of(module: Any) -> dict[str, Any]:
    return {name: getattr(module, name) for name in ("num_layers", "bias", "batch_first", "dropout", "bidirectional")}


def samples(dtype: Any) -> Iterator[tuple[Any, tuple[Any, ...]]]:
    """PyTorch's own module inputs, and with sequences long enough to be served."""
    from torch.testing._internal.common_modules import module_db

    (info,) = (info for info in module_db if info.module_cls is torch.nn.GRU)
    torch.manual_seed(0)
    for sample in info.module_inputs_func(info, device="cpu", dtype=dtype, requires_grad=True, training=True):
        made = sample.constructor_input
        module = torch.nn.GRU(*made.args, **{**made.kwargs, "dtype": dtype})
        arguments = (*sample.forward_input.args, *sample.forward_input.kwargs.values())
        yield module, arguments
        x = arguments[0]
        time = 1 if x.dim() == 3 and module.batch_first else 0
        yield module, (x.detach().repeat_interleave(9, dim=time).requires_grad_(), *arguments[1:])


@pytest.mark.parametrize("dtype", DTYPES if ALL else (F64,), ids=str)
def test_pytorchs_module_inputs(dtype: Any) -> None:
    gradloom.torch.stats(reset=True)
    ran = 0
    for module, arguments in samples(dtype):
        truth = in_f64(module, *arguments)
        with gradloom.torch.enabled():
            runs = [at_threads(threads, lambda: results(module, *arguments)) for threads in THREADS]
            served = gradloom.torch.stats().ops["gru"]
        # The gates of 16 bits are rounded between PyTorch's ops, more than once each.
        tolerance = dtype if dtype in (F64, torch.float32) else torch.bfloat16
        for ours, true in zip(runs[0], truth, strict=True):
            scale = float(true.abs().max()) + 1
            torch.testing.assert_close(ours.to(F64), true, rtol=0, atol=64 * torch.finfo(tolerance).eps * scale)
        assert all(bits(run) == bits(runs[0]) for run in runs)
        ran += 1
    print(f"\n{dtype}: {ran} module inputs, {served.served} calls served, {served.fallback} by PyTorch")
    assert ran > 20 and served.served > 20


OPTIONS = [
    dict(zip(("num_layers", "bidirectional", "bias", "batch_first"), chosen, strict=True))
    for chosen in itertools.product((1, 2), (False, True), (False, True), (False, True))
]


@pytest.mark.parametrize("packs", [False, True])
def test_all_options(packs: bool) -> None:
    for options in OPTIONS if ALL else OPTIONS[5:16:5]:
        module = torch.nn.GRU(5, 6, dtype=F64, dropout=0.4 if options["num_layers"] == 2 else 0, **options)
        x = torch.randn(9, 8, 5, dtype=F64)
        if options["batch_first"]:
            x = x.transpose(0, 1).contiguous()
        hx = torch.randn(options["num_layers"] * (1 + options["bidirectional"]), 8, 6, dtype=F64, requires_grad=True)
        if packs:
            lengths = torch.tensor([3, 9, 1, 9, 4, 5, 2, 9])
            argument = pack_padded_sequence(x, lengths, options["batch_first"], enforce_sorted=False)
        else:
            argument = x.requires_grad_()
        for state in (hx, None):
            want = results(module, argument, state)
            before = gradloom.torch.stats().ops.get("gru")
            with gradloom.torch.enabled():
                got = results(module, argument, state)
                after = gradloom.torch.stats().ops["gru"]
            torch.testing.assert_close(got, want, rtol=1e-11, atol=1e-12)
            drops = packs and module.dropout > 0
            assert after.served == (before.served if before else 0) + (not drops), options


def test_derivatives_and_what_falls_back() -> None:
    module = torch.nn.GRU(2, 3, dtype=F64)
    x = torch.randn(4, 2, 2, dtype=F64, requires_grad=True)
    hx = torch.randn(1, 2, 3, dtype=F64, requires_grad=True)
    with gradloom.torch.enabled():
        gradloom.torch.stats(reset=True)
        assert torch.autograd.gradcheck(lambda x, hx: module(x, hx), (x, hx))
        assert torch.autograd.gradgradcheck(lambda x, hx: module(x, hx), (x, hx))
        assert gradloom.torch.stats(reset=True).ops["gru"].fallback == {}
        module(x[:2])
        with torch.no_grad():
            module(x)
        assert gradloom.torch.stats(reset=True).ops["gru"] == gradloom.torch.OpStats(0, {"slower": 2})
        x32 = x.detach().float()
        tangent = torch.func.jvp(lambda x: module(x)[0], (x.detach(),), (torch.ones_like(x),))[1]
        with torch.autograd.forward_ad.dual_level():
            dual = torch.autograd.forward_ad.make_dual(x.detach(), torch.ones_like(x))
            torch.testing.assert_close(torch.autograd.forward_ad.unpack_dual(module(dual)[0]).tangent, tangent)
        assert gradloom.torch.stats(reset=True).ops["gru"].fallback["graph"] >= 1
        for bad in (lambda: module(x32), lambda: module(x, hx[:, :1]), lambda: module(x[..., :1])):
            with pytest.raises((RuntimeError, ValueError)) as ours:
                bad()
            gradloom.torch.disable()
            with pytest.raises(ours.type) as theirs:
                bad()
            gradloom.torch.enable()
            assert str(ours.value) == str(theirs.value)
        with torch.autocast("cpu", torch.bfloat16):
            got = torch.nn.GRU(2, 3)(x32.repeat(4, 1, 1))[0]
        assert got.dtype in (torch.bfloat16, torch.float32)
        compiled = torch.compile(module, backend="aot_eager")
        torch.testing.assert_close(compiled(x)[0], module(x)[0])


def test_it_is_taken_back() -> None:
    before = torch._C._dispatch_dump("aten::gru.input") + torch._C._dispatch_dump("aten::gru.data")
    module, x = torch.nn.GRU(2, 3), torch.randn(9, 8, 2)
    gradloom.torch.enable()
    assert "AutogradCPU" in torch._C._dispatch_dump("aten::gru.input")
    module(x)
    gradloom.torch.disable()
    assert torch._C._dispatch_dump("aten::gru.input") + torch._C._dispatch_dump("aten::gru.data") == before
    counts = dict(_override_gru.counts)
    assert "GRU" not in module(x)[0].grad_fn.name().upper() and dict(_override_gru.counts) == counts
