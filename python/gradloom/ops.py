"""A function an op, with ONNX's names. Written by generate_ops.py from the library's schemas."""

from collections.abc import Sequence
from typing import Any, Unpack

from gradloom._gradloom import Runtime
from gradloom.runtime import Options, default_runtime


def broadcast_grad(
    dY: Any,
    shape: Any,
    *,
    runtime: Runtime | None = None,
    **options: Unpack[Options],
) -> Any:
    """dY summed over the axes in which `shape`, right-aligned, is absent or 1.

    Args:
        dY: the gradient of the broadcast result (float16, bfloat16, float32, float64)
        shape: the operand's shape: what dX gets; must broadcast to dY's (int64)
        runtime: the process's shared one when not given
        options: how the call is run: `Options`

    Returns:
        dX: the gradient of the operand; f16 and bf16 are summed in float32 (float16, bfloat16, float32, float64)
    """
    result: Any = (runtime or default_runtime()).run(
        "BroadcastGrad",
        (dY, shape),
        **options,
    )
    return result


BroadcastGrad = broadcast_grad


def broadcast_gradient_args(
    a_shape: Any,
    b_shape: Any,
    *,
    runtime: Runtime | None = None,
    **options: Unpack[Options],
) -> tuple[Any, Any]:
    """The axes over which the gradients of two broadcast operands are summed, last axis first; none: no sum.

    Args:
        a_shape: rank 1: the shape of operand a (int64)
        b_shape: rank 1: the shape of operand b (int64)
        runtime: the process's shared one when not given
        options: how the call is run: `Options`

    Returns a tuple:
        a_axes: rank 1: axes of the broadcast shape that a's gradient is summed over (int64; optional)
        b_axes: the same for b (int64; optional)
    """
    result: tuple[Any, Any] = (runtime or default_runtime()).run(
        "BroadcastGradientArgs",
        (a_shape, b_shape),
        **options,
    )
    return result


BroadcastGradientArgs = broadcast_gradient_args


def gather_elements_grad(
    dY: Any,
    shape: Any,
    indices: Any,
    *,
    axis: int = 0,
    runtime: Runtime | None = None,
    **options: Unpack[Options],
) -> Any:
    """The gradient of GatherElements: zeros of `shape`, with every element of dY added at its own index along
    `axis`.

    Args:
        dY: the shape of indices (float16, bfloat16, float32, float64)
        shape: the shape of dX (int64)
        indices: the rank of dX; off `axis`, dims up to dX's; values in [-s, s-1] for a dim of s (int32, int64)
        axis: the gathered axis, negative counts from the end; default 0
        runtime: the process's shared one when not given
        options: how the call is run: `Options`

    Returns:
        dX: the gradient of GatherElements' data; duplicates are summed in index order (float16, bfloat16, float32,
            float64)
    """
    result: Any = (runtime or default_runtime()).run(
        "GatherElementsGrad",
        (dY, shape, indices),
        axis=axis,
        **options,
    )
    return result


GatherElementsGrad = gather_elements_grad


def gather_grad(
    shape: Any,
    indices: Any,
    dY: Any,
    *,
    axis: int = 0,
    runtime: Runtime | None = None,
    **options: Unpack[Options],
) -> Any:
    """The gradient of Gather: zeros of `shape`, with every slice of dY added at its index along `axis`.

    Args:
        shape: the shape of dX (int64)
        indices: any shape; values in [-s, s-1] for a dim of s (int32, int64)
        dY: shape with the dim `axis` replaced by indices' dims (float16, bfloat16, float32, float64)
        axis: the gathered axis of dX, negative counts from the end; default 0
        runtime: the process's shared one when not given
        options: how the call is run: `Options`

    Returns:
        dX: the gradient of Gather's data; duplicates are summed in index order (float16, bfloat16, float32,
            float64)
    """
    result: Any = (runtime or default_runtime()).run(
        "GatherGrad",
        (shape, indices, dY),
        axis=axis,
        **options,
    )
    return result


GatherGrad = gather_grad


def gru_grad(
    X: Any,
    W: Any,
    R: Any,
    B: Any,
    sequence_lens: Any,
    initial_h: Any,
    HAll: Any,
    ZRH: Any,
    dHAll: Any = None,
    dHFinal: Any = None,
    *,
    activations: Sequence[str] | None = None,
    activation_alpha: Sequence[float] | None = None,
    activation_beta: Sequence[float] | None = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    linear_before_reset: int = 0,
    runtime: Runtime | None = None,
    **options: Unpack[Options],
) -> tuple[Any, Any, Any, Any, Any]:
    """The gradient of a gated recurrent unit: of its inputs, weights, biases and first state. Any outputs may be
    left out.

    Args:
        X: [S, N, I]: the input sequences (float16, bfloat16, float32, float64)
        W: [D, 3H, I]: weights of the gates z, r, h on the input; D is 2 for direction bidirectional, else 1
            (float16, bfloat16, float32, float64)
        R: [D, 3H, H]: weights on the state (float16, bfloat16, float32, float64)
        B: [D, 6H]: biases Wbz, Wbr, Wbh, Rbz, Rbr, Rbh; default 0 (float16, bfloat16, float32, float64; optional)
        sequence_lens: [N]: steps of each sequence, 0 to S; default S (int32; optional)
        initial_h: [D, N, H]: the state before the first step; default 0 (float16, bfloat16, float32, float64;
            optional)
        HAll: [S, D, N, H]: GRUTraining's (float16, bfloat16, float32, float64)
        ZRH: [S, D, N, 3H]: GRUTraining's (float16, bfloat16, float32, float64)
        dHAll: [S, D, N, H]: the gradient of HAll; default 0; ignored beyond a sequence's end (float16, bfloat16,
            float32, float64; optional)
        dHFinal: [D, N, H]: the gradient of HFinal; default 0 (float16, bfloat16, float32, float64; optional)
        activations: f and g for each direction; default Sigmoid, Tanh
        activation_alpha: alpha of the activations that have one, in order
        activation_beta: beta of the activations that have one, in order
        clip: the inputs of activations are kept within [-clip, clip]; default: not
        direction: forward (default), reverse or bidirectional
        hidden_size: H; default: R's
        linear_before_reset: 1: r multiplies the candidate's recurrent product and its bias; 0 (default): the state
        runtime: the process's shared one when not given
        options: how the call is run: `Options`

    Returns a tuple:
        dX: [S, N, I]; 0 beyond a sequence's end (float16, bfloat16, float32, float64; optional)
        dW: [D, 3H, I] (float16, bfloat16, float32, float64; optional)
        dR: [D, 3H, H] (float16, bfloat16, float32, float64; optional)
        dB: [D, 6H]; also without B (float16, bfloat16, float32, float64; optional)
        dH0: [D, N, H]; also without initial_h (float16, bfloat16, float32, float64; optional)
    """
    result: tuple[Any, Any, Any, Any, Any] = (runtime or default_runtime()).run(
        "GRUGrad",
        (X, W, R, B, sequence_lens, initial_h, HAll, ZRH, dHAll, dHFinal),
        activations=activations,
        activation_alpha=activation_alpha,
        activation_beta=activation_beta,
        clip=clip,
        direction=direction,
        hidden_size=hidden_size,
        linear_before_reset=linear_before_reset,
        **options,
    )
    return result


GRUGrad = gru_grad


def gru_training(
    X: Any,
    W: Any,
    R: Any,
    B: Any = None,
    sequence_lens: Any = None,
    initial_h: Any = None,
    *,
    activations: Sequence[str] | None = None,
    activation_alpha: Sequence[float] | None = None,
    activation_beta: Sequence[float] | None = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    linear_before_reset: int = 0,
    runtime: Runtime | None = None,
    **options: Unpack[Options],
) -> tuple[Any, Any, Any]:
    """The states of a gated recurrent unit at all steps, with its gates kept for GRUGrad.

    Args:
        X: [S, N, I]: the input sequences (float16, bfloat16, float32, float64)
        W: [D, 3H, I]: weights of the gates z, r, h on the input; D is 2 for direction bidirectional, else 1
            (float16, bfloat16, float32, float64)
        R: [D, 3H, H]: weights on the state (float16, bfloat16, float32, float64)
        B: [D, 6H]: biases Wbz, Wbr, Wbh, Rbz, Rbr, Rbh; default 0 (float16, bfloat16, float32, float64; optional)
        sequence_lens: [N]: steps of each sequence, 0 to S; default S (int32; optional)
        initial_h: [D, N, H]: the state before the first step; default 0 (float16, bfloat16, float32, float64;
            optional)
        activations: f and g for each direction; default Sigmoid, Tanh
        activation_alpha: alpha of the activations that have one, in order
        activation_beta: beta of the activations that have one, in order
        clip: the inputs of activations are kept within [-clip, clip]; default: not
        direction: forward (default), reverse or bidirectional
        hidden_size: H; default: R's
        linear_before_reset: 1: r multiplies the candidate's recurrent product and its bias; 0 (default): the state
        runtime: the process's shared one when not given
        options: how the call is run: `Options`

    Returns a tuple:
        HAll: [S, D, N, H]: the state after each step; 0 beyond a sequence's end (float16, bfloat16, float32,
            float64)
        HFinal: [D, N, H]: the state after the last step; initial_h where there is none (float16, bfloat16, float32,
            float64; optional)
        ZRH: [S, D, N, 3H]: the gates z, r, h after their activations; 0 beyond a sequence's end (float16, bfloat16,
            float32, float64)
    """
    result: tuple[Any, Any, Any] = (runtime or default_runtime()).run(
        "GRUTraining",
        (X, W, R, B, sequence_lens, initial_h),
        activations=activations,
        activation_alpha=activation_alpha,
        activation_beta=activation_beta,
        clip=clip,
        direction=direction,
        hidden_size=hidden_size,
        linear_before_reset=linear_before_reset,
        **options,
    )
    return result


GRUTraining = gru_training


def slice_grad(
    dY: Any,
    shape: Any,
    starts: Any,
    ends: Any,
    axes: Any = None,
    steps: Any = None,
    *,
    runtime: Runtime | None = None,
    **options: Unpack[Options],
) -> Any:
    """The gradient of Slice: zeros of `shape` with dY at the sliced positions.

    Args:
        dY: the gradient of Slice's output; its shape is the slice's (any dtype)
        shape: the shape of dX (int64)
        starts: rank 1: the first index of each sliced axis; negative counts from the end (int32, int64)
        ends: rank 1: one beyond the last; INT32_MAX and INT64_MAX mean to the end (int32, int64)
        axes: rank 1: the sliced axes; by default the first ones (int32, int64; optional)
        steps: rank 1: nonzero steps, negative ones too; by default 1 (int32, int64; optional)
        runtime: the process's shared one when not given
        options: how the call is run: `Options`

    Returns:
        dX: the gradient of Slice's data (any dtype)
    """
    result: Any = (runtime or default_runtime()).run(
        "SliceGrad",
        (dY, shape, starts, ends, axes, steps),
        **options,
    )
    return result


SliceGrad = slice_grad

__all__ = [
    "BroadcastGrad",
    "BroadcastGradientArgs",
    "GRUGrad",
    "GRUTraining",
    "GatherElementsGrad",
    "GatherGrad",
    "SliceGrad",
    "broadcast_grad",
    "broadcast_gradient_args",
    "gather_elements_grad",
    "gather_grad",
    "gru_grad",
    "gru_training",
    "slice_grad",
]
