"""Modules of PyTorch's, with gradients by gradloom: the same arguments, parameters and state."""

import torch
from torch import Tensor

from gradloom.torch._embedding import embedding


class Embedding(torch.nn.Embedding):
    """`torch.nn.Embedding`, with GatherGrad as its gradient."""

    def forward(self, input: Tensor) -> Tensor:
        return embedding(
            input,
            self.weight,
            self.padding_idx,
            self.max_norm,
            self.norm_type,
            self.scale_grad_by_freq,
            self.sparse,
        )


__all__ = ["Embedding"]
