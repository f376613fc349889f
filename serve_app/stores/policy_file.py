"""The policies that were set, in one file of the store: by tenant and name, and those of the service."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from serve_app.errors import InvalidRequest, NotFound
from serve_app.policies import (
    OF_SERVICE,
    OF_TENANT,
    PRIVACY_LEVELS,
    BackupPolicy,
    Policy,
    PrivacyLevel,
    PrivacyPolicy,
    looser,
)
from serve_app.stores.addresses import checked_address
from serve_app.stores.documents import Documents
from serve_app.stores.durable import local_folder
from serve_app.stores.private_file import PrivateFile

P = TypeVar("P", bound=Policy)

POLICIES_FILE = "policies.json"


class PrivacyFloor(msgspec.Struct, frozen=True):
    """The loosest privacy that something stored of a tenant may have come in by, and how often its policy was set."""

    level: PrivacyLevel = PrivacyPolicy().level
    changes: int = 0


class Stored(msgspec.Struct, frozen=True):
    """The file: each policy as the JSON that was set."""

    tenants: dict[str, dict[str, msgspec.Raw]] = {}
    service: dict[str, msgspec.Raw] = {}
    privacy_floors: dict[str, PrivacyFloor] = {}


class PolicyFile:
    """See `policies.Policies`."""

    def __init__(self, files: Documents) -> None:
        self._folder = local_folder(files.address)
        self._file = PrivateFile(files, POLICIES_FILE, Stored, Stored)
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
        if isinstance(policy, BackupPolicy) and policy.uri:
            checked_address(policy.uri, self._folder)
        raw = msgspec.Raw(msgspec.json.encode(policy))

        def set_so(stored: Stored) -> Stored:
            if name in OF_SERVICE:
                stored = replace(stored, service={**stored.service, name: raw})
            else:
                named = {**stored.tenants.get(tenant, {}), name: raw}
                stored = replace(stored, tenants={**stored.tenants, tenant: named})
            return _with_floor(stored, tenant, policy.level) if isinstance(policy, PrivacyPolicy) else stored

        self._file.change(set_so)
        return policy

    def refresh(self) -> None:
        """Read what is in the file, here and now: a request that asks next finds it in memory."""
        self._file.read()

    def tenants(self) -> list[str]:
        """Those that have set any policy."""
        return sorted(self._file.read().tenants)

    def floor(self, tenant: str) -> PrivacyFloor:
        return self._file.read().privacy_floors.get(tenant, PrivacyFloor())

    def lagging(self) -> dict[str, PrivacyFloor]:
        """By tenant, where something stored may be looser than its policy of today."""
        floors = self._file.read().privacy_floors
        return {name: floor for name, floor in floors.items() if floor.level != self.of(name, PrivacyPolicy).level}

    def distrust(self, tenants: Sequence[str]) -> None:
        """Anything stored of them may be looser than their policy: all of it is to be looked through anew."""

        def distrusted(stored: Stored) -> Stored:
            floors = {name: stored.privacy_floors.get(name, PrivacyFloor()) for name in tenants}
            anew = {name: PrivacyFloor(PRIVACY_LEVELS[0], floor.changes + 1) for name, floor in floors.items()}
            return replace(stored, privacy_floors={**stored.privacy_floors, **anew})

        self._file.change(distrusted)

    def raise_floor(self, tenant: str, reached: PrivacyFloor) -> bool:
        """All that is stored is as tight as `reached` says, unless the policy was set since that was begun: False."""

        def raised(stored: Stored) -> Stored:
            if stored.privacy_floors.get(tenant, PrivacyFloor()).changes != reached.changes:
                return stored
            return replace(stored, privacy_floors={**stored.privacy_floors, tenant: reached})

        return self._file.change(raised).privacy_floors.get(tenant, PrivacyFloor()) == reached

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


def _with_floor(stored: Stored, tenant: str, level: PrivacyLevel) -> Stored:
    floor = stored.privacy_floors.get(tenant, PrivacyFloor())
    lowered = PrivacyFloor(looser(floor.level, level), floor.changes + 1)
    return replace(stored, privacy_floors={**stored.privacy_floors, tenant: lowered})


def _kind(name: str) -> type[Policy]:
    kind = (OF_TENANT | OF_SERVICE).get(name)
    if kind is None:
        raise NotFound(f"there is no policy {name!r}; there are: {', '.join(sorted(OF_TENANT | OF_SERVICE))}")
    return kind


def _decoded(stored: Stored, tenant: str | None, kind: type[P]) -> P:
    named: Mapping[str, msgspec.Raw] = stored.service if tenant is None else stored.tenants.get(tenant, {})
    name = next(name for name, one in (OF_TENANT | OF_SERVICE).items() if one is kind)
    return msgspec.json.decode(named[name], type=kind) if name in named else kind()
