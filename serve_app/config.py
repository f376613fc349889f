"""All settings of a service: composed from the frozen knobs of their owners. The only reader of config files."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from serve_app.errors import InvalidRequest
from serve_app.memory.memory import MemoryOptions
from serve_app.models.embed import EncoderOptions
from serve_app.write.housekeeping import FoldOptions

SHARDS_MAX = 1_024

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

    Empty: below the data folder.

    `options` say how both reach the object store, under one set of names, `S3_OPTIONS`; the same names
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
    log_uri: str = ""
    tables_uri: str = ""
    cold_uri: str = ""
    options: dict[str, str] = {}
    cold_options: dict[str, str] = {}
    """Of the store of the cold tables; empty: `options`."""

    def __post_init__(self) -> None:
        """Raises ValueError for an option without meaning."""
        for name in (*self.options, *self.cold_options):
            if not name.startswith(OTHER_CLOUDS) and _plain(name) not in S3_OPTIONS:
                raise ValueError(f"options: {name!r} is not known; there are {', '.join(sorted(S3_OPTIONS))}")

    @property
    def connection(self) -> dict[str, str]:
        """The options under the names that obstore (log) and LanceDB (tables) both read."""
        return {_plain(name): value for name, value in self.options.items()}

    @property
    def cold_connection(self) -> dict[str, str]:
        return {_plain(name): value for name, value in (self.cold_options or self.options).items()}


def _plain(name: str) -> str:
    """obstore panics at `aws_allow_http`, and LanceDB ignores what it does not know: neither sees a prefix."""
    bare = name.removeprefix("aws_")
    return "endpoint" if bare == "endpoint_url" else bare


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One service. Sections of the TOML file have the names of these fields."""

    data: str = ""
    store: StoreOptions = StoreOptions()
    encoder: EncoderOptions = EncoderOptions()
    fold: FoldOptions = FoldOptions()
    memory: MemoryOptions = MemoryOptions()


def load_settings(data: Path, config_file: Path | None = None) -> Settings:
    """Defaults, then the file. Raises InvalidRequest that names the wrong setting."""
    settings = Settings()
    if config_file is not None:
        try:
            settings = msgspec.convert(tomllib.loads(config_file.read_text("utf-8")), Settings)
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
            raise InvalidRequest(f"{config_file}: {error}") from error
    return msgspec.structs.replace(settings, data=str(data))
