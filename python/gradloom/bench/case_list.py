"""The cases, by name. All but GRU's and the declared ops' are those of the command's `gradloom bench`."""

from collections.abc import Sequence

from gradloom.bench.cases import Broadcast, Case, Gather, GatherElements, Gru, Slice
from gradloom.bench.declared import Declared

_S3 = 64, 512, 768
_VECTOR, _ROWS = (1 << 24,), (8192, 1024)

CASES: list[Case] = [
    GatherElements("ge_ax0", (4096, 4096), 0, (4096, 4096)),
    GatherElements("ge_ax1", (4096, 4096), 1, (4096, 4096)),
    GatherElements("ge_3d", (64, 1024, 256), 1, (64, 128, 256)),
    GatherElements("ge_1d", (1 << 24,), 0, (1 << 22,)),
    Gather("gg_uni", (50000, 768), (8, 512)),
    Gather("gg_zipf", (50000, 768), (8, 512), zipf=True),
    Gather("gg_1m", (1000000, 64), (65536,)),
    Slice("sl_mid", _S3, {1: (1, -1, 1)}),
    Slice("sl_step2", (8192, 8192), {0: (None, None, 2), 1: (None, None, 2)}),
    Slice("sl_negrow", _S3, {1: (None, None, -1)}),
    Slice("sl_neginner", (4096, 4096), {1: (None, None, -2)}),
    Slice("sl_inner", _S3, {2: (64, 128, 1)}),
    Broadcast("bg_768", _S3, (768,)),
    Broadcast("bg_row", _S3, (64, 1, 768)),
    Broadcast("bg_col", _S3, (64, 512, 1)),
    Gru("gru_a", 50, 32, 128, 256),
    Gru("gru_b", 128, 64, 512, 512),
    Gru("gru_c", 20, 1, 64, 128),
    Declared("relu", "ReluGrad", _VECTOR),
    Declared("gelu", "GeluGrad", _VECTOR),
    Declared("fast_gelu", "FastGeluGrad", _VECTOR),
    Declared("softmax", "SoftmaxGrad_13", _ROWS),
    Declared("log_softmax", "LogSoftmaxGrad_13", _ROWS),
    Declared("layer_norm", "LayerNormalizationGrad", _ROWS),
    Declared("cross_entropy", "SoftmaxCrossEntropyLossGrad", (4096, 32000)),
]


def chosen(names: Sequence[str]) -> list[Case]:
    """By a case's name, its group's, or all. A KeyError has the name that is none."""
    for name in names:
        if name != "all" and not any(name in (case.name, case.group) for case in CASES):
            raise KeyError(name)
    return [case for case in CASES if {"all", case.name, case.group} & set(names)]
