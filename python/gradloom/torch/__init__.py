"""gradloom for PyTorch: ops and modules whose gradients are gradloom's.

The functions have the names and arguments of PyTorch's, and the results: only the gradient is computed by another
kernel. `gradloom.torch.nn` has modules. The ops are `torch.ops.gradloom.*`.
"""

try:
    import torch as _torch
except ImportError as error:
    raise ImportError(f"gradloom.torch needs PyTorch: pip install torch ({error})") from None
if not hasattr(_torch, "get_autocast_dtype"):
    raise ImportError(f"gradloom.torch needs PyTorch 2.4 or later; this is {_torch.__version__}")

from gradloom.torch import nn
from gradloom.torch._activation import gelu, log_softmax, relu, softmax
from gradloom.torch._cross_entropy import cross_entropy
from gradloom.torch._embedding import embedding
from gradloom.torch._embedding_bag import embedding_bag
from gradloom.torch._expand import expand, sum_to_size
from gradloom.torch._gather import gather, scatter_add, take_along_dim
from gradloom.torch._index import index_add, index_select
from gradloom.torch._layer_norm import layer_norm
from gradloom.torch._nest import Nest
from gradloom.torch._override import OpStats, Stats, disable, enable, enabled, stats
from gradloom.torch._runtime import runtime
from gradloom.torch._slice import narrow, select, slice

__all__ = [
    "Nest",
    "OpStats",
    "Stats",
    "cross_entropy",
    "disable",
    "embedding",
    "embedding_bag",
    "enable",
    "enabled",
    "expand",
    "gather",
    "gelu",
    "index_add",
    "index_select",
    "layer_norm",
    "log_softmax",
    "narrow",
    "nn",
    "relu",
    "runtime",
    "scatter_add",
    "select",
    "slice",
    "softmax",
    "stats",
    "sum_to_size",
    "take_along_dim",
]
