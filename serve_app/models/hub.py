"""From a model's name to a local folder: the folder itself, or what the Hugging Face hub has under that id."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from serve_app.errors import MemstrataError

__all__ = ["SAFE_FILES", "local_path", "model_folder"]

SAFE_FILES: Final = ("*.json", "*.safetensors", "*.txt", "*.model")
"""What is fetched of a hub repository: no pickled weights, since reading one can run code."""


def local_path(name: str) -> Path | None:
    """Where a name points on this machine; None where nothing lies, or nothing can be called so."""
    try:
        path = Path(name).expanduser()
        return path if path.exists() else None
    except (OSError, RuntimeError, ValueError):  # too long, not to be looked at, of an unknown user, with a NUL
        return None


def model_folder(
    kind: str,
    model: str,
    revision: str | None,
    unusable: Callable[[str], MemstrataError],
    files: Sequence[str] = SAFE_FILES,
) -> Path:
    """Fetched from the hub, or from its local cache alone where HF_HUB_OFFLINE is set, unless it is a folder.

    Raises what `unusable` makes where there is no such `kind` of model.
    """
    folder = local_path(model)
    if folder is not None and folder.is_dir():
        return folder
    try:
        from huggingface_hub import snapshot_download

        return Path(snapshot_download(model, revision=revision, allow_patterns=list(files)))
    except (ImportError, OSError, ValueError) as error:
        raise unusable(f"no {kind} {model!r}: no such folder, and not on the hub") from error
