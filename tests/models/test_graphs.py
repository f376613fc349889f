"""Passes of few shapes give what any pass gives: on the CPU without graphs, on a GPU with them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from serve_app.models.bert import Bert, open_bert
from serve_app.models.forward import Forward
from serve_app.models.graphs import (
    GRAPH_TOKENS_MAX,
    GRAPHS_MAX,
    LENGTHS,
    TEXTS,
    WARM,
    Captured,
    Eager,
    Pass,
    Shape,
    shape_of,
)
from serve_app.models.projection import token_projection
from serve_app.models.weights import PACKAGED, encoder_files

BATCHES = [[5], [7, 9, 16], [3] * 9, [1, 40, 100], [250, 256]]
GPU = pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU here"))


def ids(lengths: list[int]) -> list[list[int]]:
    source = np.random.default_rng(3)
    return [source.integers(1000, 20000, length).tolist() for length in lengths]


@pytest.fixture(scope="module")
def bert() -> Bert:
    folder = encoder_files(PACKAGED, None).folder
    found = open_bert(folder, cls=False, number_format=torch.float32, device=torch.device("cpu"))
    assert found is not None
    return found


@pytest.fixture(scope="module")
def projection() -> torch.Tensor:
    files = encoder_files(PACKAGED, None)
    found = token_projection(files.model, files.revision)
    assert found is not None
    return torch.from_numpy(found)


@torch.inference_mode()
@pytest.mark.parametrize("lengths", BATCHES)
def test_a_fixed_pass_gives_what_any_pass_gives(bert: Bert, projection: torch.Tensor, lengths: list[int]) -> None:
    token_ids = ids(lengths)
    plain, tokens = bert.pooled(token_ids, projection)
    fixed = bert.graphs(projection, Eager).pooled(token_ids)
    assert fixed is not None
    vectors, own = fixed
    assert torch.allclose(vectors, plain, atol=1e-5)
    assert tokens is not None
    assert own is not None
    assert own.shape == tokens.shape == (sum(lengths), 64)
    assert (own.int() - tokens.int()).abs().max() <= 1
    without = bert.graphs(None, Eager).pooled(token_ids)
    assert without is not None
    assert without[1] is None


def test_shapes_are_few_and_hold_what_they_are_for() -> None:
    for lengths in (*BATCHES, [1], [16] * 64, [512] * 8):
        shape = shape_of(lengths, 512)
        assert shape is not None
        assert shape.texts >= len(lengths)
        assert shape.length >= max(lengths)
        assert shape.texts * shape.length <= GRAPH_TOKENS_MAX
    assert shape_of([512] * 9, 512) is None
    assert shape_of([5] * 65, 512) is None
    assert shape_of([513], 1024) is None
    assert shape_of([300], 384) is None, "the model cannot read as far as the bucket"
    assert all(texts in TEXTS and length in LENGTHS for texts, length in WARM)


@torch.inference_mode()
def test_graphs_are_bounded_and_the_ones_in_use_stay() -> None:
    captured: list[Shape] = []

    def capture(run: Pass, shape: Shape, device: torch.device) -> Captured:
        captured.append(shape)
        return Eager(run, shape, device)

    folder = encoder_files(PACKAGED, None).folder
    own = open_bert(folder, cls=False, number_format=torch.float32, device=torch.device("cpu"))
    assert own is not None
    graphs = own.graphs(None, capture)
    assert len(captured) == len(WARM)
    for texts in TEXTS:
        for length in LENGTHS:
            if texts * length <= 512 or texts <= 2:
                graphs.pooled([[1]])
                graphs.pooled(ids([length] * texts))
    assert len(graphs) <= GRAPHS_MAX
    assert captured.count(Shape(1, 16)) == 1


@pytest.mark.parametrize("device", ["cpu", GPU])
def test_mixed_batches_on_each_device_agree_with_single_texts(device: str) -> None:
    """The contract of `Forward`, in the device's own number format."""
    files = encoder_files(PACKAGED, None)
    forward = Forward(files.folder, pooling="mean", normalise=True, device=device)
    token_ids = ids([5, 250, 17, 64, 3, 100, 33, 8] * 20)
    together = forward.vectors(token_ids)
    alone = np.vstack([forward.vectors([one]) for one in token_ids[:8]])
    assert (together[:8] * alone).sum(1).min() > 0.999
    assert forward.vectors(token_ids).tobytes() == together.tobytes()
