"""The policies that were set, in one file of the store: by tenant and name, and those of the service."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

import msgspec

from serve_app.errors import InvalidRequest, NotFound
from serve_app.policies import OF_SERVICE, OF_TENANT, Policy
from serve_app.stores.private_file import PrivateFile

P = TypeVar("P", bound=Policy)

POLICIES_FILE = "policies.json"


class Stored(msgspec.Struct, frozen=True):
    """The file: each policy as the JSON that was set."""

    tenants: dict[str, dict[str, msgspec.Raw]] = {}
    service: dict[str, msgspec.Raw] = {}


class PolicyFile:
    """See `policies.Policies`."""

    def __init__(self, folder: Path) -> None:
        self._file = PrivateFile(folder / POLICIES_FILE, Stored, Stored)
        self._decoded: tuple[Stored | None, dict[tuple[str | None, type[Policy]], Policy]] = (None, {})

    @property
    def trouble(self) -> str | None:
        """Why the file cannot be read at the moment; the policies that were read before count."""
        return self._file.trouble

    def of(self, tenant: str, kind: type[P]) -> P:
        return self._found(tenant, kind)

    def of_service(self, kind: type[P]) -> P:
        return self._found(None, kind)

    def get(self, tenant: str, name: str) -> Policy:
        """Raises NotFound where there is no policy of this name."""
        kind = _kind(name)
        return self.of_service(kind) if name in OF_SERVICE else self.of(tenant, kind)

    def put(self, tenant: str, name: str, body: bytes) -> Policy:
        """Raises NotFound, InvalidRequest, StoreUnavailable."""
        try:
            policy = msgspec.json.decode(body, type=_kind(name))
        except msgspec.DecodeError as error:
            raise InvalidRequest(f"policy {name}: {error}") from error
        with self._file.changing() as write:
            stored, raw = self._file.read(), msgspec.Raw(msgspec.json.encode(policy))
            if name in OF_SERVICE:
                write(Stored(stored.tenants, {**stored.service, name: raw}))
            else:
                named = {**stored.tenants.get(tenant, {}), name: raw}
                write(Stored({**stored.tenants, tenant: named}, stored.service))
        return policy

    def _found(self, tenant: str | None, kind: type[P]) -> P:
        stored = self._file.read()
        if stored is not self._decoded[0]:
            self._decoded = (stored, {})
        decoded = self._decoded[1]
        policy = decoded.get((tenant, kind))
        if policy is None:
            policy = decoded[tenant, kind] = _decoded(stored, tenant, kind)
        assert isinstance(policy, kind)
        return policy


def _kind(name: str) -> type[Policy]:
    kind = (OF_TENANT | OF_SERVICE).get(name)
    if kind is None:
        raise NotFound(f"there is no policy {name!r}; there are: {', '.join(sorted(OF_TENANT | OF_SERVICE))}")
    return kind


def _decoded(stored: Stored, tenant: str | None, kind: type[P]) -> P:
    named: Mapping[str, msgspec.Raw] = stored.service if tenant is None else stored.tenants.get(tenant, {})
    name = next(name for name, one in (OF_TENANT | OF_SERVICE).items() if one is kind)
    return msgspec.json.decode(named[name], type=kind) if name in named else kind()
