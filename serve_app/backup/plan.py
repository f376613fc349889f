"""What is to be done next: pure, from what there is, the policy and the time."""

from __future__ import annotations

from typing import NamedTuple

from serve_app.backup.catalogue import Catalogue, Finished
from serve_app.backup.manifest import Begun, Kind, new_id
from serve_app.core import SECOND_US
from serve_app.policies import BackupPolicy

TAKEN_UP_WITHIN_S = 6 * 3_600
"""An unfinished backup that is older is deleted and begun anew: its first shards would be of another time."""


class Plan(NamedTuple):
    """One backup to take, on this base; `leftovers` are unfinished ones that nobody will take up."""

    begun: Begun
    base: Finished | None
    leftovers: list[str]


def plan(found: Catalogue, kind: Kind, store_id: str, now: int) -> Plan:
    """An incremental backup without a sound base is a full one. What another backup needs is neither taken up nor left
    over: it was finished once.
    """
    base = found.base() if kind == "incremental" else None
    kind = "full" if base is None else kind
    base_id = None if base is None else base.id
    needed = found.needed()
    unfinished = [one for one in found.unfinished if one.id not in needed]
    begun = next((one for one in reversed(unfinished) if _goes_on(one, kind, base_id, now)), None)
    leftovers = [one.id for one in unfinished if one is not begun]
    return Plan(begun or Begun(new_id(kind, now), kind, base_id, store_id, now), base, leftovers)


def _goes_on(one: Begun, kind: Kind, base: str | None, now: int) -> bool:
    return (one.kind, one.base) == (kind, base) and now - one.begun_at < TAKEN_UP_WITHIN_S * SECOND_US


def due(found: Catalogue, policy: BackupPolicy, now: int) -> Kind | None:
    """What the policy asks for at this moment. Counted from when a backup began, so that a schedule does not slip."""
    full, newest = found.newest("full"), found.newest()
    if full is None or newest is None or now - full.begun.begun_at >= policy.full_every_s * SECOND_US:
        return "full"
    if now - newest.begun.begun_at >= policy.incremental_every_s * SECOND_US:
        return "incremental"
    return None
