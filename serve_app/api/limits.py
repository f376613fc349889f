"""What one key or tenant may ask for, so that none takes what the others need. Counted in this process alone.

A rate is a token bucket of a key. Of the places in which requests are read and worked on, one tenant takes a part
at most: who sends slowly, or asks for all there is, keeps nobody else waiting. Runs on the event loop only.
"""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Annotated

import msgspec
from msgspec import Meta

from serve_app.api.auth import Principal, Rate
from serve_app.errors import RateLimited

BURST_S = 1.0
"""A key that was quiet may at once ask for as much as its rate gives in so many seconds."""

BUCKETS_MAX = 10_000
"""Keys whose rate is remembered; one that has not asked for longest is forgotten, and may burst again."""

PLACE_WAIT_S = 1.0
"""After which a tenant that held all its places is told to come again."""

Positive = Annotated[int, Meta(ge=1)]


class LimitOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Bounds for each key, tenant and user. None: no bound."""

    turn_ms: Positive = 50
    """Of a turn of the event loop; requests that it would begin later are sent away (api/door.py)."""

    requests_per_s: Rate | None = None
    """Of one key, unless it was made with a rate of its own."""

    tenant_requests: Positive = 192
    """Of one tenant, worked on at once; three quarters of what a gateway on Ray takes."""

    tenant_writes: Positive = 144
    """Writes among them: a store that is slow to take what is written leaves places for those who read."""

    tenant_bodies: Positive = 768
    """Of one tenant, being sent at once, beside those worked on."""

    tenant_exports: Positive = 4
    """Of one tenant at once: an export reads for as long as its caller takes."""

    user_turns: Positive | None = None
    """Stored turns of one user."""


class _Bucket:
    """Tokens that come back with time. Starts full."""

    __slots__ = ("seen", "tokens")

    def __init__(self, burst: float, now: float) -> None:
        self.tokens, self.seen = burst, now

    def wait_s(self, rate: float, burst: float, now: float) -> float:
        """Take one token and give 0, or give how long it takes until there is one."""
        self.tokens = min(burst, self.tokens + (now - self.seen) * rate)
        self.seen = now
        if self.tokens >= 1.0:
            self.tokens -= 1.0
            return 0.0
        return (1.0 - self.tokens) / rate


class Shares:
    """How many of something each tenant holds, at most so many."""

    def __init__(self, most: int, of_what: str) -> None:
        self._most = most
        self._of_what = of_what
        self._held: dict[str, int] = {}

    def place(self, tenant: str) -> _Place:
        """Held for the length of a `with`, whose beginning raises RateLimited where the tenant holds all it may."""
        return _Place(self, tenant)

    def take(self, tenant: str) -> None:
        held = self._held.get(tenant, 0)
        if held >= self._most:
            raise RateLimited(f"this tenant has {self._most} {self._of_what} at once already", PLACE_WAIT_S)
        self._held[tenant] = held + 1

    def give_back(self, tenant: str) -> None:
        """Tenants come and go; those that hold nothing leave no trace."""
        held = self._held.pop(tenant)
        if held > 1:
            self._held[tenant] = held - 1


class _Place:
    """A class of its own: a generator would take several times as long, with each request."""

    __slots__ = ("_shares", "_tenant")

    def __init__(self, shares: Shares, tenant: str) -> None:
        self._shares, self._tenant = shares, tenant

    def __enter__(self) -> None:
        self._shares.take(self._tenant)

    def __exit__(self, *_: object) -> None:
        self._shares.give_back(self._tenant)


class Limits:
    def __init__(self, options: LimitOptions, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = options.requests_per_s
        self._clock = clock
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()
        self.requests = Shares(options.tenant_requests, "requests")
        self.passed_on = Shares(options.tenant_requests, "requests that wait for writers")
        self.writes = Shares(options.tenant_writes, "writes")
        self.bodies = Shares(options.tenant_bodies, "requests that are still being sent")
        self.exports = Shares(options.tenant_exports, "exports")

    def admit(self, who: Principal) -> None:
        """Count one request of this key. Raises RateLimited, with the time until the next is welcome."""
        rate = who.rate_per_s or self._rate
        if rate is None:
            return
        now, burst = self._clock(), max(1.0, rate * BURST_S)
        wait_s = self._bucket(who.key_id, burst, now).wait_s(rate, burst, now)
        if wait_s > 0:
            raise RateLimited(f"this key may ask {rate:g} times a second", math.ceil(wait_s))

    def _bucket(self, key_id: str, burst: float, now: float) -> _Bucket:
        bucket = self._buckets.get(key_id)
        if bucket is None:
            bucket = self._buckets[key_id] = _Bucket(burst, now)
            if len(self._buckets) > BUCKETS_MAX:
                self._buckets.popitem(last=False)
        else:
            self._buckets.move_to_end(key_id)
        return bucket
