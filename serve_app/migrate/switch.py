"""What a new encoder does to the service: it is opened and tried, held beside the old one, written by both, and kept.

Owns the order of it. The options are written down before the store's description names the version, and that before
any table is made; what goes, goes in the opposite order. So whatever a start finds described it can open, and a table
that no description names is dropped again by whoever takes the migration up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import msgspec
from msgspec.structs import replace

from serve_app.core import EmbeddingVersion
from serve_app.errors import EncoderUnavailable, InvalidRequest
from serve_app.migrate.migration_file import Fields, MigrationFile
from serve_app.migrate.record import Migration
from serve_app.migrate.trying import tried
from serve_app.models.embed import EncoderOptions
from serve_app.models.encoders import Encoders
from serve_app.ports import Embedder
from serve_app.routing import Epoch, Routing
from serve_app.write.commit import ShardWriter
from serve_app.write.dual import DualWrite
from serve_app.write.indexer import Indexer

HANDED_OVER_MAX = 1_000
"""Turns that may wait for the new version's vectors when its indexer becomes the only one."""


class Identity(Protocol):
    """What the store's description says of its versions; a change is durable when it returns."""

    @property
    def base(self) -> tuple[EmbeddingVersion, ...]:
        """Those that every turn is embedded under, the primary one first."""
        ...

    @property
    def beside(self) -> tuple[EmbeddingVersion, ...]:
        """Those that have tables of their own."""
        ...

    def change(self, base: Sequence[EmbeddingVersion], beside: Sequence[EmbeddingVersion]) -> None: ...


class EncoderSwitch:
    """See `switching.Switch`."""

    def __init__(
        self,
        file: MigrationFile,
        identity: Identity,
        open_encoder: Callable[[EncoderOptions], Embedder],
        encoders: Encoders,
        writers: Sequence[ShardWriter],
        indexer: Indexer,
        dual: DualWrite,
    ) -> None:
        self._file = file
        self._identity = identity
        self._open_encoder = open_encoder
        self._encoders = encoders
        self._writers = writers
        self._indexer = indexer
        self._dual = dual
        self._handed_over: set[tuple[int, int, str, int]] | None = None  # turns that lacked vectors then

    def begin(self, options: Mapping[str, Any], replaces: str) -> Fields:
        version, base = self._opened(options).version, self._encoders.base
        replaced = replaces or base.primary
        if replaced not in base.names:
            raise InvalidRequest(f"replaces: {replaced!r} serves nobody; there are: {', '.join(base.names)}")
        if version.name == replaced:
            raise InvalidRequest(f"encoder: {version.name!r} serves already")
        target = base.replaced(replaced, version.name)
        return {"version": version, "replaces": replaced, "base": base, "target": target}

    def open(self, migration: Migration) -> Fields:
        version = _version(migration)
        self._serve(migration)
        try:
            tried(self._encoders, version)
        except InvalidRequest:
            self._drop_encoder(migration, version.name)
            raise
        return {}

    def hold(self, migration: Migration) -> Fields:
        version, (base, target) = _version(migration), _routings(migration)
        if self._is_base(target):
            return {}
        self._file.keep_encoder(version.name, migration.options)
        if version not in self._identity.beside:
            self._identity.change(self._identity.base, (*self._identity.beside, version))
        self._serve(migration)
        for writer in self._writers:
            writer.shard.hold(version)
        if not migration.dual_from:
            return {"dual_from": tuple(writer.shard.applied_seq for writer in self._writers)}
        self._dual.begin(self._writers, base, target, version.name, migration.dual_from)
        return {}

    def epoch(self, now: Epoch, migration: Migration) -> Epoch:
        base, target = _routings(migration)
        if migration.state in ("canary", "cutover", "soak"):
            share = migration.terms.canary_share if migration.state == "canary" else 1.0
            return replace(now, base=base, target=target, share=share, migration=migration.id)
        retired = migration.state in ("retire", "done")
        return replace(now, base=target if retired else base, target=None, share=0.0, migration="")

    def retire(self, migration: Migration) -> bool:
        base, target = _routings(migration)
        if not self._is_base(target):
            if not self._all_by_target(target):
                return False
            known = {one.name: one for one in (*self._identity.base, _version(migration))}
            gone = set(base.names) - set(target.names)
            kept = [one for one in self._identity.beside if one.name not in gone]
            self._identity.change([known[name] for name in target.names], kept)
        for name in base.names:
            if name not in target.names:
                self._release(name)
        return True

    def withdraw(self, migration: Migration) -> None:
        """A version that serves in the base, too, stays with the vectors that it has."""
        version, (base, _) = _version(migration), _routings(migration)
        self._dual.end()
        if version.name not in base.names:
            kept = [one for one in self._identity.beside if one != version]
            if len(kept) < len(self._identity.beside):
                self._identity.change(self._identity.base, kept)
            self._release(version.name)

    # ---- parts of it

    def _opened(self, options: Mapping[str, Any]) -> Embedder:
        """Raises InvalidRequest."""
        try:
            return self._open_encoder(msgspec.convert(dict(options), EncoderOptions))
        except (msgspec.ValidationError, ValueError, EncoderUnavailable) as error:
            raise InvalidRequest(f"encoder: {error}") from error

    def _serve(self, migration: Migration) -> None:
        """Have texts embedded under the new version. Raises InvalidRequest where its options give another by now."""
        version = _version(migration)
        if any(one.name == version.name for one in self._encoders.versions):
            return
        embedder = self._opened(migration.options)
        if embedder.version != version:
            raise InvalidRequest(f"encoder: its options stand for {embedder.version.name!r} now, not {version.name!r}")
        self._encoders.add(embedder)

    def _all_by_target(self, target: Routing) -> bool:
        """Have the indexer embed by the target alone; True once no turn from before that lacks its vectors.

        Only then may the store's description say so: a start finds by it what is still to be embedded.
        """
        if self._handed_over is None:
            if self._dual.waiting > HANDED_OVER_MAX:
                return False
            self._encoders.base = target
            self._dual.hand_over(self._indexer)
            self._handed_over = {
                (writer.shard.number, seq, waiting.owner, waiting.rev)
                for writer in self._writers
                for seq, waiting in writer.shard.pending.noted()
            }
        self._handed_over = {one for one in self._handed_over if self._writers[one[0]].shard.pending.awaits(*one[1:])}
        return not self._handed_over

    def _is_base(self, target: Routing) -> bool:
        """Whether the store's description says so already."""
        return tuple(one.name for one in self._identity.base) == target.names

    def _release(self, name: str) -> None:
        for writer in self._writers:
            writer.shard.release(name)
        self._encoders.remove(name)
        self._file.keep_encoder(name, None)

    def _drop_encoder(self, migration: Migration, name: str) -> None:
        if name not in _routings(migration)[0].names:
            self._encoders.remove(name)


def _version(migration: Migration) -> EmbeddingVersion:
    assert migration.version is not None, "a migration of embeddings has its version from its beginning on"
    return migration.version


def _routings(migration: Migration) -> tuple[Routing, Routing]:
    assert migration.base is not None
    assert migration.target is not None
    return migration.base, migration.target
