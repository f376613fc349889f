"""The lean forward pass against transformers' own, on the packaged encoder and on small random ones."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import BertConfig, BertForMaskedLM, BertModel

from serve_app.models.any_encoder import AnyEncoder
from serve_app.models.bert import open_bert
from serve_app.models.device import number_format
from serve_app.models.forward import Forward
from serve_app.models.weights import PACKAGED, encoder_files

CPU = torch.device("cpu")
ROUNDING = 2e-6
HALF_ROUNDING = 2**-9  # of a number in bfloat16, by its size
HALF_COSINE = 0.9995
"""Between two orders of the same sums in bfloat16."""

Ids = list[list[int]]


def some_texts(words: int, lengths: list[int]) -> Ids:
    rnd = random.Random(7)
    return [[rnd.randrange(1, words) for _ in range(length)] for length in lengths]


def by_transformers(folder: Path, ids: Ids, *, cls: bool = False, number_format: torch.dtype = torch.float32) -> Any:
    encoder = AnyEncoder(folder, cls=cls, number_format=number_format, device=CPU)
    with torch.inference_mode():
        return torch.cat([encoder.pooled([one])[0] for one in ids]).numpy()


def lean(folder: Path, ids: Ids, *, cls: bool = False, number_format: torch.dtype = torch.float32) -> Any:
    encoder = open_bert(folder, cls=cls, number_format=number_format, device=CPU)
    assert encoder is not None
    with torch.inference_mode():
        return encoder.pooled(sorted(ids, key=len))[0].numpy()


def small(folder: Path, kind: Callable[[BertConfig], torch.nn.Module] = BertModel, **more: Any) -> Path:
    torch.manual_seed(1)
    sizes = {"hidden_size": 24, "num_attention_heads": 3, "num_hidden_layers": 2, "intermediate_size": 40}
    config = BertConfig(vocab_size=97, max_position_embeddings=30, initializer_range=0.5, **sizes | more)
    kind(config).save_pretrained(folder)
    return folder


@pytest.mark.parametrize("cls", [False, True], ids=["mean", "cls"])
@pytest.mark.parametrize("lengths", [[1], [16], [5] * 7, [2, 3, 3, 9, 17, 30, 30, 64], [256]], ids=str)
def test_the_packaged_encoder_gives_what_transformers_gives(lengths: list[int], cls: bool) -> None:
    folder, ids = encoder_files(PACKAGED, None).folder, some_texts(30_000, lengths)
    assert np.abs(lean(folder, ids, cls=cls) - by_transformers(folder, ids, cls=cls)).max() < 20 * ROUNDING


@pytest.mark.parametrize("kind", [BertModel, BertForMaskedLM])
@pytest.mark.parametrize("cls", [False, True], ids=["mean", "cls"])
def test_other_sizes_and_names(tmp_path: Path, kind: Any, cls: bool) -> None:
    folder, ids = small(tmp_path, kind), some_texts(97, [1, 2, 2, 7, 29, 30])
    assert np.abs(lean(folder, ids, cls=cls) - by_transformers(folder, ids, cls=cls)).max() < 20 * ROUNDING


def test_layers_and_heads_of_other_numbers(tmp_path: Path) -> None:
    folder = small(tmp_path, num_hidden_layers=3, num_attention_heads=1, type_vocab_size=1, layer_norm_eps=1e-5)
    ids = some_texts(97, [3, 8, 8])
    assert np.abs(lean(folder, ids) - by_transformers(folder, ids)).max() < 20 * ROUNDING


def test_half_precision_reads_no_padding(tmp_path: Path) -> None:
    """Its lengths are rounded up, the longest no further than there are positions: what is added must not be seen."""
    folder, ids = small(tmp_path), some_texts(97, [1, 5, 8, 9, 16, 25, 30])
    for cls in (False, True):
        found = lean(folder, ids, cls=cls, number_format=torch.bfloat16)
        wanted = by_transformers(folder, ids, cls=cls)
        cosines = (found * wanted).sum(1) / np.linalg.norm(found, axis=1) / np.linalg.norm(wanted, axis=1)
        assert cosines.min() > HALF_COSINE


def changed_config(folder: Path, **changes: Any) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | changes))


def changed_weights(folder: Path, change: Callable[[dict[str, torch.Tensor]], Any]) -> None:
    weights = {name: tensor.clone() for name, tensor in load_file(folder / "model.safetensors").items()}
    change(weights)
    save_file(weights, folder / "model.safetensors", {"format": "pt"})


QUERY = "encoder.layer.1.attention.self.query.weight"
UNEXPECTED: dict[str, Callable[[Path], Any]] = {
    "another architecture": lambda folder: changed_config(folder, model_type="roberta"),
    "another activation": lambda folder: changed_config(folder, hidden_act="gelu_new"),
    "relative positions": lambda folder: changed_config(folder, position_embedding_type="relative_key"),
    "code of its own": lambda folder: changed_config(folder, auto_map={"AutoModel": "x.Y"}),
    "quantised": lambda folder: changed_config(folder, quantization_config={"bits": 4}),
    "a size missing": lambda folder: changed_config(folder, intermediate_size=None),
    "heads that do not divide": lambda folder: changed_config(folder, num_attention_heads=7),
    "fewer layers than stored": lambda folder: changed_config(folder, num_hidden_layers=1),
    "more layers than stored": lambda folder: changed_config(folder, num_hidden_layers=3),
    "a tensor missing": lambda folder: changed_weights(folder, lambda weights: weights.pop(QUERY)),
    "a tensor more": lambda folder: changed_weights(folder, lambda w: w.update({f"{QUERY}.lora": torch.ones(2)})),
    "another shape": lambda folder: changed_weights(folder, lambda w: w.update({QUERY: torch.ones(24, 12)})),
    "not safetensors": lambda folder: (folder / "model.safetensors").write_bytes(b"something else"),
    "no weights": lambda folder: (folder / "model.safetensors").unlink(),
    "no config": lambda folder: (folder / "config.json").unlink(),
}


@pytest.mark.parametrize("name", UNEXPECTED)
def test_what_is_not_as_expected_is_left_to_transformers(tmp_path: Path, name: str) -> None:
    folder = small(tmp_path)
    assert open_bert(folder, cls=False, number_format=torch.float32, device=CPU) is not None
    UNEXPECTED[name](folder)
    assert open_bert(folder, cls=False, number_format=torch.float32, device=CPU) is None


def test_another_kind_of_encoder_has_vectors_too(tmp_path: Path) -> None:
    folder, ids = small(tmp_path, hidden_act="gelu_new"), some_texts(97, [30, 2, 9, 9, 1])
    found = Forward(folder, pooling="mean", normalise=False, device="cpu").vectors(ids)
    exact = by_transformers(folder, ids)
    rounding = ROUNDING if number_format(CPU) == torch.float32 else HALF_ROUNDING * np.abs(exact).max()
    assert np.abs(found - exact).max() < 20 * rounding


@pytest.mark.parametrize("activation", ["gelu", "gelu_new"])
def test_order_and_company_change_nothing_and_no_tokens_are_some(tmp_path: Path, activation: str) -> None:
    forward = Forward(small(tmp_path, hidden_act=activation), pooling="mean", normalise=True, device="cpu")
    ids = some_texts(97, [30, 2, 9, 0, 9, 1, *[30] * 40])
    together = forward.vectors(ids)
    assert np.isfinite(together).all()
    assert np.abs(together - np.vstack([forward.vectors([one]) for one in ids])).max() < 20 * ROUNDING
    assert forward.vectors(ids).tobytes() == together.tobytes()


def test_the_packaged_encoder_needs_no_transformers() -> None:
    script = """
import sys
from serve_app.models.embed import open_embedder
print(open_embedder().embed(["a"]).shape, "transformers" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "(1, 384) False"
