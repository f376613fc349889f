"""What an application of the cluster profile is told: where its settings and its folder are on the node it runs on.

Serve shows the arguments of an application to whoever may see its dashboard, so they name a file and hold nothing of
it. Keys of an object store come from the environment of the node or from that file.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from serve_app.deployments.console import write_to_console
from serve_app.deployments.lifeline import die_with_parent
from serve_app.errors import InvalidRequest

if TYPE_CHECKING:
    from serve_app.config import Settings

__all__ = ["Place", "own_name", "placed_apart"]


class Place(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Arguments of an application, as `args` in a Serve config."""

    config: str = ""
    """A TOML file of settings. The same on each node; empty: defaults."""
    data: str = ""
    """A folder for what a process has to put somewhere; nothing in it is needed again. Empty: a temporary one."""
    store: str = ""
    """The store's folder, where the settings name no other place; all nodes see it."""
    console: str = ""
    """A named pipe for output; empty: Serve's log files."""
    writer: str = "writer-0"
    """Of a writer's application, the writer's name."""
    model: str = ""
    """Of a model's application, the section of the settings that says which; empty: its builder's first one."""
    hot: str = "hot-0"
    """Of a hot shard's application, the hot shard's name."""

    @classmethod
    def of(cls, args: Mapping[str, str]) -> Place:
        """Raises InvalidRequest."""
        try:
            return msgspec.convert(dict(args), cls)
        except msgspec.ValidationError as error:
            raise InvalidRequest(f"arguments of the application: {error}") from error

    def settings(self, role: str, name: str) -> Settings:
        """Of a process of this role, with a folder of its own in `data`. Raises InvalidRequest."""
        from serve_app.config import load_settings  # in the replica, not where the application is built

        folder = Path(self.data or tempfile.gettempdir()) / name
        follow = Path(self.store) if role != "writer" and self.store else None
        settings = load_settings(folder, Path(self.config) if self.config else None, role, follow)
        if settings.store.files_uri or not self.store:
            return settings
        store = msgspec.structs.replace(settings.store, files_uri=self.store)
        return msgspec.structs.replace(settings, store=store)

    def enter(self) -> None:
        """Make this process one of its node's: it ends with the raylet, and its output goes where it is read."""
        die_with_parent()
        if self.console:
            write_to_console(Path(self.console))


def placed_apart(settings: Settings) -> list[str]:
    """The sections whose models are in deployments beside."""
    placements = {
        "encoder": settings.encoder.placement,
        "rerank": settings.rerank.placement,
        "compress": settings.compress.placement,
    }
    return [name for name, placement in placements.items() if placement == "deployment"]


def own_name(kind: str) -> str:
    """Of a process among others of its kind on a node."""
    return f"{kind}-{os.getpid()}"
