"""Backups of a running service: one thread that takes them when asked or when the policy says so, and lets old ones go.

Never more than one at a time. What failed is kept for `/readyz` and tried again; a service that stops leaves an
unfinished backup, which the next one takes up where it was. Nothing here is on a request's path.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from serve_app.backup import catalogue
from serve_app.backup.catalogue import Catalogue, Finished
from serve_app.backup.copying import Pace, Stopped
from serve_app.backup.layout import Layout
from serve_app.backup.manifest import Begun, Kind, Manifest
from serve_app.backup.options import BackupOptions
from serve_app.backup.plan import Plan, due, plan
from serve_app.backup.store_id import StoreRecord
from serve_app.backup.take import Holds, Taker
from serve_app.errors import InvalidRequest, MemstrataError, NotFound, Overloaded, StorageTrouble, StoreUnavailable
from serve_app.policies import BackupPolicy, Policies
from serve_app.stores.places import Place, open_place

_log = logging.getLogger(__name__)

POLL_S = 1.0
"""How often the schedule is looked at; that costs no call of the backups' place."""

LOOK_EVERY_S = 300.0
"""How often the backups' place is listed, for what somebody else has deleted there."""

SILENT_S = 30.0
"""How long a place that did not answer is not asked again for a mere look: every receipt would wait for it."""

RETRY_S = 60.0
"""After a backup that failed, before the schedule tries again."""

State = Literal["running", "finished", "failed", "interrupted", "damaged"]


@dataclass
class Progress:
    """Of the backup at hand, or of the one that failed last. Written by the thread, read by anybody."""

    begun: Begun
    shards: int = 0
    planned_bytes: int = 0
    copied_bytes: int = 0
    error: str | None = None

    def planned(self, count: int) -> None:
        """So many bytes are going to be copied."""
        self.planned_bytes += count

    def copied(self, count: int) -> None:
        self.copied_bytes += count

    def shard_done(self, number: int) -> None:
        self.shards = number


class Shown(NamedTuple):
    """One backup as it is told of; times in microseconds."""

    begun: Begun
    state: State
    finished: Finished | None = None
    expires_at: int | None = None
    progress: Progress | None = None


@dataclass
class _Asked:
    """What was asked for and not begun."""

    uri: str
    plan: Plan
    progress: Progress = field(init=False)

    def __post_init__(self) -> None:
        self.progress = Progress(self.plan.begun)


class BackupRunner:
    def __init__(
        self,
        layout: Layout,
        options: BackupOptions,
        connection: Mapping[str, str],
        policies: Policies,
        holds: Holds,
        clock: Callable[[], int],
    ) -> None:
        self._layout = layout
        self._options = options
        self._connection = connection
        self._policies = policies
        self._holds = holds
        self._clock = clock
        self._record = StoreRecord(layout.documents)
        self._store_id = self._record.store_id
        self._asking = threading.Lock()
        self._looking = threading.Lock()
        self._asked: _Asked | None = None
        self._failed: Progress | None = None
        self._found: dict[str, tuple[float, Catalogue]] = {}  # by address: when it was looked at, what was there
        self._silent: dict[str, tuple[float, str]] = {}  # by address: until when, and what it said
        self._cached: dict[str, catalogue.Cached] = {}
        self._not_before = 0.0
        self._pace = Pace(None)
        self._closed = threading.Event()
        self._wake = threading.Event()
        self._trouble: str | None = None
        self._thread = threading.Thread(target=self._run, name="backups", daemon=True)
        self._thread.start()

    # ---- asked from outside, on any thread

    def ask(self, kind: Kind, uri: str | None) -> Begun:
        """Begin a backup; gives what it will be. Raises InvalidRequest, Overloaded while another one runs."""
        chosen = self._allowed(uri)
        with self._asking:
            if self._asked is not None:
                raise Overloaded(f"backup {self._asked.plan.begun.id} is running")
            found = self._look(chosen, fresh=True)
            asked = _Asked(chosen, plan(found, kind, self._store_id, self._clock()))
            self._asked = asked
        self._wake.set()
        return asked.plan.begun

    def shown(self) -> list[Shown]:
        """Every backup of this store, oldest first, and the one that failed last."""
        shown: list[Shown] = []
        for found in self._everywhere():
            shown += [Shown(one.begun, "finished", one, self._expires_at(found, one.begun)) for one in found.finished]
            shown += [Shown(one, "damaged", expires_at=self._expires_at(found, one)) for one in found.damaged]
            shown += [Shown(one, "interrupted") for one in found.unfinished if one.id != self._at_hand]
        if (failed := self._failed) is not None:
            shown = [one for one in shown if one.begun.id != failed.begun.id]
            shown.append(Shown(failed.begun, "failed", progress=failed))
        if (asked := self._asked) is not None:
            shown = [one for one in shown if one.begun.id != asked.plan.begun.id]
            shown.append(Shown(asked.plan.begun, "running", progress=asked.progress))
        return sorted(shown, key=lambda one: one.begun.begun_at)

    def holding(self, until: int | None) -> list[tuple[str, int]]:
        """Backups begun before this moment, and when they expire: what was erased then may be in them.

        Of a place that does not answer: those that were there when it did. Raises StorageTrouble if it never has.
        """
        return [
            (one.id, self._expires_at(found, one))
            for found in self._everywhere()
            for one in (*(done.begun for done in found.finished), *found.damaged)
            if until is None or one.begun_at < until
        ]

    @property
    def trouble(self) -> str | None:
        """Why the last backup failed; None once one has succeeded."""
        return self._trouble

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def close(self) -> None:
        self._closed.set()
        self._pace.stop()
        self._wake.set()
        self._thread.join()

    # ---- addresses

    @property
    def _policy(self) -> BackupPolicy:
        return self._policies.of_service(BackupPolicy)

    def _uris(self) -> list[str]:
        return list(dict.fromkeys(uri for uri in (self._policy.uri, self._options.uri) if uri))

    def _former(self) -> list[str]:
        """Addresses that backups went to under other settings."""
        return [uri for uri in self._record.addresses if uri not in self._uris()]

    def _everywhere(self) -> list[Catalogue]:
        """What lies at each address. A former one may be gone, or out of reach: then what was seen there counts."""
        found = [self._look_or_remember(uri) for uri in self._uris()]
        for uri in self._former():
            with suppress(StorageTrouble):
                found.append(self._look_or_remember(uri))
        return found

    def _allowed(self, uri: str | None) -> str:
        """Backups go where the configuration or the policy says, never where a request wants them."""
        uris = self._uris()
        if not uris:
            raise InvalidRequest("backups need an address: [backup] uri in the configuration, or the policy backup")
        if uri is not None and uri not in uris:
            raise InvalidRequest("uri: backups go to the address of the configuration or of the policy backup only")
        return uri or uris[0]

    def _place(self, uri: str) -> Place:
        return open_place(uri, self._connection)

    def _look(self, uri: str, fresh: bool = False) -> Catalogue:
        with self._looking:
            at, found = self._found.get(uri, (-math.inf, Catalogue()))
            if not fresh and time.monotonic() - at < LOOK_EVERY_S:
                return found
            silent_until, trouble = self._silent.get(uri, (-math.inf, ""))
            if not fresh and time.monotonic() < silent_until:
                raise StoreUnavailable(trouble)
            try:
                found = catalogue.look(self._place(uri), self._store_id, self._cached.setdefault(uri, {}))
            except (StorageTrouble, NotFound) as error:  # no such bucket is no answer, either
                self._silent = {uri: (time.monotonic() + SILENT_S, str(error))} | self._still_silent(uri)
                raise StoreUnavailable(str(error)) from error
            self._silent.pop(uri, None)
            self._found[uri] = (time.monotonic(), found)
            return found

    def _still_silent(self, but: str) -> dict[str, tuple[float, str]]:
        now = time.monotonic()
        return {uri: one for uri, one in self._silent.items() if uri != but and one[0] > now}

    def _look_or_remember(self, uri: str) -> Catalogue:
        try:
            return self._look(uri)
        except StorageTrouble:
            if uri not in self._found:
                raise
            return self._found[uri][1]

    def _expires_at(self, found: Catalogue, one: Begun) -> int:
        return found.expires_at(one, self._policy.keep_s)

    @property
    def _at_hand(self) -> str | None:
        return self._asked.plan.begun.id if self._asked is not None else None

    # ---- the thread

    def _run(self) -> None:
        while not self._closed.is_set():
            self._wake.wait(POLL_S)
            self._wake.clear()
            try:
                self._tend()
            except Stopped:
                return
            except MemstrataError as error:
                self._fail(str(error))
            except Exception as error:  # noqa: BLE001 - a defect of one backup must not end those after it
                _log.exception("backup failed")
                self._fail(f"defect: {type(error).__name__}")

    def _tend(self) -> None:
        if self._asked is None:
            self._ask_if_due()
        asked = self._asked
        if asked is not None:
            self._take(asked)

    def _ask_if_due(self) -> None:
        policy = self._policy
        if not self._uris():
            self._trouble = None
        if time.monotonic() < self._not_before:
            return
        if policy.uri:
            with self._asking:
                now = self._clock()
                kind = due(self._look(policy.uri), policy, now)
                if kind is not None and self._asked is None:
                    found = self._look(policy.uri, fresh=True)  # what it stands on may have gone since
                    self._asked = _Asked(policy.uri, plan(found, kind, self._store_id, now))
        if self._asked is None:
            self._let_expired_go()

    def _let_expired_go(self) -> None:
        """Wherever backups of this store are."""
        for uri in self._uris():
            self._expire_at(uri)
        for uri in self._former():
            with suppress(StorageTrouble):
                self._expire_at(uri)

    def _expire_at(self, uri: str) -> None:
        for backup in self._look(uri).expired(self._clock(), self._policy.keep_s):
            _log.info("backup %s has expired", backup)
            catalogue.delete(self._place(uri), backup)
            self._look(uri, fresh=True)

    def _take(self, asked: _Asked) -> Manifest:
        place, progress = self._place(asked.uri), asked.progress
        self._record.note(asked.uri)
        for leftover in asked.plan.leftovers:
            catalogue.delete(place, leftover)
        self._pace = Pace(self._options.bytes_per_second, progress.copied)
        if self._closed.is_set():
            raise Stopped("the service stops")
        base = None if asked.plan.base is None else catalogue.read_manifest(place, asked.plan.base.id)
        taker = Taker(self._layout, place, self._holds, self._pace, self._clock, progress.planned)
        manifest = taker.take(asked.plan.begun, base, progress.shard_done)
        _log.info("backup %s finished: %d bytes copied", manifest.begun.id, manifest.own_bytes)
        self._look(asked.uri, fresh=True)
        self._asked, self._failed, self._trouble = None, None, None
        self._expire_at(asked.uri)
        return manifest

    def _fail(self, reason: str) -> None:
        if self._trouble is None:
            _log.warning("backup failed, will be tried again: %s", reason)
        if (asked := self._asked) is not None:
            asked.progress.error = reason
            self._failed = asked.progress
        self._asked, self._trouble = None, reason
        self._found = {uri: (-math.inf, found) for uri, (_, found) in self._found.items()}
        self._cached = {}  # what is damaged may look as it did
        self._not_before = time.monotonic() + RETRY_S
