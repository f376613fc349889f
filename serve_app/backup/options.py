"""The settings of backups, and where they may go."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from serve_app.backup.copying import BYTES_A_SECOND


class BackupOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`uri` is a folder or `s3://bucket/prefix`; `options` say how it is reached, the store's own where empty.

    A schedule is no setting: it is the policy `backup`, set at run time.
    """

    uri: str = ""
    options: dict[str, str] = {}
    bytes_per_second: Annotated[int, Meta(ge=1 << 16)] = BYTES_A_SECOND
