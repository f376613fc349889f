"""All settings of a service: composed from the frozen knobs of their owners. The only reader of config files."""

from __future__ import annotations

import tomllib
from pathlib import Path

import msgspec

from serve_app.errors import InvalidRequest
from serve_app.memory.memory import MemoryOptions
from serve_app.models.embed import EncoderOptions
from serve_app.write.housekeeping import FoldOptions


class StoreOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where the log and the tables lie. Empty: below the data folder. `options` go to the object store."""

    shards: int = 4
    log_uri: str = ""
    tables_uri: str = ""
    options: dict[str, str] = {}


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
        except (OSError, tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
            raise InvalidRequest(f"{config_file}: {error}") from error
    return msgspec.structs.replace(settings, data=str(data))
