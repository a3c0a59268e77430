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


def embedding_bag_grad(
    shape: Any,
    indices: Any,
    offsets: Any,
    dY: Any,
    per_sample_weights: Any = None,
    max_indices: Any = None,
    *,
    mode: str = "mean",
    padding_idx: int | None = None,
    include_last_offset: int = 0,
    scale_grad_by_freq: int = 0,
    runtime: Runtime | None = None,
    **options: Unpack[Options],
) -> Any:
    """The gradient of EmbeddingBag: zeros of `shape`, with each bag's row of dY added at its indices.

    Args:
        shape: the shape of dX, of rank 2: rows, columns (int64)
        indices: rank 1: rows, bag after bag; values in [-rows, rows-1] (int32, int64)
        offsets: rank 1: each bag's first position in indices, from 0, nondecreasing (int32, int64)
        dY: [bags, columns]: the gradient of EmbeddingBag's output (float16, bfloat16, float32, float64)
        per_sample_weights: the shape of indices: what the row of each was multiplied by; mode sum only (float16,
            bfloat16, float32, float64; optional)
        max_indices: [bags, columns]: the row that each element of the output is from; mode max only, which needs it
            (int32, int64; optional)
        mode: "sum", "mean" or "max" of a bag's rows; default "mean"
        padding_idx: indices of this row are in no bag, negative counts from the end; default: none
        include_last_offset: 1: offsets ends with the number of indices; default 0
        scale_grad_by_freq: 1: each row's gradient is divided by how often indices name it; not of max; default 0
        runtime: the process's shared one when not given
        options: how the call is run: `Options`

    Returns:
        dX: the gradient of the table; duplicates are summed in the order of indices (float16, bfloat16, float32,
            float64)
    """
    result: Any = (runtime or default_runtime()).run(
        "EmbeddingBagGrad",
        (shape, indices, offsets, dY, per_sample_weights, max_indices),
        mode=mode,
        padding_idx=padding_idx,
        include_last_offset=include_last_offset,
        scale_grad_by_freq=scale_grad_by_freq,
        **options,
    )
    return result


EmbeddingBagGrad = embedding_bag_grad


def fast_gelu(
    X: Any,
    *,
    runtime: Runtime | None = None,
    **options: Unpack[Options],
) -> Any:
    """Gelu approximated by a hyperbolic tangent.

    Args:
        X: any shape (float16, bfloat16, float32, float64)
        runtime: the process's shared one when not given
        options: how the call is run: `Options`

    Returns:
        Y: X's shape (float16, bfloat16, float32, float64)
    """
    result: Any = (runtime or default_runtime()).run(
        "FastGelu",
        (X,),
        **options,
    )
    return result


FastGelu = fast_gelu


def fast_gelu_grad(
    dY: Any,
    X: Any,
    *,
    runtime: Runtime | None = None,
    **options: Unpack[Options],
) -> Any:
    """The gradient of FastGelu.

    Args:
        dY: the gradient of Y (float16, bfloat16, float32, float64)
        X: FastGelu's input (float16, bfloat16, float32, float64)
        runtime: the process's shared one when not given
        options: how the call is run: `Options`

    Returns:
        dX: the gradient of X (float16, bfloat16, float32, float64)
    """
    result: Any = (runtime or default_runtime()).run(
        "FastGeluGrad",
        (dY, X),
        **options,
    )
    return result


FastGeluGrad = fast_gelu_grad


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


def gelu(
    X: Any,
    *,
    runtime: Runtime | None = None,
    **options: Unpack[Options],
) -> Any:
    """X times the normal distribution's probability below X.

    Args:
        X: any shape (float16, bfloat16, float32, float64)
        runtime: the process's shared one when not given
        options: how the call is run: `Options`

    Returns:
        Y: X's shape (float16, bfloat16, float32, float64)
    """
    result: Any = (runtime or default_runtime()).run(
        "Gelu",
        (X,),
        **options,
    )
    return result


Gelu = gelu


def gelu_grad(
    dY: Any,
    X: Any,
    *,
    runtime: Runtime | None = None,
    **options: Unpack[Options],
) -> Any:
    """The gradient of Gelu.

    Args:
        dY: the gradient of Y (float16, bfloat16, float32, float64)
        X: Gelu's input (float16, bfloat16, float32, float64)
        runtime: the process's shared one when not given
        options: how the call is run: `Options`

    Returns:
        dX: the gradient of X (float16, bfloat16, float32, float64)
    """
    result: Any = (runtime or default_runtime()).run(
        "GeluGrad",
        (dY, X),
        **options,
    )
    return result


GeluGrad = gelu_grad


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


def index_grad(
    shape: Any,
    dY: Any,
    indices0: Any,
    indices1: Any = None,
    indices2: Any = None,
    indices3: Any = None,
    indices4: Any = None,
    indices5: Any = None,
    indices6: Any = None,
    indices7: Any = None,
    *,
    axes: Sequence[int] | None = None,
    runtime: Runtime | None = None,
    **options: Unpack[Options],
) -> Any:
    """The gradient of x[.., i, j, ..]: zeros of `shape`, with every slice of dY added at its indices.

    Args:
        shape: the shape of dX (int64)
        dY: shape with the broadcast indices' dims in place of `axes`: at the first of them where they are
            neighbours, else in front (float16, bfloat16, float32, float64)
        indices0: of the first axis: any shape; values in [-s, s-1] for a dim of s (int32, int64)
        indices1: of the next axis; the indices' shapes are broadcast together (int32, int64; optional)
        indices2: of the next axis; the indices' shapes are broadcast together (int32, int64; optional)
        indices3: of the next axis; the indices' shapes are broadcast together (int32, int64; optional)
        indices4: of the next axis; the indices' shapes are broadcast together (int32, int64; optional)
        indices5: of the next axis; the indices' shapes are broadcast together (int32, int64; optional)
        indices6: of the next axis; the indices' shapes are broadcast together (int32, int64; optional)
        indices7: of the next axis; the indices' shapes are broadcast together (int32, int64; optional)
        axes: the indexed axes of dX, ascending, one an input; default: the first ones
        runtime: the process's shared one when not given
        options: how the call is run: `Options`

    Returns:
        dX: the gradient of x; duplicates are summed in the order of dY (float16, bfloat16, float32, float64)
    """
    result: Any = (runtime or default_runtime()).run(
        "IndexGrad",
        (shape, dY, indices0, indices1, indices2, indices3, indices4, indices5, indices6, indices7),
        axes=axes,
        **options,
    )
    return result


IndexGrad = index_grad


def layer_normalization(
    X: Any,
    Scale: Any,
    B: Any = None,
    *,
    axis: int = -1,
    epsilon: float = 1e-05,
    runtime: Runtime | None = None,
    **options: Unpack[Options],
) -> tuple[Any, Any, Any]:
    """X less its mean, divided by its deviation, over `axis` and all axes after it; scaled and shifted.

    Args:
        X: any shape of rank 1 or more (float16, bfloat16, float32, float64)
        Scale: the shape of what is normalised (float16, bfloat16, float32, float64)
        B: the same (float16, bfloat16, float32, float64; optional)
        axis: the first axis that is normalised
        epsilon: is added to the variance
        runtime: the process's shared one when not given
        options: how the call is run: `Options`

    Returns a tuple:
        Y: X's shape (float16, bfloat16, float32, float64)
        Mean: X's shape with 1 for the axes that are normalised; f32 (float32, float64; optional)
        InvStdDev: 1 / the deviation, of the same shape; f32 (float32, float64; optional)
    """
    result: tuple[Any, Any, Any] = (runtime or default_runtime()).run(
        "LayerNormalization",
        (X, Scale, B),
        axis=axis,
        epsilon=epsilon,
        **options,
    )
    return result


LayerNormalization = layer_normalization


def layer_normalization_grad(
    Y_grad: Any,
    X: Any,
    scale: Any,
    mean: Any,
    inv_std_dev: Any,
    *,
    axis: int = -1,
    runtime: Runtime | None = None,
    **options: Unpack[Options],
) -> tuple[Any, Any, Any]:
    """The gradients of LayerNormalization.

    Args:
        Y_grad: the gradient of Y (float16, bfloat16, float32, float64)
        X: LayerNormalization's input (float16, bfloat16, float32, float64)
        scale: the shape of what is normalised (float16, bfloat16, float32, float64)
        mean: LayerNormalization's Mean (float32, float64)
        inv_std_dev: its InvStdDev (float32, float64)
        axis: the first axis that is normalised
        runtime: the process's shared one when not given
        options: how the call is run: `Options`

    Returns a tuple:
        X_grad: the gradient of X (float16, bfloat16, float32, float64; optional)
        scale_grad: the gradient of Scale (float16, bfloat16, float32, float64; optional)
        bias_grad: the gradient of B (float16, bfloat16, float32, float64; optional)
    """
    result: tuple[Any, Any, Any] = (runtime or default_runtime()).run(
        "LayerNormalizationGrad",
        (Y_grad, X, scale, mean, inv_std_dev),
        axis=axis,
        **options,
    )
    return result


LayerNormalizationGrad = layer_normalization_grad


def log_softmax(
    X: Any,
    *,
    axis: int = -1,
    runtime: Runtime | None = None,
    **options: Unpack[Options],
) -> Any:
    """The logarithm of Softmax along an axis.

    Args:
        X: any shape of rank 1 or more (float16, bfloat16, float32, float64)
        axis: the axis that sums to 1
        runtime: the process's shared one when not given
        options: how the call is run: `Options`

    Returns:
        Y: X's shape (float16, bfloat16, float32, float64)
    """
    result: Any = (runtime or default_runtime()).run(
        "LogSoftmax",
        (X,),
        axis=axis,
        **options,
    )
    return result


LogSoftmax = log_softmax


def log_softmax_grad_13(
    dY: Any,
    Y: Any,
    *,
    axis: int = -1,
    runtime: Runtime | None = None,
    **options: Unpack[Options],
) -> Any:
    """The gradient of LogSoftmax, from its result.

    Args:
        dY: the gradient of Y (float16, bfloat16, float32, float64)
        Y: the result of LogSoftmax (float16, bfloat16, float32, float64)
        axis: the axis that sums to 1
        runtime: the process's shared one when not given
        options: how the call is run: `Options`

    Returns:
        dX: the gradient of X (float16, bfloat16, float32, float64)
    """
    result: Any = (runtime or default_runtime()).run(
        "LogSoftmaxGrad_13",
        (dY, Y),
        axis=axis,
        **options,
    )
    return result


LogSoftmaxGrad_13 = log_softmax_grad_13


def relu(
    X: Any,
    *,
    runtime: Runtime | None = None,
    **options: Unpack[Options],
) -> Any:
    """The larger of X and 0.

    Args:
        X: any shape (float16, bfloat16, float32, float64)
        runtime: the process's shared one when not given
        options: how the call is run: `Options`

    Returns:
        Y: X's shape (float16, bfloat16, float32, float64)
    """
    result: Any = (runtime or default_runtime()).run(
        "Relu",
        (X,),
        **options,
    )
    return result


Relu = relu


def relu_grad(
    dY: Any,
    X: Any,
    *,
    runtime: Runtime | None = None,
    **options: Unpack[Options],
) -> Any:
    """The gradient of Relu: dY where X is above 0, else 0.

    Args:
        dY: the gradient of Y (float16, bfloat16, float32, float64)
        X: Relu's input (float16, bfloat16, float32, float64)
        runtime: the process's shared one when not given
        options: how the call is run: `Options`

    Returns:
        dX: the gradient of X (float16, bfloat16, float32, float64)
    """
    result: Any = (runtime or default_runtime()).run(
        "ReluGrad",
        (dY, X),
        **options,
    )
    return result


ReluGrad = relu_grad


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


def softmax(
    X: Any,
    *,
    axis: int = -1,
    runtime: Runtime | None = None,
    **options: Unpack[Options],
) -> Any:
    """exp(X) along an axis, divided by its sum.

    Args:
        X: any shape of rank 1 or more (float16, bfloat16, float32, float64)
        axis: the axis that sums to 1
        runtime: the process's shared one when not given
        options: how the call is run: `Options`

    Returns:
        Y: X's shape (float16, bfloat16, float32, float64)
    """
    result: Any = (runtime or default_runtime()).run(
        "Softmax",
        (X,),
        axis=axis,
        **options,
    )
    return result


Softmax = softmax


def softmax_cross_entropy_loss(
    scores: Any,
    labels: Any,
    weights: Any = None,
    *,
    ignore_index: int | None = None,
    reduction: str = "mean",
    runtime: Runtime | None = None,
    **options: Unpack[Options],
) -> tuple[Any, Any]:
    """The weighted negative logarithm of Softmax over dim 1 at each label: all of them, their sum or mean.

    Args:
        scores: [N, classes, ...] (float16, bfloat16, float32, float64)
        labels: [N, ...], each in [0, classes - 1] or ignore_index (int32, int64)
        weights: [classes]; 1 when absent (float16, bfloat16, float32, float64; optional)
        ignore_index: a label that adds nothing
        reduction: none, sum, or mean: the sum divided by that of the labels' weights, 0 where that is 0
        runtime: the process's shared one when not given
        options: how the call is run: `Options`

    Returns a tuple:
        output: []; with reduction none, labels' shape (float16, bfloat16, float32, float64)
        log_prob: the logarithms of all probabilities (float16, bfloat16, float32, float64; optional)
    """
    result: tuple[Any, Any] = (runtime or default_runtime()).run(
        "SoftmaxCrossEntropyLoss",
        (scores, labels, weights),
        ignore_index=ignore_index,
        reduction=reduction,
        **options,
    )
    return result


SoftmaxCrossEntropyLoss = softmax_cross_entropy_loss


def softmax_cross_entropy_loss_grad(
    dY: Any,
    log_prob: Any,
    label: Any,
    weight: Any = None,
    *,
    ignore_index: int | None = None,
    reduction: str = "mean",
    runtime: Runtime | None = None,
    **options: Unpack[Options],
) -> Any:
    """The gradient of SoftmaxCrossEntropyLoss, from its log_prob.

    Args:
        dY: the gradient of output (float16, bfloat16, float32, float64)
        log_prob: the second output of SoftmaxCrossEntropyLoss (float16, bfloat16, float32, float64)
        label: its labels (int32, int64)
        weight: its weights (float16, bfloat16, float32, float64; optional)
        ignore_index: a label that adds nothing
        reduction: none, sum, or mean: the sum divided by that of the labels' weights, 0 where that is 0
        runtime: the process's shared one when not given
        options: how the call is run: `Options`

    Returns:
        d_logits: the gradient of scores (float16, bfloat16, float32, float64)
    """
    result: Any = (runtime or default_runtime()).run(
        "SoftmaxCrossEntropyLossGrad",
        (dY, log_prob, label, weight),
        ignore_index=ignore_index,
        reduction=reduction,
        **options,
    )
    return result


SoftmaxCrossEntropyLossGrad = softmax_cross_entropy_loss_grad


def softmax_grad_13(
    dY: Any,
    Y: Any,
    *,
    axis: int = -1,
    runtime: Runtime | None = None,
    **options: Unpack[Options],
) -> Any:
    """The gradient of Softmax, from its result.

    Args:
        dY: the gradient of Y (float16, bfloat16, float32, float64)
        Y: the result of Softmax (float16, bfloat16, float32, float64)
        axis: the axis that sums to 1
        runtime: the process's shared one when not given
        options: how the call is run: `Options`

    Returns:
        dX: the gradient of X (float16, bfloat16, float32, float64)
    """
    result: Any = (runtime or default_runtime()).run(
        "SoftmaxGrad_13",
        (dY, Y),
        axis=axis,
        **options,
    )
    return result


SoftmaxGrad_13 = softmax_grad_13


def sparse_gather_grad(
    shape: Any,
    indices: Any,
    dY: Any,
    *,
    padding_idx: int | None = None,
    runtime: Runtime | None = None,
    **options: Unpack[Options],
) -> tuple[Any, Any]:
    """The gradient of Gather along axis 0, row-sparse: the rows that indices name, and their sums.

    Args:
        shape: the shape of Gather's data (int64)
        indices: any shape; values in [-s, s-1] for a dim 0 of s (int32, int64)
        dY: indices' dims, then shape without its first (float16, bfloat16, float32, float64)
        padding_idx: indices of this row are left out, negative counts from the end; default: none
        runtime: the process's shared one when not given
        options: how the call is run: `Options`

    Returns a tuple:
        rows: rank 1: the rows that are named, ascending (int64)
        values: shape with as many rows as there are in `rows`: those of GatherGrad's dX (float16, bfloat16,
            float32, float64)
    """
    result: tuple[Any, Any] = (runtime or default_runtime()).run(
        "SparseGatherGrad",
        (shape, indices, dY),
        padding_idx=padding_idx,
        **options,
    )
    return result


SparseGatherGrad = sparse_gather_grad

__all__ = [
    "BroadcastGrad",
    "BroadcastGradientArgs",
    "EmbeddingBagGrad",
    "FastGelu",
    "FastGeluGrad",
    "GRUGrad",
    "GRUTraining",
    "GatherElementsGrad",
    "GatherGrad",
    "Gelu",
    "GeluGrad",
    "IndexGrad",
    "LayerNormalization",
    "LayerNormalizationGrad",
    "LogSoftmax",
    "LogSoftmaxGrad_13",
    "Relu",
    "ReluGrad",
    "SliceGrad",
    "Softmax",
    "SoftmaxCrossEntropyLoss",
    "SoftmaxCrossEntropyLossGrad",
    "SoftmaxGrad_13",
    "SparseGatherGrad",
    "broadcast_grad",
    "broadcast_gradient_args",
    "embedding_bag_grad",
    "fast_gelu",
    "fast_gelu_grad",
    "gather_elements_grad",
    "gather_grad",
    "gelu",
    "gelu_grad",
    "gru_grad",
    "gru_training",
    "index_grad",
    "layer_normalization",
    "layer_normalization_grad",
    "log_softmax",
    "log_softmax_grad_13",
    "relu",
    "relu_grad",
    "slice_grad",
    "softmax",
    "softmax_cross_entropy_loss",
    "softmax_cross_entropy_loss_grad",
    "softmax_grad_13",
    "sparse_gather_grad",
]
