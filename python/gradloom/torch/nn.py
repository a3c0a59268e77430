"""Modules of PyTorch's, with gradients by gradloom: the same arguments, parameters and state."""

from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from gradloom.torch._activation import gelu, log_softmax, relu, softmax
from gradloom.torch._cross_entropy import cross_entropy
from gradloom.torch._embedding import embedding
from gradloom.torch._embedding_bag import embedding_bag
from gradloom.torch._gru import gru_data, gru_input
from gradloom.torch._layer_norm import layer_norm


class ReLU(torch.nn.ReLU):
    """`torch.nn.ReLU`, with ReluGrad as its gradient; PyTorch's own in place."""

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input) if self.inplace else relu(input)


class GELU(torch.nn.GELU):
    """`torch.nn.GELU`, with GeluGrad or FastGeluGrad as its gradient."""

    def forward(self, input: Tensor) -> Tensor:
        return gelu(input, approximate=self.approximate)


class Softmax(torch.nn.Softmax):
    """`torch.nn.Softmax` of a given dim, with SoftmaxGrad_13 as its gradient."""

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input) if self.dim is None else softmax(input, self.dim)


class LogSoftmax(torch.nn.LogSoftmax):
    """`torch.nn.LogSoftmax` of a given dim, with LogSoftmaxGrad_13 as its gradient."""

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input) if self.dim is None else log_softmax(input, self.dim)


class LayerNorm(torch.nn.LayerNorm):
    """`torch.nn.LayerNorm`, with LayerNormalizationGrad as its gradient."""

    def forward(self, input: Tensor) -> Tensor:
        return layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)


class CrossEntropyLoss(torch.nn.CrossEntropyLoss):
    """`torch.nn.CrossEntropyLoss`, with SoftmaxCrossEntropyLossGrad as its gradient where `cross_entropy` has it."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return cross_entropy(
            input,
            target,
            self.weight,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
            label_smoothing=self.label_smoothing,
        )


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


class EmbeddingBag(torch.nn.EmbeddingBag):
    """`torch.nn.EmbeddingBag`, with EmbeddingBagGrad as its gradient."""

    def forward(self, input: Tensor, offsets: Tensor | None = None, per_sample_weights: Tensor | None = None) -> Tensor:
        return embedding_bag(
            input,
            self.weight,
            offsets,
            self.max_norm,
            self.norm_type,
            self.scale_grad_by_freq,
            self.mode,
            self.sparse,
            per_sample_weights,
            self.include_last_offset,
            self.padding_idx,
        )


# Not a torch.nn.GRU: torch.compile refuses to trace any of those.
class GRU(torch.nn.RNNBase):
    """`torch.nn.GRU`, by GRUTraining and GRUGrad."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if "proj_size" in kwargs:
            raise ValueError("proj_size argument is only supported for LSTM, not RNN or GRU")
        super().__init__("GRU", *args, **kwargs)

    def forward(self, input: Any, hx: Tensor | None = None) -> tuple[Any, Tensor]:
        """Of a tensor or a PackedSequence: the outputs as one of that kind, and the last states."""
        if isinstance(input, PackedSequence):
            result: tuple[PackedSequence, Tensor] = self._packed(input, hx)
            return result
        if input.dim() not in (2, 3):
            raise ValueError(f"GRU: Expected input to be 2D or 3D, got {input.dim()}D instead")
        if hx is not None and hx.dim() != input.dim():
            raise RuntimeError(f"GRU: hx is {hx.dim()}-D; expected {input.dim()}-D, as input")
        if input.dim() == 3:
            return self._batched(input, hx)
        batch = 0 if self.batch_first else 1
        output, hidden = self._batched(input.unsqueeze(batch), None if hx is None else hx.unsqueeze(1))
        return output.squeeze(batch), hidden.squeeze(1)

    def _batched(self, input: Tensor, hx: Tensor | None) -> tuple[Tensor, Tensor]:
        if hx is None:
            hx = self._zeros(input, input.shape[0 if self.batch_first else 1])
        self.check_forward_args(input, hx, None)
        if input.shape[1 if self.batch_first else 0] == 0:
            raise RuntimeError("Expected sequence length to be larger than 0 in RNN")
        result: tuple[Tensor, Tensor] = gru_input(input, hx, *self._options(), self.batch_first)
        return result

    @torch.compiler.disable  # type: ignore[untyped-decorator,unused-ignore]  # its shapes depend on data
    def _packed(self, input: PackedSequence, hx: Tensor | None) -> tuple[PackedSequence, Tensor]:
        data, batch_sizes, sorted_indices, unsorted_indices = input
        hx = self._zeros(data, int(batch_sizes[0])) if hx is None else self.permute_hidden(hx, sorted_indices)
        self.check_forward_args(data, hx, batch_sizes)
        output, hidden = gru_data(data, batch_sizes, hx, *self._options())
        packed = PackedSequence(output, batch_sizes, sorted_indices, unsorted_indices)
        return packed, self.permute_hidden(hidden, unsorted_indices)

    def _zeros(self, like: Tensor, batch: int) -> Tensor:
        return like.new_zeros((self.num_layers * (2 if self.bidirectional else 1), batch, self.hidden_size))

    def _options(self) -> tuple[Any, ...]:
        params = [getattr(self, name) for layer in self._all_weights for name in layer]
        return params, self.bias, self.num_layers, self.dropout, self.training, self.bidirectional


__all__ = ["GELU", "GRU", "CrossEntropyLoss", "Embedding", "EmbeddingBag", "LayerNorm", "LogSoftmax", "ReLU", "Softmax"]
