"""API keys: made, hashed at rest, revoked, and turned into a principal. Who may do what is decided here only.

A key is `ms_<key_id>_<secret>` with 256 random bits; the file holds its SHA-256, which is enough
for a secret that nobody chose. The file is read again whenever it changes: a key that somebody made or
revoked counts here `settles_s` later at the latest, which is at once where the file lies on a disk.
"""

from __future__ import annotations

import hashlib
import secrets
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from serve_app.api.ids import identifier
from serve_app.errors import Forbidden, InvalidRequest, NotFound, Unauthorized
from serve_app.stores.documents import Documents
from serve_app.stores.private_file import PrivateFile

KeyRole = Literal["app", "admin", "operator"]

Rate = Annotated[float, Meta(gt=0, le=1e6)]
"""Requests a second."""

KEYS_FILE = "keys.json"
FIRST_KEY_FILE = "admin.key"
DEFAULT_TENANT = "default"


class KeyRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is stored of a key."""

    key_id: str
    sha256: str
    tenant: str
    role: KeyRole
    user: str | None = None
    rate_per_s: float | None = None
    """Requests that this key may make; None: as many as the service's settings say."""


class Principal(msgspec.Struct, frozen=True):
    """Who is asking."""

    key_id: str
    tenant: str
    role: KeyRole
    user: str | None
    rate_per_s: float | None = None

    def require_user(self, user: str) -> None:
        if self.user is not None and self.user != user:
            raise Forbidden("this key is bound to another user")

    def require_admin(self) -> None:
        if self.role == "app" or self.user is not None:
            raise Forbidden("this route needs a key of role admin")

    def require_operator(self, why: str) -> None:
        if self.role != "operator":
            raise Forbidden(why)


class KeyFile:
    """The keys of one store. Safe for many threads, and for writers in several processes."""

    def __init__(self, files: Documents) -> None:
        self._files = files
        self._file = PrivateFile(files, KEYS_FILE, list[KeyRecord], list)
        self._by_digest: tuple[list[KeyRecord] | None, dict[str, KeyRecord]] = (None, {})

    @property
    def trouble(self) -> str | None:
        """Why the file cannot be read at the moment; the keys that were read before count."""
        return self._file.trouble

    def ensure_first(self) -> str | None:
        """On a store without keys: make one operator key, keep it in `admin.key` (mode 0600), and give it."""
        if self._file.read():
            return None
        key, record = _new_key(DEFAULT_TENANT, "operator")
        if record not in self._file.change(lambda records: records or [record]):
            return None  # somebody else was first
        self._files.change(FIRST_KEY_FILE, lambda _: f"{key}\n".encode())
        return key

    def refresh(self) -> None:
        """Read what is in the file, here and now: a request that asks next finds it in memory."""
        self._file.read()

    def create(
        self, *, tenant: str, role: KeyRole, user: str | None = None, rate_per_s: float | None = None
    ) -> tuple[str, str]:
        """(key_id, key). The key itself is shown here and never again. Raises InvalidRequest, StoreUnavailable."""
        identifier(tenant, "tenant")
        if user is not None:
            identifier(user, "user_id")
            if role != "app":  # it could not do what its role is for, see `require_admin`
                raise InvalidRequest("user_id: only a key of role app is bound to a user")
        key, record = _new_key(tenant, role, user, rate_per_s)
        self._file.change(lambda records: records if record in records else [*records, record])
        return record.key_id, key

    def revoke(self, key_id: str, tenant: str | None) -> None:
        """`tenant` is None for an operator, who may revoke any key.

        Raises NotFound, also where the key is of another tenant; Forbidden where it is an operator's.
        """

        def without(records: list[KeyRecord]) -> list[KeyRecord]:
            found = next((one for one in records if one.key_id == key_id), None)
            if found is None or tenant not in (None, found.tenant):
                raise NotFound("no such key")
            if tenant is not None and found.role == "operator":
                raise Forbidden("only an operator revokes the key of an operator")
            return [one for one in records if one.key_id != key_id]

        self._file.change(without)

    def records(self, tenant: str | None) -> list[KeyRecord]:
        return [one for one in self._file.read() if tenant in (None, one.tenant)]

    def principal(self, authorization: bytes | None) -> Principal:
        """Who sent this `Authorization` header. Raises Unauthorized."""
        scheme, _, key = (authorization or b"").partition(b" ")
        if scheme.lower() != b"bearer" or not key:
            raise Unauthorized("send the header Authorization: Bearer <key>")
        found = self._read().get(hashlib.sha256(key.strip()).hexdigest())
        if found is None:
            raise Unauthorized("this key is not known")
        return Principal(found.key_id, found.tenant, found.role, found.user, found.rate_per_s)

    def _read(self) -> dict[str, KeyRecord]:
        """The keys by digest. Raises StoreUnavailable."""
        records = self._file.read()
        if records is not self._by_digest[0]:
            self._by_digest = (records, {record.sha256: record for record in records})
        return self._by_digest[1]


def _new_key(
    tenant: str, role: KeyRole, user: str | None = None, rate_per_s: float | None = None
) -> tuple[str, KeyRecord]:
    """The key, and what is stored of it."""
    key_id, secret = secrets.token_hex(6), secrets.token_urlsafe(32)
    key = f"ms_{key_id}_{secret}"
    return key, KeyRecord(key_id, _digest(key), tenant, role, user, rate_per_s)


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()
