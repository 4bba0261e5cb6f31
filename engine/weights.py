"""The tensors of a model file, handed out by name while a model is built.

Every tensor is checked against the shape the configuration asks for, and taken exactly once; what
is left over at the end belongs to something this program does not compute. Nothing is dequantised
here except vectors.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from engine.errors import ModelFileError, UnsupportedModelError
from engine.gguf_file import GGUFFile, TensorInfo
from engine.layers.norm import LayerNorm, Norm, RMSNorm
from engine.quant.dequantize import block_format, dequantize
from engine.quant.linear import Compute, QuantEmbedding, QuantExperts, QuantLinear


class Weights:
    """Tensors whose names begin with prefix. Names are given without ".weight".

    computes: what each layer computes with; what comes before the layers goes with the first one.
    """

    def __init__(self, file: GGUFFile, computes: Sequence[Compute]) -> None:
        self.compute = computes[0]
        self._computes = computes
        self._file = file
        self._prefix = ""
        self._taken: set[str] = set()

    def scope(self, prefix: str) -> Weights:
        """Return a view on the tensors below a prefix; what it takes is taken here too."""
        child = Weights(self._file, self._computes)
        child.compute = self.compute
        child._prefix = self._prefix + prefix
        child._taken = self._taken
        return child

    def layer(self, number: int) -> Weights:
        """Return a view on the tensors of one layer, for the device it is on."""
        child = self.scope(f"blk.{number}.")
        child.compute = self._computes[number]
        return child

    def behind_layers(self) -> Weights:
        """Return a view on the same tensors, for the device of the last layer."""
        child = self.scope("")
        child.compute = self._computes[-1]
        return child

    def has(self, name: str) -> bool:
        """Tell whether the file holds a tensor, by its full name below the prefix."""
        return self._prefix + name in self._file.tensors

    def linear(
        self, name: str, out_features: int, in_features: int, *, is_head: bool = False
    ) -> QuantLinear:
        """Take a matrix, and its bias where the file has one.

        Raises: ModelFileError naming a tensor that is missing or wrongly shaped;
        UnsupportedModelError for a type that cannot be decoded.
        """
        info = self._take(f"{name}.weight", (out_features, in_features))
        bias = self.vector(f"{name}.bias", out_features) if self.has(f"{name}.bias") else None
        return QuantLinear(
            self._file.data(info.name),
            info.type,
            (out_features, in_features),
            compute=self.compute.for_head() if is_head else self.compute,
            bias=bias,
        )

    def experts(
        self, name: str, num_experts: int, out_features: int, in_features: int
    ) -> QuantExperts:
        """Take a stack of matrices, one per expert, with biases where the file has them.

        Raises: as ``linear``.
        """
        shape = (num_experts, out_features, in_features)
        info = self._take(f"{name}.weight", shape)
        has_bias = self.has(f"{name}.bias")
        bias = self.vector(f"{name}.bias", num_experts, out_features) if has_bias else None
        return QuantExperts(
            self._file.data(info.name), info.type, shape, compute=self.compute, bias=bias
        )

    def embedding(self, name: str, num_rows: int, columns: int) -> QuantEmbedding:
        """Take a matrix that is looked up by rows.

        Raises: as ``linear``.
        """
        info = self._take(f"{name}.weight", (num_rows, columns))
        data = self._file.data(info.name)
        return QuantEmbedding(data, info.type, (num_rows, columns), compute=self.compute)

    def head(self, out_features: int, in_features: int) -> QuantLinear:
        """Take the output matrix; a file without one uses its embedding.

        Raises: as ``linear``.
        """
        name = "output" if self.has("output.weight") else "token_embd"
        return self.linear(name, out_features, in_features, is_head=True)

    def norm(self, name: str, size: int, eps: float) -> Norm:
        """Take a norm: LayerNorm where the file has a bias, else RMSNorm.

        Raises: as ``linear``.
        """
        weight = self.vector(f"{name}.weight", size)
        if self.has(f"{name}.bias"):
            return LayerNorm(weight, self.vector(f"{name}.bias", size), eps)
        return RMSNorm(weight, eps)

    def vector(self, name: str, *shape: int) -> Tensor:
        """Take a small tensor by its full name, as float32.

        Raises: as ``linear``.
        """
        info = self._take(name, shape)
        values = dequantize(self._file.data(info.name), info.type, shape)
        return values.to(self.compute.device)

    def finish(self) -> None:
        """Make sure that nothing was left over.

        Raises: UnsupportedModelError naming a tensor that the architecture does not use.
        """
        unused = sorted(self._file.tensors.keys() - self._taken)
        if unused:
            message = "The model has parts that are not supported here."
            raise UnsupportedModelError(message, detail=f"unused tensors: {', '.join(unused[:8])}")

    def _take(self, name: str, shape: tuple[int, ...]) -> TensorInfo:
        info = self._file.tensors.get(self._prefix + name)
        if info is None:
            message = "A part of the model is missing in the file."
            raise ModelFileError(message, detail=f"no tensor {self._prefix + name}")
        if _squeezed(info.shape) != _squeezed(shape):
            raise ModelFileError(
                "A part of the model has the wrong size.",
                detail=f"{info.name}: expected {shape}, found {info.shape}",
            )
        block_format(info.type)
        self._taken.add(info.name)
        return info


def _squeezed(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Drop sizes of one: converters disagree on whether to keep them."""
    return tuple(size for size in shape if size != 1)
