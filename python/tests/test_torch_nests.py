"""Loop nests of the user's own in PyTorch, with derived gradients."""

import re
from pathlib import Path
from typing import Any

import gradloom
import pytest

torch = pytest.importorskip("torch")

import gradloom.torch  # noqa: E402

PAGE = (Path(__file__).parents[2] / "docs" / "differentiate.md").read_text()
SOFTMAX = re.findall(r"```\n(kernel softmax.*?)```", PAGE, re.DOTALL)[0]


@pytest.mark.parametrize(
    "options", [{}, {"inactive": ["top"]}, {"inactive": ["top"], "known": ["e[j] = y[i, j]", "sum[0] = 1.0f32"]}]
)
def test_softmax_is_pytorchs_and_so_is_its_gradient(options: dict[str, list[str]]) -> None:
    softmax = gradloom.torch.Nest(SOFTMAX, **options)
    x = torch.randn(5, 7, requires_grad=True)
    upstream = torch.randn(5, 7)
    y = softmax(x=x)
    wanted = torch.softmax(x, 1)
    torch.testing.assert_close(y, wanted)
    for grad in (upstream, upstream.t().contiguous().t()):
        mine, theirs = (torch.autograd.grad(of, x, grad, retain_graph=True)[0] for of in (y, wanted))
        torch.testing.assert_close(mine, theirs)


def test_what_is_known_is_read_alone() -> None:
    known = ["e[j] = y[i, j]", "sum[0] = 1.0f32"]
    gradient = gradloom.parse(SOFTMAX).gradient(["x"], kept=["y"], inactive=["top"], known=known)
    assert [name for name, role, _, _ in gradient.buffers if role == "in"] == ["y", "d_y"]
    assert "exp" not in str(gradient)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("q[j] = 1.0f32", "1:1: expected an input or a buffer that the nest allocates, of that name alone, got q"),
        ("y[i, j] = 1.0f32", "1:1: expected an input or a buffer that the nest allocates"),
        ("e[j] = y[k, j]", "1:10: expected a name in scope, got k"),
        ("e[j] = d_y[i, j]", "1:8: expected a name in scope, got d_y"),
        ("e[j] = 1", "1:8: expected a value of type f32, got i64"),
        ("e[0] = y[i, 0]", "1:3: expected a name for the index, got 0"),
        ("e[j, k] = 1.0f32", "1:4: expected ], got ,"),
        ("sum[0] = 1.0f32 2", "1:17: expected the end of the text, got 2"),
        ("", "1:1: expected a buffer's name, got the end of the text"),
    ],
)
def test_what_is_known_is_refused_by_place(text: str, message: str) -> None:
    with pytest.raises(gradloom.Error, match=re.escape(message)):
        gradloom.parse(SOFTMAX).gradient(["x"], inactive=["top"], known=[text])


def test_gradcheck_of_several_inputs_outputs_and_an_index() -> None:
    nest = gradloom.torch.Nest("""
      kernel mixed(n: i64 in [0, ], m: i64 in [0, ]) {
        in x: f64[n, 3]
        in w: f64[3]
        in idx: i64[m] in [0, n - 1]
        out y: f64[m, 3]
        out total: f64[]
        out count: i64[]
        count[] = m
        for k in 0 .. m {
          for c in 0 .. 3 {
            y[k, c] = tanh(x[idx[k], c]) * w[c]
          }
        }
        total[] = 0.0f64
        for c in 0 .. 3 {
          total[] += exp(w[c])
        }
      }""")
    idx = torch.tensor([1, 1, 0, 3])
    x = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    w = torch.randn(3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x, w: nest(x=x, w=w, idx=idx)[:2], (x, w), nondet_tol=0.0)
    y, total, count = nest(x=x, w=w, idx=idx)
    assert count.item() == 4 and not count.requires_grad
    total.backward()
    torch.testing.assert_close(w.grad, w.detach().exp())
    assert x.grad is not None and not x.grad.any()


def test_a_gradient_that_is_refused_says_what_to_change() -> None:
    scan = gradloom.torch.Nest("""
      kernel scan(n: i64 in [0, ]) {
        in a: f32[n]
        out y: f32[]
        alloc h: f32[1]
        h[0] = 0.0f32
        for t in 0 .. n {
          h[0] = tanh(h[0] + a[t])
        }
        y[] = h[0]
      }""")
    y = scan(a=torch.randn(3, requires_grad=True))
    with pytest.raises(gradloom.Unsupported, match="give it a dim for t"):
        y.backward()


def test_gradient_of_a_kernel(tmp_path: Any) -> None:
    kernel = gradloom.parse(SOFTMAX)
    gradient = kernel.gradient(["x"], kept=["y", "x"], inactive=["top"])
    assert [b[0] for b in gradient.buffers] == ["x", "y", "d_y", "d_x"]
    with pytest.raises(gradloom.InvalidArgument, match="z"):
        kernel.gradient(["z"])
    with pytest.raises(gradloom.InvalidArgument, match="tie is both"):
        kernel.gradient(["x"], tie="both")  # type: ignore[arg-type]
