"""All settings of a service: composed from the frozen knobs of their owners. The only reader of config files."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from serve_app.api.forwarding import ForwardOptions
from serve_app.api.limits import LimitOptions
from serve_app.backup.layout import Layout
from serve_app.backup.options import BackupOptions
from serve_app.context.tokens import CONFIGURED_TOKENIZERS_MAX
from serve_app.errors import InvalidRequest
from serve_app.memory.memory import MemoryOptions
from serve_app.memory.reranking import RerankOptions
from serve_app.models.embed import EncoderOptions, open_embedder
from serve_app.models.encoders import open_embedders
from serve_app.models.expand import ExpanderOptions
from serve_app.models.multilingual import MULTILINGUAL
from serve_app.models.summarise import CompressOptions
from serve_app.models.weights import PACKAGED
from serve_app.observe.costs import PriceOptions
from serve_app.ports import Embedder
from serve_app.stores.documents import Documents
from serve_app.stores.documents_object import LOOK_S, open_documents
from serve_app.stores.hot_indexes import HotOptions
from serve_app.write.follow import FollowOptions, Seconds
from serve_app.write.housekeeping import FoldOptions

TokenizerName = Annotated[str, Meta(min_length=1, max_length=256)]

SHARDS_MAX = 1_024

OFF = "off"
"""In place of a model: none."""

S3_OPTIONS = frozenset(
    {
        "endpoint",
        "region",
        "access_key_id",
        "secret_access_key",
        "session_token",
        "virtual_hosted_style_request",
        "skip_signature",
        "allow_http",
        "allow_invalid_certificates",
        "proxy_url",
        "timeout",
        "connect_timeout",
    }
)
"""The names of connection options for addresses that begin with s3://. Values are texts: "true", "5s", ..."""

OTHER_CLOUDS = ("google_", "azure_")
"""Options that begin so go to the store as they are, for gs:// and az:// addresses."""


class StoreOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where the log, the tables and the cold tables lie, by path or address (`s3://bucket/prefix`).

    `files_uri` is where the small files lie (what the store is, keys, policies, layouts, leases); empty: in the data
    folder. Where several processes serve one store it is a place of its own. In a bucket each process looks every
    `files_look_s` whether one has changed. The other addresses, where empty, lie below that of the small files.

    `options` say how all reach the object store, under one set of names, `S3_OPTIONS`; the same names
    with `aws_` before them are understood too. Without keys here the environment of the process counts
    (AWS_ACCESS_KEY_ID and so on). A name that is not known is refused: each of the two libraries
    below has its own idea of what to do with one. For a server on plain HTTP:

        [store]
        log_uri = "s3://memory/log"
        tables_uri = "s3://memory/tables"

        [store.options]
        endpoint = "http://127.0.0.1:9000"
        region = "us-east-1"
        allow_http = "true"
        access_key_id = "..."
        secret_access_key = "..."

    `shards` counts when a store is made; later it has to be that number, or left out.
    """

    shards: Annotated[int, Meta(ge=1, le=SHARDS_MAX)] | None = None
    files_uri: str = ""
    files_look_s: Seconds = LOOK_S
    log_uri: str = ""
    tables_uri: str = ""
    cold_uri: str = ""
    options: dict[str, str] = {}
    cold_options: dict[str, str] = {}
    """Of the store of the cold tables; empty: `options`."""

    def __post_init__(self) -> None:
        """Raises ValueError for an option without meaning."""
        _refuse_unknown(self.options)
        _refuse_unknown(self.cold_options)

    @property
    def connection(self) -> dict[str, str]:
        """The options under the names that obstore (log) and LanceDB (tables) both read."""
        return {_plain(name): value for name, value in self.options.items()}

    @property
    def cold_connection(self) -> dict[str, str]:
        return {_plain(name): value for name, value in (self.cold_options or self.options).items()}


def _refuse_unknown(options: dict[str, str]) -> None:
    for name in options:
        if not name.startswith(OTHER_CLOUDS) and _plain(name) not in S3_OPTIONS:
            raise ValueError(f"options: {name!r} is not known; there are {', '.join(sorted(S3_OPTIONS))}")


def _plain(name: str) -> str:
    """obstore panics at `aws_allow_http`, and LanceDB ignores what it does not know: neither sees a prefix."""
    bare = name.removeprefix("aws_")
    return "endpoint" if bare == "endpoint_url" else bare


class MultilingualOptions(EncoderOptions, frozen=True, forbid_unknown_fields=True):
    """The encoder for texts in other scripts than Latin, beside `[encoder]`, with the same settings; "off": none.

    Where the file has no such section: the packaged one beside the packaged `[encoder]`, if it is installed; else none.
    """

    model: str = MULTILINGUAL


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One service. Sections of the TOML file have the names of these fields."""

    data: str = ""
    role: Literal["writer", "replica", "gateway"] = "writer"
    """What it does of the store: write and read it; read what others write; read, and pass on to who writes."""
    store: StoreOptions = StoreOptions()
    encoder: EncoderOptions = EncoderOptions()
    multilingual: MultilingualOptions | None = None
    fold: FoldOptions = FoldOptions()
    memory: MemoryOptions = MemoryOptions()
    rerank: RerankOptions = RerankOptions()
    follow: FollowOptions = FollowOptions()
    hot: HotOptions = HotOptions()
    forward: ForwardOptions = ForwardOptions()
    limits: LimitOptions = LimitOptions()
    backup: BackupOptions = BackupOptions()
    expand: ExpanderOptions = ExpanderOptions()
    compress: CompressOptions = CompressOptions()
    prices: PriceOptions = PriceOptions()
    tokenizers: Annotated[dict[TokenizerName, str], Meta(max_length=CONFIGURED_TOKENIZERS_MAX)] = {}
    """Beside those that are built in: a name for requests, and a path or `tiktoken:` with an encoding."""

    def __post_init__(self) -> None:
        """Raises ValueError for an option without meaning."""
        _refuse_unknown(self.backup.options)
        if self.multilingual is not None and self.multilingual.placement != "inside":
            raise ValueError("multilingual: it runs where the encoder does; placement is a setting of [encoder]")

    def open_embedders(self, open_one: Callable[[EncoderOptions], Embedder] = open_embedder) -> list[Embedder]:
        """The encoders, the primary one first; none is loaded yet. Raises EncoderUnavailable."""
        chosen = self.multilingual
        if chosen is None and self.encoder.model == PACKAGED:
            return open_embedders(self.encoder, MultilingualOptions(), optional=True, open_one=open_one)
        off = chosen is None or chosen.model == OFF
        return open_embedders(self.encoder, None if off else chosen, optional=False, open_one=open_one)

    @property
    def files_uri(self) -> str:
        """Where the store's small files are (what it is, its keys, its policies), and its log and tables by default."""
        own = "" if self.role == "writer" else self.follow.data
        return self.store.files_uri or own or self.data

    @property
    def files(self) -> Documents:
        """The small files themselves. Raises StoreUnavailable for what is no address."""
        return open_documents(self.files_uri, self.store.connection, self.store.files_look_s)

    @property
    def layout(self) -> Layout:
        """Where the parts of the store lie."""
        return Layout.of(
            self.files_uri,
            self.store.log_uri,
            self.store.tables_uri,
            self.store.connection,
            self.store.cold_uri,
            self.store.cold_connection,
        )

    @property
    def backup_connection(self) -> dict[str, str]:
        """How the backups' address is reached: its own options, else those of the store."""
        return {_plain(name): value for name, value in (self.backup.options or self.store.options).items()}


def load_settings(
    data: Path, config_file: Path | None = None, role: str | None = None, follow: Path | None = None
) -> Settings:
    """Defaults, then the file, then `role` and the folder to `follow`. Raises InvalidRequest: it says what is wrong."""
    settings = Settings()
    if config_file is not None:
        try:
            settings = msgspec.convert(tomllib.loads(config_file.read_text("utf-8")), Settings)
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
            raise InvalidRequest(f"{config_file}: {error}") from error
    following = settings.follow if follow is None else msgspec.structs.replace(settings.follow, data=str(follow))
    chosen = role or ("replica" if follow is not None else settings.role)
    settings = msgspec.structs.replace(settings, data=str(data), role=chosen, follow=following)
    placed = following.data or settings.store.files_uri or (settings.store.log_uri and settings.store.tables_uri)
    if settings.role != "writer" and not placed:
        raise InvalidRequest(
            "a replica follows a data folder (--follow), store.files_uri, or store.log_uri and store.tables_uri"
        )
    if settings.role == "writer" and following.data:
        raise InvalidRequest('follow.data is for role = "replica" and role = "gateway"')
    return settings
