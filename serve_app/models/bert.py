"""BERT encoders (MiniLM, bge, e5, gte …) from their published weights: the layers and nothing around them.

Owns the weights, read from `model.safetensors`, which stays mapped: what nobody looks up takes no memory.
Promises the vectors that transformers' BertModel would give, up to rounding. Encoders of other kinds, and
files that are not exactly as expected, are left to `any_encoder`.

Texts of many lengths share one pass: their tokens lie one behind the other, and only attention, a small
part of the work, goes over them length by length. So a batch has little padding, in float32 none. TorchScript
runs a pass as one call, which lets go of the interpreter's lock for all of it: step by step, each of
its hundred steps would wait for a busy event loop.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain, groupby
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from torch import Tensor
from torch.nn import functional

from serve_app.models.graphs import LENGTHS, Captured, Graph, Graphs, Pass, Shape
from serve_app.models.pooling import compress, pool

__all__ = ["Bert", "open_bert"]

WEIGHTS, CONFIG = "model.safetensors", "config.json"

PREFIXES = ("", "bert.")
"""Before the names of the weights: the second where a model for another task was published."""

POSITION_NUMBERS = "embeddings.position_ids"
"""0, 1, 2, …: saved by old releases of transformers."""

QUERY_KEY_VALUE = ("attention.self.query", "attention.self.key", "attention.self.value")
"""The parts of a layer that are computed as one."""

OTHERS = (
    "attention.output.dense",
    "attention.output.LayerNorm",
    "intermediate.dense",
    "output.dense",
    "output.LayerNorm",
)
"""The other parts of a layer, in their order."""

HALF_MULTIPLE = 8
"""Lengths in half precision are rounded up to it. oneDNN keeps compiled kernels for each shape that it has met: with
every length of its own that was 480 MB after 300 mixed batches. Float32 does not go through oneDNN."""


class BertShape(NamedTuple):
    """What `config.json` says about a BERT encoder."""

    layers: int
    heads: int
    width: int
    inner: int
    words: int
    positions: int
    types: int
    pad_id: int
    epsilon: float

    def tensors(self) -> dict[str, tuple[int, ...]]:
        """Every weight by name, with its shape."""
        shapes: dict[str, tuple[int, ...]] = {
            "embeddings.word_embeddings.weight": (self.words, self.width),
            "embeddings.position_embeddings.weight": (self.positions, self.width),
            "embeddings.token_type_embeddings.weight": (self.types, self.width),
        }
        parts = [f"encoder.layer.{layer}.{part}" for layer in range(self.layers) for part in QUERY_KEY_VALUE + OTHERS]
        for part in ["embeddings.LayerNorm", *parts]:
            rows = self.inner if part.endswith("intermediate.dense") else self.width
            columns = self.inner if part.endswith(".output.dense") and "attention" not in part else self.width
            shapes[f"{part}.weight"] = (rows,) if part.endswith("LayerNorm") else (rows, columns)
            shapes[f"{part}.bias"] = (rows,)
        return shapes


def open_bert(folder: Path, *, cls: bool, number_format: torch.dtype, device: torch.device) -> Bert | None:
    """The encoder in a folder; None where it is of another kind, or its files are not as expected."""
    path = folder / WEIGHTS
    try:
        shape = _shape(json.loads((folder / CONFIG).read_text("utf-8")))
        prefix = None if shape is None else _prefix(shape, path)
    except (OSError, ValueError, SafetensorError):
        return None
    if shape is None or prefix is None:
        return None
    return Bert(path, prefix, shape, cls=cls, number_format=number_format, device=device)


def _shape(config: dict[str, Any]) -> BertShape | None:
    """None for whatever is not a plain BERT encoder."""
    plain = (
        config.get("model_type") == "bert"
        and config.get("hidden_act") == "gelu"
        and config.get("position_embedding_type", "absolute") == "absolute"
        and not any(config.get(name) for name in ("auto_map", "quantization_config", "is_decoder"))
    )
    sizes = ("num_hidden_layers", "num_attention_heads", "hidden_size", "intermediate_size", "vocab_size")
    stated = [config.get(name) for name in (*sizes, "max_position_embeddings", "type_vocab_size")]
    numbers = [number for number in stated if isinstance(number, int) and number > 0]
    if not plain or len(numbers) < len(stated):
        return None
    layers, heads, width, inner, words, positions, types = numbers
    pad_id, epsilon = config.get("pad_token_id") or 0, float(config.get("layer_norm_eps", 1e-12))
    shape = BertShape(layers, heads, width, inner, words, positions, types, pad_id, epsilon)
    return shape if width % heads == 0 else None


def _prefix(shape: BertShape, path: Path) -> str | None:
    """What stands before the names; None unless the file holds just these layers, in these shapes."""
    expected = shape.tensors()
    with safe_open(path, "pt") as file:
        names = set(file.keys())
        for prefix in PREFIXES:
            layers = {name for name in names if name.startswith((f"{prefix}embeddings.", f"{prefix}encoder."))}
            if layers - {prefix + POSITION_NUMBERS} == {prefix + name for name in expected}:
                fits = all(tuple(file.get_slice(prefix + name).get_shape()) == expected[name] for name in expected)
                return prefix if fits else None
    return None


class Bert:
    """One encoder on one device."""

    def __init__(
        self, path: Path, prefix: str, shape: BertShape, *, cls: bool, number_format: torch.dtype, device: torch.device
    ) -> None:
        self._shape, self._cls, self._device = shape, cls, device
        self.padding_tokens = None
        self._multiple = 1 if number_format == torch.float32 and device.type == "cpu" else HALF_MULTIPLE
        self._lengths = np.array([one for one in LENGTHS if one < shape.positions] + [shape.positions])
        self._graphs: dict[bool, Graphs] = {}
        with safe_open(path, "pt") as mapped, safe_open(path, "pt") as passing:
            # What is fused is copied, through a mapping of its own that ends here: the lasting one never reads it.
            stored = partial(_read, mapped, prefix, device, None)
            lasting = partial(_read, mapped, prefix, device, number_format)
            copied = partial(_read, passing, prefix, device, number_format)
            self._embedding = _embedding_tensors(stored)
            self._layers = [_layer_tensors(number, lasting, copied) for number in range(shape.layers)]

    @property
    def dimension(self) -> int:
        return self._shape.width

    def pooled(
        self, token_ids: Sequence[Sequence[int]], projection: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """As `forward.Encoder` has it. On a GPU small batches are replayed."""
        if self._device.type == "cuda" and (replayed := self.graphs(projection).pooled(token_ids)) is not None:
            return replayed
        lengths = np.array([len(ids) for ids in token_ids])
        padded = self._padded(lengths)
        place = np.arange(padded.sum()) - np.repeat(padded.cumsum() - padded, padded)
        real = place < np.repeat(lengths, padded)
        ids = np.full(real.size, self._shape.pad_id)
        ids[real] = np.fromiter(chain.from_iterable(token_ids), np.int64, lengths.sum())
        pooled, compressed = _pooled(
            torch.from_numpy(ids).to(self._device),
            None if real.all() else torch.from_numpy(real).to(self._device),
            [(len(list(run)), length) for length, run in groupby(padded.tolist())],
            self._cls,
            self._shape.heads,
            self._shape.epsilon,
            self._embedding,
            self._layers,
            projection,
        )
        return pooled, compressed

    def graphs(
        self, projection: Tensor | None, capture: Callable[[Pass, Shape, torch.device], Captured] = Graph
    ) -> Graphs:
        """The passes of few shapes that give the tokens' vectors, too, or not; of one projection. Captured as they are
        asked for, those that surely will be at once.
        """
        tokens = projection is not None
        if tokens not in self._graphs:
            run = partial(self._fixed_pass, projection)
            pad_id, positions = self._shape.pad_id, self._shape.positions
            self._graphs[tokens] = Graphs(run, self._device, pad_id=pad_id, positions=positions, capture=capture)
            self._graphs[tokens].warm()
        return self._graphs[tokens]

    @torch.inference_mode()
    def _fixed_pass(
        self, projection: Tensor | None, ids: Tensor, real: Tensor, shape: Shape
    ) -> tuple[Tensor, Tensor | None]:
        """Of texts of one length, step by step: as a graph takes it. The tokens' vectors are those of padding, too."""
        runs, epsilon = [(shape.texts, shape.length)], self._shape.epsilon
        hidden = _embedded(ids, runs, epsilon, self._embedding).to(self._layers[0][0].dtype)
        for tensors in self._layers:
            hidden = _layer(hidden, real, runs, self._shape.heads, epsilon, tensors)
        vectors = pool(hidden.view(*shape, -1), real.view(*shape), self._cls)
        return vectors, None if projection is None else compress(hidden, projection)

    def _padded(self, lengths: NDArray[np.int64]) -> NDArray[np.int64]:
        """The length that each text is given. Few of them on a GPU, where each is an operation more in every layer."""
        if self._device.type == "cuda":
            return self._lengths[np.searchsorted(self._lengths, lengths)]
        return np.minimum(-(-lengths // self._multiple) * self._multiple, self._shape.positions)


def _read(file: Any, prefix: str, device: torch.device, number_format: torch.dtype | None, name: str) -> Tensor:
    """One weight; without a number format as it is stored. On the CPU that is no copy."""
    tensor: Tensor = file.get_tensor(prefix + name)
    return tensor.to(device, number_format)


Read = Callable[[str], Tensor]


def _embedding_tensors(read: Read) -> list[Tensor]:
    """Words, places, weight and bias. A text is all of the first type, so that is added to every place."""
    words, places, types = (read(f"embeddings.{name}_embeddings.weight") for name in ("word", "position", "token_type"))
    norm = [read(f"embeddings.LayerNorm.{name}").float() for name in ("weight", "bias")]
    return [words, places.float() + types[0].float(), *norm]


def _layer_tensors(number: int, read: Read, copied: Read) -> list[Tensor]:
    """Weight and bias of each part of a layer, query, key and value as one, in the order of `_layer`."""
    at, kinds = f"encoder.layer.{number}.", ("weight", "bias")
    fused = [torch.cat([copied(f"{at}{part}.{kind}") for part in QUERY_KEY_VALUE]) for kind in kinds]
    return [*fused, *(read(f"{at}{part}.{kind}") for part in OTHERS for kind in kinds)]


# From here on TorchScript's part of Python. `runs` are the (texts, length) of texts of one length that lie together.


def _whole_pass(
    ids: Tensor,
    real: Tensor | None,
    runs: list[tuple[int, int]],
    cls: bool,
    heads: int,
    epsilon: float,
    embedding: list[Tensor],
    layers: list[list[Tensor]],
    projection: Tensor | None,
) -> tuple[Tensor, Tensor | None]:
    hidden = _embedded(ids, runs, epsilon, embedding).to(layers[0][0].dtype)
    for tensors in layers:
        hidden = _layer(hidden, real, runs, heads, epsilon, tensors)
    vectors: list[Tensor] = []
    at = 0
    for texts, length in runs:
        end = at + texts * length
        marks = None if real is None else real[at:end].view(texts, length)
        vectors.append(pool(hidden[at:end].view(texts, length, -1), marks, cls))
        at = end
    tokens: Tensor | None = None
    if projection is not None:
        tokens = compress(hidden if real is None else hidden[real], projection)
    return torch.cat(vectors), tokens


def _embedded(ids: Tensor, runs: list[tuple[int, int]], epsilon: float, tensors: list[Tensor]) -> Tensor:
    words, places = tensors[0], tensors[1]
    width = words.size(1)
    hidden = functional.embedding(ids, words).float()
    at = 0
    for texts, length in runs:
        end = at + texts * length
        hidden[at:end].view(texts, length, width).add_(places[:length])
        at = end
    return functional.layer_norm(hidden, [width], tensors[2], tensors[3], epsilon)


def _layer(
    hidden: Tensor, real: Tensor | None, runs: list[tuple[int, int]], heads: int, epsilon: float, w: list[Tensor]
) -> Tensor:
    width = [hidden.size(1)]
    seen = _attention(functional.linear(hidden, w[0], w[1]), real, runs, heads)
    hidden = functional.layer_norm(functional.linear(seen, w[2], w[3]) + hidden, width, w[4], w[5], epsilon)
    inner = functional.gelu(functional.linear(hidden, w[6], w[7]))
    return functional.layer_norm(functional.linear(inner, w[8], w[9]) + hidden, width, w[10], w[11], epsilon)


def _attention(fused: Tensor, real: Tensor | None, runs: list[tuple[int, int]], heads: int) -> Tensor:
    width = fused.size(1) // 3
    seen = fused.new_empty([fused.size(0), width])
    at = 0
    for texts, length in runs:
        end = at + texts * length
        split = fused[at:end].view(texts, length, 3, heads, width // heads).permute(2, 0, 3, 1, 4)
        marks = None if real is None else real[at:end].view(texts, 1, 1, length)
        found = functional.scaled_dot_product_attention(split[0], split[1], split[2], attn_mask=marks)
        seen[at:end].view(texts, length, heads, width // heads).copy_(found.transpose(1, 2))
        at = end
    return seen


def _compiled() -> Callable[..., tuple[Tensor, Tensor | None]]:
    """Torch says at each call that TorchScript will go one day; the release that it goes with is ours to choose."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return torch.jit.script(_whole_pass)


_pooled = _compiled()
