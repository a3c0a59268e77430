"""Writes the cases of the ops of ops/declared: what the kernels of ONNX Runtime 1.19.2 give. Needs onnxruntime-training-cpu==1.19.2 onnx==1.16.2 "numpy<2" ml_dtypes;
run from this folder."""

import json

import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper

ONNX_TYPES = {
    "float32": TensorProto.FLOAT,
    "float64": TensorProto.DOUBLE,
    "float16": TensorProto.FLOAT16,
    "int32": TensorProto.INT32,
    "int64": TensorProto.INT64,
}
INF, NAN = np.inf, np.nan


def run(op, inputs, outputs, attributes, domain):
    """`outputs`: a dtype each, None for one that is left out. Returns arrays."""
    nodes = [
        helper.make_node(
            op,
            ["" if x is None else f"x{i}" for i, x in enumerate(inputs)],
            ["" if t is None else f"y{i}" for i, t in enumerate(outputs)],
            domain=domain,
            **attributes,
        )
    ]
    given = [
        helper.make_tensor_value_info(f"x{i}", ONNX_TYPES[str(x.dtype)], None)
        for i, x in enumerate(inputs)
        if x is not None
    ]
    made = [helper.make_tensor_value_info(f"y{i}", ONNX_TYPES[t], None) for i, t in enumerate(outputs) if t is not None]
    model = helper.make_model(
        helper.make_graph(nodes, "g", given, made),
        ir_version=9,
        opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)],
    )
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    values = iter(session.run(None, {f"x{i}": x for i, x in enumerate(inputs) if x is not None}))
    return [None if t is None else next(values) for t in outputs]


def tensor(x):
    if x is None:
        return None
    flat = (
        [float(v) if np.isfinite(v) else "nan" if np.isnan(v) else "inf" if v > 0 else "-inf" for v in x.flatten()]
        if x.dtype.kind == "f"
        else x.flatten().tolist()
    )
    if x.dtype == np.float32:
        flat = [
            v if isinstance(v, str) else float(np.format_float_positional(np.float32(v), unique=True, trim="0"))
            for v in flat
        ]
    return {"dtype": str(x.dtype), "shape": list(x.shape), "data": flat}


def case(
    op,
    name,
    inputs,
    outputs=("float32",),
    attributes={},
    domain="com.microsoft",
    rtol=1e-6,
    atol=1e-6,
    ort_op=None,
    reference=None,
):
    """`reference`: what is expected instead, where ORT has no kernel or a fault."""
    source = "ONNX Runtime 1.19.2"
    if reference is not None:
        wanted, source = reference, "numpy reference, float64 (ORT 1.19.2 refuses or has no kernel)"
    else:
        wanted = run(ort_op or op, inputs, outputs, attributes, domain)
    prefix = "".join(("_" if c.isupper() and i else "") + c.lower() for i, c in enumerate(op))
    with open(f"{prefix}__{name}.json", "w") as file:
        json.dump(
            {
                "name": f"{prefix}/{name}",
                "op": op,
                "attributes": attributes,
                "inputs": [tensor(x) for x in inputs],
                "outputs": [tensor(x) for x in wanted],
                "tolerance": {"rtol": rtol, "atol": atol},
                "source": source,
            },
            file,
            separators=(",", ":"),
        )


def values(seed, *shape, dtype=np.float32):
    return np.asarray(np.random.default_rng(seed).standard_normal(shape)).astype(dtype)


SPECIAL = np.array([NAN, INF, -INF, 0.0, -0.0, 1e-40, -1e-40, 3e38, 1, -1], np.float32)


def relu():
    pairs = np.meshgrid(SPECIAL, SPECIAL, indexing="ij")
    for name, dy, x in [
        ("plain", values(1, 3, 5), values(2, 3, 5)),
        ("empty", values(1, 0, 4), values(2, 0, 4)),
        ("scalar", values(3), values(4)),
        ("special", pairs[0].copy(), pairs[1].copy()),
    ]:
        case("ReluGrad", name, [dy, x], rtol=0, atol=0)
        case("Relu", name, [x], domain="", rtol=0, atol=0)
    case("Relu", "double", [values(5, 7, dtype=np.float64)], ["float64"], domain="", rtol=0, atol=0)
    case(
        "ReluGrad",
        "half",
        [values(6, 7, dtype=np.float16), values(7, 7, dtype=np.float16)],
        ["float16"],
        rtol=0,
        atol=0,
    )


def gelu():
    wide = np.linspace(-7, 7, 57, dtype=np.float32)
    # Where ORT gives NaN for its exponent's overflow or 0 * inf, the limit is expected.
    some = np.array([NAN, 0.0, -0.0, 1e-40, 1, -1], np.float32)
    for op in ["Gelu", "FastGelu"]:
        for name, x in [
            ("plain", values(1, 3, 5)),
            ("empty", values(1, 0, 4)),
            ("scalar", values(2)),
            ("wide", wide),
            ("special", some),
        ]:
            x = x.reshape(1) if op == "FastGelu" and x.ndim == 0 else x  # it refuses rank 0
            case(op, name, [x], rtol=3e-6)
            case(op + "Grad", name, [values(3, *x.shape), x], rtol=3e-6)
        case(
            op + "Grad",
            "half",
            [values(6, 7, dtype=np.float16), values(7, 7, dtype=np.float16)],
            ["float16"],
            rtol=2e-3,
            atol=1e-3,
        )


def softmax():
    odd = np.array(
        [[NAN, 1, 2], [INF, 1, 0], [-INF, -INF, -INF], [-INF, 0, 1], [100, -100, 0], [-0.0, 0.0, 0.0]], np.float32
    )
    cases = [
        ("plain", values(1, 4, 7), {}),
        ("axis0", values(2, 5, 3), {"axis": 0}),
        ("middle", values(3, 2, 5, 3), {"axis": 1}),
        ("negative_axis", values(4, 2, 5, 3), {"axis": -3}),
        ("one", values(5, 4, 1), {}),
        ("vector", values(6, 300), {}),
        ("no_rows", values(7, 0, 3), {}),
        ("no_columns", values(8, 2, 0), {}),
        ("special", odd, {}),
    ]
    for op in ["Softmax", "LogSoftmax"]:
        for name, x, attributes in cases:
            case(op, name, [x], attributes=attributes, domain="")
            (y,) = run(op, [x], ["float32"], attributes, "")
            case(op + "Grad_13", name, [values(9, *x.shape), y], attributes=attributes)
        x = values(11, 3, 4, dtype=np.float64)
        case(op, "double", [x], ["float64"], domain="", rtol=1e-14, atol=1e-15)
        y, dy = run(op, [x], ["float64"], {}, "")[0], values(12, 3, 4, dtype=np.float64)
        gradient = (
            (dy - (dy * y).sum(-1, keepdims=True)) * y
            if op == "Softmax"
            else dy - np.exp(y) * dy.sum(-1, keepdims=True)
        )
        case(op + "Grad_13", "double", [dy, y], reference=[gradient], rtol=1e-14, atol=1e-15)
        case(op + "Grad_13", "half", [dy.astype(np.float16), y.astype(np.float16)], ["float16"], rtol=2e-3, atol=1e-3)


def layer_normalization():
    cases = [
        ("plain", (4, 6), {}),
        ("rank3", (2, 3, 5), {}),
        ("axis1", (2, 3, 4), {"axis": 1}),
        ("all", (3, 4), {"axis": 0}),
        ("negative_axis", (2, 3, 4), {"axis": -2}),
        ("vector", (300,), {}),
        ("epsilon", (4, 6), {"epsilon": 0.5}),
    ]
    for name, shape, attributes in cases:
        axis = attributes.get("axis", -1)
        x, scale, bias = values(1, *shape), values(2, *shape[axis:]), values(3, *shape[axis:])
        case("LayerNormalization", name, [x, scale, bias], ["float32"] * 3, attributes, "", rtol=5e-6, atol=2e-6)
        y, mean, inverse = run("LayerNormalization", [x, scale, bias], ["float32"] * 3, attributes, "")
        own = {k: v for k, v in attributes.items() if k == "axis"}
        case(
            "LayerNormalizationGrad",
            name,
            [values(4, *shape), x, scale, mean, inverse],
            ["float32"] * 3,
            own,
            rtol=5e-6,
            atol=3e-6,
        )
    x, scale, bias = values(1, 4, 6), values(2, 6), values(3, 6)
    case("LayerNormalization", "no_bias", [x, scale], ["float32", None, "float32"], {}, "", rtol=5e-6, atol=2e-6)
    case(
        "LayerNormalization", "constant", [np.ones((2, 6), np.float32), scale, bias], ["float32"] * 3, {}, "", rtol=5e-6
    )
    double = [v.astype(np.float64) for v in (x, scale, bias)]
    case("LayerNormalization", "double", double, ["float64", "float32", "float32"], {}, "", rtol=1e-7, atol=1e-7)
    x, scale, dy = double[0], double[1], values(4, 4, 6, dtype=np.float64)
    mean = x.mean(-1, keepdims=True)
    inverse = 1 / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
    normal, g = (x - mean) * inverse, dy * scale
    dx = (g - g.mean(-1, keepdims=True) - normal * (g * normal).mean(-1, keepdims=True)) * inverse
    case(
        "LayerNormalizationGrad",
        "double",
        [dy, x, scale, mean, inverse],
        reference=[dx, (dy * normal).sum(0), dy.sum(0)],
        rtol=1e-13,
        atol=1e-13,
    )
    x, scale = values(1, 4, 6), values(2, 6)
    none = [v[:0] for v in (values(4, 4, 6), x)]
    zeros = np.zeros(6, np.float32)
    stats = [np.zeros((0, 1), np.float32)] * 2
    case(
        "LayerNormalizationGrad",
        "no_rows",
        none + [scale] + stats,
        attributes={},
        reference=[none[0], zeros, zeros],
        rtol=0,
        atol=0,
    )
    one = [values(4, 3, 1), values(5, 3, 1), values(6, 1), values(5, 3, 1), np.ones((3, 1), np.float32)]
    case(
        "LayerNormalizationGrad",
        "one_column",
        one,
        reference=[np.zeros((3, 1), np.float32), np.zeros(1, np.float32), one[0].sum(0)],
        rtol=1e-6,
        atol=1e-6,
    )


def cross_entropy():
    forward, backward = "SoftmaxCrossEntropyLoss", "SoftmaxCrossEntropyLossGrad"
    scores, labels, weights = values(1, 4, 5), np.array([0, 4, 2, 1]), np.abs(values(2, 5))
    image, places = values(3, 2, 5, 3), np.array([[0, 4, 3], [2, 1, 1]])
    ignoring = np.array([0, -1, 2, -1])
    cases = [
        (reduction + w, scores, labels, [weights] if w else [], {"reduction": reduction})
        for reduction in ["none", "sum", "mean"]
        for w in ["", "_weights"]
    ]
    cases += [
        ("default", scores, labels, [], {}),
        ("int32", scores, labels.astype(np.int32), [], {}),
        ("image", image, places, [weights], {}),
        ("image_none", image, places, [], {"reduction": "none"}),
        ("ignored", scores, ignoring, [], {"ignore_index": -1}),
        ("ignored_weights", scores, labels, [weights], {"ignore_index": 2, "reduction": "mean"}),
        ("ignored_none", scores, ignoring, [], {"ignore_index": -1, "reduction": "none"}),
        ("all_ignored", scores, labels * 0 + 2, [], {"ignore_index": 2}),
        ("one_class", values(4, 3, 1), np.zeros(3, np.int64), [], {}),
        ("wide", values(5, 2, 700) * 8, np.array([699, 0]), [], {}),
    ]
    for name, x, where, more, attributes in cases:
        tolerance = {"rtol": 3e-6, "atol": 1e-6}
        case(forward, name, [x, where, *more], ["float32", "float32"], attributes, "", **tolerance)
        loss, log_prob = run(forward, [x, where, *more], ["float32", "float32"], attributes, "")
        case(backward, name, [values(6, *np.shape(loss)), log_prob, where, *more], attributes=attributes, **tolerance)
    case(
        backward,
        "zero_weights",
        [values(6), run(forward, [scores, labels], ["float32"] * 2, {}, "")[1], labels, weights * 0],
    )


relu()
gelu()
softmax()
layer_normalization()
cross_entropy()
