"""PyTorch's tensors as the arrays of ordinary calls."""

from typing import Any

import gradloom
import numpy as np
import pytest

torch = pytest.importorskip("torch")

import gradloom.torch  # noqa: E402

TOKENS = [2, 0, 2, -1, 1]


def upstream(dtype: Any) -> Any:
    return torch.arange(15, dtype=dtype).reshape(5, 3)


@pytest.mark.parametrize("name", ["float64", "float32", "float16", "bfloat16"])
@pytest.mark.parametrize("indices", ["int64", "int32"])
def test_a_gradient_of_each_dtype(name: str, indices: str) -> None:
    dY = upstream(getattr(torch, name))
    got = gradloom.gather_grad([4, 3], torch.tensor(TOKENS, dtype=getattr(torch, indices)), dY)
    assert type(got) is torch.Tensor and got.dtype == dY.dtype
    want = torch.zeros(4, 3, dtype=dY.dtype).index_add(0, torch.tensor(TOKENS) % 4, dY)
    assert torch.equal(got, want)


def test_strides_are_read_and_written_in_place() -> None:
    dY, out = upstream(torch.float32), torch.full((3, 8), -1.0)
    got = gradloom.gather_grad([4, 3], torch.tensor(TOKENS), dY.t().contiguous().t(), out=out.t()[::2])
    assert got.data_ptr() == out.data_ptr()
    assert torch.equal(got, gradloom.gather_grad([4, 3], torch.tensor(TOKENS), dY))
    assert (out[:, 1::2] == -1).all()


def test_a_tensor_that_requires_a_gradient_is_refused() -> None:
    with pytest.raises((BufferError, RuntimeError), match="requires? grad"):
        gradloom.gather_grad([4, 3], torch.tensor(TOKENS), upstream(torch.float32).requires_grad_())


def test_numpy_and_torch_in_one_call() -> None:
    got = gradloom.gather_grad([4, 3], np.array(TOKENS), upstream(torch.float32))
    assert type(got) is torch.Tensor
    with pytest.raises(IndexError, match=r"indices\)\[1\] is 4"):
        gradloom.gather_grad([4, 3], torch.tensor([0, 4, 1, 1, 1]), upstream(torch.float32))


def test_a_negative_view_is_read_with_its_sign() -> None:
    values = torch.arange(15, dtype=torch.float32).reshape(5, 3)
    negative = torch.imag(torch.complex(values, values).conj())
    assert negative.is_neg()
    got = gradloom.gather_grad([4, 3], torch.tensor(TOKENS), negative)
    assert torch.equal(got, -gradloom.gather_grad([4, 3], torch.tensor(TOKENS), values))
    with pytest.raises(gradloom.InvalidArgument, match="the other sign in memory; it cannot be written"):
        gradloom.gather_grad([4, 3], torch.tensor(TOKENS), values, out=torch._neg_view(torch.zeros(4, 3)))
    weight = torch.zeros(4, 3, requires_grad=True)
    rows = gradloom.torch.embedding(torch.tensor(TOKENS) % 4, weight, sparse=True)
    assert torch.equal(torch.autograd.grad(rows, weight, negative)[0].to_dense(), got)
