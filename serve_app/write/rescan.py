"""The rescan: when a tenant's privacy policy tightens, what is stored of it is redacted, too.

A duty of the housekeeper. It goes through the tenant's users shard by shard and writes what it changes like an edit,
through the writer: indexes, vectors and summaries follow, and the old bytes go with the next purge. How far it got is
kept in a file of the store; a part that is done twice changes nothing. A policy that loosens changes nothing stored.
"""

from __future__ import annotations

import bisect
import time
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from serve_app.core import OWNER_SEPARATOR, Fact, Turn
from serve_app.errors import Overloaded
from serve_app.policies import PrivacyLevel, PrivacyPolicy
from serve_app.records import FactGone, FactPut, TurnPut
from serve_app.stores.documents import Documents
from serve_app.stores.policy_file import PolicyFile, PrivacyFloor
from serve_app.stores.private_file import PrivateFile
from serve_app.stores.rows import pseudonym
from serve_app.write.commit import Draft, Operation, ShardWriter
from serve_app.write.redaction import redacted_fact, redacted_turn
from serve_app.write.shard import Shard

RESCAN_FILE = "rescan.json"

TURNS_A_PART = 256
"""Read, redacted and written at once."""

TEND_S = 0.25
"""How long one call of the duty goes on: folds and other duties wait for it."""

EVERY_S = 1.0


class Cursor(msgspec.Struct, frozen=True):
    """How far a shard is: every owner before `place`, and of the one there every turn up to `seq`.

    Owners come in the order of their pseudonyms: so no file names one, who may be erased meanwhile.
    """

    place: str = ""
    seq: int = -1
    done: bool = False
    turns: int = 0
    facts: int = 0


class Progress(msgspec.Struct, frozen=True):
    """One tenant's rescan: for which state of its policy, and each shard's cursor by number."""

    changes: int
    level: PrivacyLevel
    shards: dict[int, Cursor] = {}


class Kept(msgspec.Struct, frozen=True):
    tenants: dict[str, Progress] = {}


class RedactTurns(Operation):
    """Store turns without what the level covers. One that has changed since it was read is looked at anew."""

    def __init__(self, owner: str, pairs: Sequence[tuple[Turn, Turn]], level: PrivacyLevel) -> None:
        self.owner, self.level = owner, level
        self._clean = {read.seq: (read.rev, clean) for read, clean in pairs}
        self.weight = len(pairs)

    def prepare(self, draft: Draft) -> int:
        changed = 0
        for turn in draft.shard.turns(self.owner, sorted(self._clean)):
            rev, read = self._clean[turn.seq]
            clean = read if turn.rev == rev else redacted_turn(turn, self.level)
            if clean is not turn:
                draft.add(TurnPut(self.owner, replace(clean, rev=draft.seq())))
                changed += 1
        return changed


class RedactFact(Operation):
    """Store a fact without what the level covers; its earlier versions go, since they say more."""

    def __init__(self, owner: str, key: str, level: PrivacyLevel) -> None:
        self.owner, self.key, self.level = owner, key, level

    def prepare(self, draft: Draft) -> int:
        versions = draft.shard.block(self.owner).facts.get(self.key)
        if not versions:
            return 0
        newest = redacted_fact(versions[-1], self.level)
        draft.add(FactGone(draft.seq(), self.owner, self.key))
        draft.add(FactPut(self.owner, replace(newest, seq=draft.seq())))
        return 1


class Rescan:
    """See `housekeeping.Duty`. `shards`: how many this service writes."""

    name = "rescan"
    every_s = EVERY_S

    def __init__(self, policies: PolicyFile, files: Documents, shards: int, tend_s: float = TEND_S) -> None:
        self._policies = policies
        self._file = PrivateFile(files, RESCAN_FILE, Kept, Kept)
        self._shards = shards
        self._tend_s = tend_s
        self._owners: dict[tuple[int, str, int], list[str]] = {}
        """Of a tenant in a shard, as of the beginning: who comes later is redacted on the way in."""

    def tend(self, number: int, writer: ShardWriter) -> bool:
        """Go on with one tenant; gives whether this shard has more to do."""
        for tenant, floor in self._policies.lagging().items():
            progress = self._progress(tenant, floor)
            cursor = progress.shards.get(number, Cursor())
            if not cursor.done:
                cursor = self._advance(writer, tenant, progress, cursor)
                self._keep(tenant, progress, number, cursor)
                self._end(tenant)
                return True
            self._end(tenant)
        return False

    def state(self, tenant: str) -> dict[str, Any]:
        """For operators: whether what is stored is as tight as the policy, and what has been changed so far."""
        floor = self._policies.floor(tenant)
        level = self._policies.of(tenant, PrivacyPolicy).level
        progress = self._file.read().tenants.get(tenant)
        cursors = progress.shards.values() if progress and progress.changes == floor.changes else ()
        return {
            "state": "done" if floor.level == level else "running",
            "stored": floor.level,
            "shards_done": sum(cursor.done for cursor in cursors),
            "turns_redacted": sum(cursor.turns for cursor in cursors),
            "facts_redacted": sum(cursor.facts for cursor in cursors),
        }

    def _progress(self, tenant: str, floor: PrivacyFloor) -> Progress:
        """What was kept, unless the policy was set again since: then from the beginning."""
        kept = self._file.read().tenants.get(tenant)
        if kept is not None and kept.changes == floor.changes:
            return kept
        return Progress(floor.changes, self._policies.of(tenant, PrivacyPolicy).level)

    def _keep(self, tenant: str, progress: Progress, number: int, cursor: Cursor) -> None:
        """Beside what other shards have reached meanwhile."""

        def with_cursor(held: Kept) -> Kept:
            kept = held.tenants.get(tenant)
            latest = kept if kept is not None and kept.changes == progress.changes else progress
            return Kept({**held.tenants, tenant: replace(latest, shards={**latest.shards, number: cursor})})

        self._file.change(with_cursor)

    def _end(self, tenant: str) -> None:
        """Once every shard is done, what is stored is as tight as the policy was when this began."""
        progress = self._file.read().tenants[tenant]
        if len(progress.shards) == self._shards and all(cursor.done for cursor in progress.shards.values()):
            self._policies.raise_floor(tenant, PrivacyFloor(progress.level, progress.changes))
            self._owners = {key: owners for key, owners in self._owners.items() if key[1] != tenant}

    def _advance(self, writer: ShardWriter, tenant: str, progress: Progress, cursor: Cursor) -> Cursor:
        """Owner after owner, for a bounded time."""
        owners = self._owners_of(writer.shard, tenant, progress.changes)
        ends = time.monotonic() + self._tend_s
        at = bisect.bisect_left(owners, cursor.place, key=pseudonym)
        try:
            while at < len(owners):
                if pseudonym(owners[at]) != cursor.place:
                    cursor = replace(cursor, place=pseudonym(owners[at]), seq=-1)
                cursor, more = _redact_part(writer, owners[at], progress.level, cursor)
                at += not more
                cursor = cursor if more or at == len(owners) else replace(cursor, place=pseudonym(owners[at]), seq=-1)
                if time.monotonic() >= ends:
                    break
        except Overloaded:
            return cursor  # appends come first
        return replace(cursor, done=at == len(owners))

    def _owners_of(self, shard: Shard, tenant: str, changes: int) -> list[str]:
        key = (shard.number, tenant, changes)
        if key not in self._owners:
            start = tenant + OWNER_SEPARATOR
            found = shard.owners(start, tenant + chr(ord(OWNER_SEPARATOR) + 1))
            self._owners[key] = sorted(found, key=pseudonym)
        return self._owners[key]


def _redact_part(writer: ShardWriter, owner: str, level: PrivacyLevel, cursor: Cursor) -> tuple[Cursor, bool]:
    """The owner's next turns, and after the last of them its facts; gives whether there are more."""
    shard = writer.shard
    block = shard.block(owner)
    with block.lock:
        seqs = sorted(seq for index in block.sessions.values() for seq in index.seqs if seq > cursor.seq)
        facts = [fact for versions in block.facts.values() for fact in versions]
    part = seqs[:TURNS_A_PART]
    pairs = [(turn, redacted_turn(turn, level)) for turn in shard.turns(owner, part)]
    changed = [(read, clean) for read, clean in pairs if clean is not read]
    if changed:
        done = writer.submit(RedactTurns(owner, changed, level)).result()[0]
        cursor = replace(cursor, turns=cursor.turns + done)
    if len(part) < len(seqs):
        return replace(cursor, seq=part[-1]), True
    return replace(cursor, facts=cursor.facts + _redact_facts(writer, owner, level, facts)), False


def _redact_facts(writer: ShardWriter, owner: str, level: PrivacyLevel, facts: Sequence[Fact]) -> int:
    keys = {fact.key for fact in facts if redacted_fact(fact, level) is not fact}
    return sum(writer.submit(RedactFact(owner, key, level)).result()[0] for key in sorted(keys))
