"""What PyTorch asks of indices and dims, where gradloom's ops allow more."""

import torch
from torch import Tensor

from gradloom.errors import OutOfRange

INDEX_DTYPES = (torch.int32, torch.int64)


def check_not_negative(op: str, index: Tensor, size: int) -> None:
    """gradloom's ops count negative indices from the end; a label of -1 or -100 that came here is a mistake."""
    if index.numel() and int(index.min()) < 0:
        position = int((index.reshape(-1) < 0).nonzero()[0])
        value = int(index.reshape(-1)[position])
        raise OutOfRange(f"gradloom::{op}: index[{position}] is {value}; it must be in [0, {size - 1}]")


def wrapped_dim(op: str, dim: int, rank: int) -> int:
    """The dim, counted from the front. A scalar has one, too, as in PyTorch."""
    most = max(rank, 1)
    if not -most <= dim < most:
        raise OutOfRange(f"gradloom::{op}: dim is {dim}; it must be in [{-most}, {most - 1}]")
    return dim % most


__all__ = ["INDEX_DTYPES", "check_not_negative", "wrapped_dim"]
