"""What a configuration of the reranker or the compressor is called: by what is set in its section, whoever set it.

Pure. A setting that has its default does not count, so that a release that adds one renames nothing.
"""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

__all__ = ["name_of", "set_in"]


WHERE = ("placement", "deployment")


def name_of(options: msgspec.Struct) -> str:
    """The same for the same settings, on every machine. Where it runs is none of them."""
    what = {name: value for name, value in set_in(options).items() if name not in WHERE}
    return hashlib.blake2b(msgspec.json.encode(what, order="deterministic"), digest_size=8).hexdigest()


def set_in(options: msgspec.Struct) -> dict[str, Any]:
    """The settings that differ from their defaults, as a section of the file has them."""
    found: dict[str, Any] = {}
    for field in msgspec.structs.fields(options):
        value = getattr(options, field.name)
        if isinstance(value, msgspec.Struct):
            value = set_in(value)
            if value:
                found[field.name] = value
        elif value != _default(field):
            found[field.name] = value
    return found


def _default(field: msgspec.structs.FieldInfo) -> Any:
    return field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
