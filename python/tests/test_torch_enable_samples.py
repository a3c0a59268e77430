"""PyTorch's own sample inputs under `gradloom.torch.enable()`: the same gradients, the same bits, derivatives of all
orders that PyTorch has."""

import functools
from collections import Counter
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("expecttest")  # PyTorch's samples need it

import gradloom.torch  # noqa: E402
from torch_samples import ALL, DTYPES, THREADS, Call, assert_close, at_threads, bits, samples  # noqa: E402

# Those whose gradients, or themselves, are overridden.
NAMES = (
    "__getitem__ chunk expand expand_as gather index_add index_put index_select narrow nn.functional.embedding scatter "
    "scatter_add scatter_reduce select select_scatter slice slice_scatter split sum_to_size take take_along_dim "
    "tensor_split unbind"
).split()


@functools.cache
def ops() -> dict[str, Any]:
    from torch.testing._internal.common_methods_invocations import op_db

    return {f"{op.name} {op.variant_test_name}".strip(): op for op in op_db if op.name in NAMES}


ran: Counter[str] = Counter()


@pytest.fixture(autouse=True, scope="module")
def summary() -> Any:
    gradloom.torch.stats(reset=True)
    yield
    print(f"\nsamples that ran: {dict(ran)}")
    for name, op in gradloom.torch.stats().ops.items():
        print(f"  {name}: {op.served} served, {op.fallback or 'none'} by PyTorch")


@pytest.mark.parametrize("dtype", DTYPES if ALL else (torch.float64, torch.bfloat16), ids=str)
def test_gradients_equal_pytorchs_and_repeat_to_the_bit(dtype: Any) -> None:
    for name, op in ops().items():
        for sample in samples(op, dtype):
            call = Call(op, sample)
            if not call.tensors:
                continue
            truth = Call(op, sample, torch.float64).results()
            with gradloom.torch.enabled():
                runs = [at_threads(threads, call.results) for threads in THREADS]
            try:
                assert_close(runs[0], truth, dtype)
            except AssertionError as error:
                raise AssertionError(f"{name} of {sample}") from error
            assert all(bits(run) == bits(runs[0]) for run in runs), f"{name} of {sample}"
            ran[str(dtype)] += 1
    assert ran[str(dtype)] > 100


@pytest.mark.parametrize("check", ["gradcheck", "gradgradcheck"])
@pytest.mark.parametrize("of", NAMES)
def test_derivatives_of_both_orders(check: str, of: str) -> None:
    with gradloom.torch.enabled():
        for name, op in ops().items():
            if op.name != of or (check == "gradgradcheck" and not op.supports_gradgrad):
                continue
            for sample in samples(op, torch.float64):
                call = Call(op, sample)
                if not call.tensors or not call(*call.tensors):
                    continue
                checked = getattr(torch.autograd, check)
                # A whole Jacobian of slice_scatter's 8,000 elements, and its columns one by one, take over 16 GB.
                small = sum(t.numel() for t in call.tensors) < 1000
                assert checked(
                    lambda *tensors: tuple(call(*tensors)),
                    call.tensors,
                    check_batched_grad=False,
                    nondet_tol=0.0,
                    fast_mode=not (ALL and small),
                ), f"{name} of {sample}"
                ran[check] += 1


def test_most_gradients_are_served() -> None:
    """After the tests above."""
    assert min(ran["gradcheck"], ran["gradgradcheck"]) > 100
    ops_of = gradloom.torch.stats().ops
    for name in (
        "gather_backward",
        "index_select_backward",
        "embedding_dense_backward",
        "slice_backward",
        "select_backward",
    ):
        assert ops_of[name].served > 10, (name, ops_of[name])
