"""Two tenants, and a key that is bound to one user, drive every route with hostile ids, and share nothing.

What is written of each (tenant, user) carries a word of its own. After each step no answer shows a word of another
(tenant, user), what is held of all others is what it was, and lists name nobody else.
"""

import itertools
import json
import tempfile
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from serve_app.api.app import Route
from serve_app.memory.memory import MemoryOptions
from tests.api.running import Running, hash_settings, quoted, refused, word
from tests.api.test_auth import BODIES, ROUTES

LONG = "x" * 255
HOSTILE = [
    "john",
    "john_",
    "john%",
    "joh",
    "john ",
    " john",
    "john.",
    "JOHN",
    "john\u200b",
    "j\u043ehn",
    "caf\u00e9",
    "cafe\u0301",
    "\u1e9b\u0323",
    unicodedata.normalize("NFKD", "\u1e9b\u0323"),
    "%6Aohn",
    "john%00",
    "john%2Fx",
    "john/x",
    "..",
    ".",
    "../john",
    "a|b",
    "a\u241fb",
    "\u2028",
    "' OR '1'='1",
    '" OR ""="',
    "john') OR (owner != '",
    "john' --",
    "*",
    "?",
    "#",
    "&user_id=john",
    "\\",
    "null",
    "turn",
    "fact",
    "mark",
    "watermark",
    "erasure",
    "purged",
    "owner",
    "0",
    "-1",
    "0:1",
    LONG + "y",
    LONG + "z",
    "\U0001f469\u200d\U0001f4bb",
    "\U0010ffff",
]
"""Separators and their neighbours, wildcards, quotes, SQL, look-alikes, prefixes of each other, normal forms,
percent-encodings, path dots, the words of the tables, the longest there are."""

TENANTS = ["", " ", "2", "%", "\u200b", "' OR '1'='1", "/..", "\U0010ffff"]
"""What is put after the name of one tenant to make that of the other."""

READS = ("/v1/context", "/v1/search", "/v1/embeddings", "/v1/rerank", "/v1/query:expand")

SAID = "the secret garden must never be sold"

ids = st.sampled_from(HOSTILE) | st.text(st.characters(exclude_categories=["Cc", "Cs"]), min_size=1, max_size=8)
numbers = itertools.count(1)


class Owner(NamedTuple):
    tenant: str
    user: str


@dataclass
class Party:
    """Who asks: a key of a tenant, bound to a user or not."""

    tenant: str
    key: str
    bound: str | None = None

    def may_see(self, owner: Owner, user: str | None) -> bool:
        return owner == (self.tenant, user) and self.bound in (None, user)


@dataclass
class World:
    """What the three have done so far, as their answers told it."""

    service: Running
    parties: list[Party]
    words: dict[Owner, str] = field(default_factory=dict)
    receipts: list[str] = field(default_factory=lambda: ["0:0"])
    erasures: dict[str, Owner] = field(default_factory=dict)
    key_ids: list[str] = field(default_factory=lambda: ["none"])

    def word_of(self, owner: Owner) -> str:
        return self.words.setdefault(owner, word(next(numbers) + 1_000_000))

    def held(self, owner: Owner) -> list[str]:
        """All that is held, but for what is made in the background."""
        key = next(party.key for party in self.parties if party.tenant == owner.tenant and party.bound is None)
        answer = self.service.call("GET", f"/v1/users/{quoted(owner.user)}/export", key=key)
        assert answer.status_code == 200, answer.text
        lines = [json.loads(line) for line in answer.content.splitlines()]
        return [json.dumps(line, sort_keys=True) for line in lines if line["kind"] in ("turn", "fact")]


class Step(NamedTuple):
    """One request of one party, by places in what the example has drawn."""

    party: int
    route: int
    user: int
    session: int
    turn: int
    shape: int


steps = st.builds(
    Step,
    party=st.integers(0, 2),
    route=st.integers(0, len(ROUTES) - 1),
    user=st.integers(0, 2),
    session=st.integers(0, 1),
    turn=st.integers(0, 2),
    shape=st.integers(0, 7),
)


class Asking:
    """Makes the request of a step. What a route does not need is drawn, but not used."""

    def __init__(self, world: World, step: Step, users: list[str], sessions: list[str], turns: list[str]) -> None:
        self.route: Route = ROUTES[step.route]
        self.party = world.parties[step.party]
        self.user, self.session, self.turn = users[step.user], sessions[step.session], turns[step.turn]
        self.world, self.shape = world, step.shape
        self.owner = Owner(self.party.tenant, self.user)

    def path(self) -> str:
        return "/" + "/".join(
            quoted(self._value(name)) + verb if name else verb for name, verb in map(self._read, self._parts())
        )

    def _parts(self) -> list[str]:
        return self.route.template.split("/")[1:]

    @staticmethod
    def _read(part: str) -> tuple[str, str]:
        """The name of what a part leaves open, if it does, and what stands behind it."""
        name, closed, verb = part.partition("}")
        return (name.removeprefix("{"), verb) if closed else ("", part)

    def _value(self, name: str) -> str:
        """Of an open segment, or of a query parameter. Fails for a name that this test does not know."""
        values: dict[str, Callable[[], str]] = {
            "user_id": lambda: self.user,
            "session_id": lambda: self.session,
            "turn_id": lambda: self.turn,
            "key": lambda: self.turn,
            "name": lambda: ["privacy", "ttl", "lifecycle", self.turn][self.shape % 4],
            "erasure_id": lambda: self._any_of([*self.world.erasures, self.turn]),
            "key_id": lambda: self._any_of(self.world.key_ids),
            "migration_id": lambda: ["m1", self.turn][self.shape % 2],
            "format": lambda: ["html", "json"][self.shape % 2],
            "limit": lambda: str(1 + self.shape),
            "after_seq": lambda: str(self.shape - 1),
            "prefix": lambda: self.user[:1],
            "after": lambda: self.turn,
            "class": lambda: "person",
            "id": lambda: self.turn,
        }
        assert name in values, f"{self.route.template}: say here what a hostile {name} is"
        return values[name]()

    def _any_of(self, known: list[str]) -> str:
        return known[self.shape % len(known)]

    def body(self) -> Any:
        marked = f"{SAID} {self.world.word_of(self.owner)}"
        turn = {
            "id": self.turn,
            "role": "user",
            "content": marked,
            "speaker": self.user,
            "metadata": {self.turn: marked},
        }
        receipt = self.world.receipts[self.shape % len(self.world.receipts)]
        late = {"deadline_ms": 1, "min_receipt": receipt} if self.shape == 7 else {}
        bodies: dict[str, Any] = {
            "POST /v1/sessions/{session_id}/turns": {"user_id": self.user, "turns": [turn]},
            "PATCH /v1/turns/{turn_id}": {"content": f"now {marked}"},
            "POST /v1/context": {"user_id": self.user, "query": SAID, "budget_tokens": 900} | self._aimed() | late,
            "POST /v1/search": {"user_id": self.user, "query": SAID, "k": 50} | self._narrowed() | late,
            "PUT /v1/users/{user_id}/facts/{key}": {"value": marked},
            "POST /v1/embeddings": {"input": [self.user, self.turn]},
            "POST /v1/golden": {
                "user_id": self.user,
                "query": marked,
                "gold": [{"session_id": self.session, "turn_id": self.turn}],
            },
            "POST /v1/admin/maintenance": {"action": "fold"},
            "POST /v1/admin/keys": {"role": "app", "user_id": self.user},
        }
        known = bodies.get(f"{self.route.method} {self.route.template}")
        if known is None and self.route.method in ("POST", "PUT", "PATCH"):
            known = BODIES.get(self.route.template)
            if isinstance(known, dict) and "user_id" in known:
                known = {**known, "user_id": self.user}
        return known

    def _aimed(self) -> dict[str, Any]:
        receipt = self.world.receipts[self.shape % len(self.world.receipts)]
        return [
            {},
            {"session_id": self.session},
            {"session_id": self.session, "scope": "session"},
            {"as_of": receipt},
            {"session_id": self.turn, "as_of": receipt},
            {"explain": True},
            {"format": "text"},
            {"history": [{"role": "user", "content": SAID}]},
        ][self.shape]

    def _narrowed(self) -> dict[str, Any]:
        return [
            {},
            {"session_id": self.session},
            {"query": "", "filters": {"metadata": {self.turn: f"{SAID} {self.world.word_of(self.owner)}"}}},
            {"query": "", "filters": {"roles": ["user"]}},
            {"query": "", "filters": {"tool_name": self.turn}},
            {"mode": "lexical", "tiers": ["warm"]},
            {"mode": "dense", "explain": True},
            {"tiers": ["hot", "warm", "cold"]},
        ][self.shape]

    def send(self) -> httpx.Response:
        query = {name: self._value(name) for name in self.route.query}
        body, headers = self.body(), {"x-memstrata-route": "john", "x-tenant": self.turn.encode(), "x-user": b"john"}
        arguments = {"params": query} | ({} if body is None else {"json": body})
        return self.world.service.call(self.route.method, self.path(), key=self.party.key, headers=headers, **arguments)

    @property
    def reads(self) -> bool:
        """Whether it changes nothing. If it did, it would be seen at the next step that is no read."""
        return self.route.method == "GET" or self.route.template in READS

    @property
    def names_a_user(self) -> bool:
        body = self.body()
        named = isinstance(body, dict) and "user_id" in body and not self.route.template.startswith("/v1/admin")
        return "{user_id}" in self.route.template or "user_id" in self.route.query or named


@pytest.fixture(scope="module")
def small() -> Iterator[Running]:
    """So little stays in memory that much is read from the tables."""
    with tempfile.TemporaryDirectory() as folder:
        bounded = MemoryOptions(turns_resident=8, owner_turns_resident=2)
        running = Running(hash_settings(Path(folder), memory=bounded))
        yield running
        running.stop()


def drive(
    service: Running, suffix: str, bound: int, users: list[str], sessions: list[str], turns: list[str], plan: list[Step]
) -> None:
    number = next(numbers)
    first, second = f"{number}t", f"{number}t{suffix or '+'}"
    parties = [
        Party(first, service.make_key(tenant=first, role="admin")),
        Party(second, service.make_key(tenant=second, role="admin")),
        Party(first, service.make_key(tenant=first, user_id=users[bound]), users[bound]),
    ]
    world = World(service, parties)
    owners = [Owner(tenant, user) for tenant in (first, second) for user in dict.fromkeys(users)]
    for owner in owners:
        world.word_of(owner)
    append = next(at for at, route in enumerate(ROUTES) if route.handler.__name__ == "append_turns")
    seeded = [Step(party, append, user, session, 0, 0) for party in (0, 1) for user in range(3) for session in (0, 1)]
    held = {owner: world.held(owner) for owner in owners}
    for step in [*seeded, *plan]:
        held = taken(world, Asking(world, step, users, sessions, turns), owners, held)


def taken(world: World, asking: Asking, owners: list[Owner], held: dict[Owner, list[str]]) -> dict[Owner, list[str]]:
    """Ask, check what came back and what everybody holds then, and give that."""
    before_erasures = dict(world.erasures)
    answer, party, route = asking.send(), asking.party, asking.route
    told = f"{route.method} {route.template} {asking.owner} {answer.status_code} {answer.text[:300]}"
    assert answer.status_code < 500 or answer.json()["code"] == "receipt_not_reached", told
    for owner, marker in world.words.items():
        assert marker not in answer.text or party.may_see(owner, asking.user), told
    if asking.names_a_user and party.bound not in (None, asking.user):
        refused(answer, 403, "forbidden")
    if route.template.startswith("/v1/admin") and party.bound is not None:
        refused(answer, 403, "forbidden")
    after = held if asking.reads else {owner: world.held(owner) for owner in owners}
    for owner in owners:
        if not (party.may_see(owner, asking.user) and asking.names_a_user):
            assert after[owner] == held[owner], told
    if answer.status_code < 300 and answer.headers["content-type"] == "application/json":
        noted(world, asking, answer.json(), before_erasures, after)
    return after


def noted(world: World, asking: Asking, answer: Any, erasures: dict[str, Owner], held: dict[Owner, list[str]]) -> None:
    """Remember ids that others may try, and check the lists."""
    if "receipt" in answer:
        world.receipts = [*world.receipts, answer["receipt"]][-8:]
    match f"{asking.route.method} {asking.route.template}":
        case "DELETE /v1/users/{user_id}":
            world.erasures[answer["erasure_id"]] = asking.owner
        case "GET /v1/erasures/{erasure_id}":
            assert asking.party.may_see(erasures[answer["erasure_id"]], erasures[answer["erasure_id"]].user)
        case "POST /v1/admin/keys":
            world.key_ids.append(answer["key_id"])
        case "GET /v1/admin/keys":
            assert {key["tenant"] for key in answer["keys"]} == {asking.party.tenant}
        case "GET /v1/users":
            there = {owner.user for owner, lines in held.items() if owner.tenant == asking.party.tenant and lines}
            assert {user["user_id"] for user in answer["users"]} <= there


plans = {
    "suffix": st.sampled_from(TENANTS),
    "bound": st.integers(0, 2),
    "users": st.lists(ids, min_size=3, max_size=3, unique=True),
    "sessions": st.lists(ids, min_size=2, max_size=2),
    "turns": st.lists(ids, min_size=3, max_size=3, unique=True),
}
quiet = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture]


@settings(max_examples=8, deadline=None, derandomize=True, suppress_health_check=quiet)
@given(plan=st.lists(steps, min_size=15, max_size=30), **plans)
def test_tenants_and_users_share_nothing(small: Running, plan: list[Step], **drawn: Any) -> None:
    drive(small, plan=plan, **drawn)


@pytest.mark.slow
@settings(max_examples=200, deadline=None, suppress_health_check=quiet)
@given(plan=st.lists(steps, min_size=20, max_size=60), **plans)
def test_tenants_and_users_share_nothing_at_length(small: Running, plan: list[Step], **drawn: Any) -> None:
    drive(small, plan=plan, **drawn)


@pytest.mark.parametrize("at", range(3))
def test_every_route_is_driven(small: Running, at: int) -> None:
    """Each of the table, by each of the three, in each shape, with the most alike of ids."""
    alike = [["john", " john", "joh"], ["caf\u00e9", "cafe\u0301", "cafe"], ["a", "a ", "a\u241fb"]][at]
    plan = [
        Step(party, route, (at + party) % 3, at % 2, party, (route + party + at) % 8)
        for route in range(len(ROUTES))
        for party in range(3)
    ]
    drive(small, TENANTS[at + 1], 1, alike, ["s", "s%"], ["1", "1'", "turn"], plan)


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.template}")
@pytest.mark.parametrize("bad", ["a\x1fb", "t\x1f", "\x00", "\x7f", "x" * 257, ""])
def test_no_route_takes_an_id_that_could_be_two(small: Running, route: Route, bad: str) -> None:
    """The separator of tenant and user, and what is no id at all, wherever an id may stand."""
    party = Party("default", small.key)
    asking = Asking(World(small, [party]), Step(0, ROUTES.index(route), 0, 0, 0, 1), [bad], [bad], [bad])
    takes_ids = asking.names_a_user or any(name in route.template for name in ("{session_id}", "{turn_id}", "{key}"))
    if takes_ids and (bad or "{" not in route.template):
        answer = asking.send()
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid_request"), answer.text


@pytest.mark.parametrize("name", ["tenant", "owner", "user_id", "user", "key", "$or", "metadata.x", "owner = 'x' OR 1"])
def test_a_filter_that_is_not_known_is_refused(small: Running, name: str) -> None:
    body = {"user_id": "u", "query": "x", "filters": {name: "default"}}
    refused(small.call("POST", "/v1/search", json=body), 422, "invalid_request")
