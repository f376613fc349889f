"""What a policy forbids and is there all the same is found, told by counts alone, and gone once it was asked for."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs.pii_rescan import main
from serve_app.policies import DAY_S
from serve_app.stores.policy_file import PolicyFile, PrivacyFloor
from serve_app.write.commit import microseconds
from tests.api.running import Running, hash_settings
from tests.jobs.apart import JobsApart

pytestmark = pytest.mark.ray

RESCAN = "jobs.pii_rescan"
MAIL = "anna.kestrel@example.org"
CARD = "4111 1111 1111 1111"


class Store:
    """Two tenants with a mail each, in a turn that is cold, one that is warm and a fact; one tenant allows it."""

    def __init__(self, data: Path) -> None:
        self.ahead_s = 0
        self.running = Running(hash_settings(data), clock=self.clock)
        self.keys = {name: self.running.make_key(role="admin", tenant=name) for name in ("acme", "beta")}
        for name, key in self.keys.items():
            self.level(name, "off")
            self.running.append("u", "old", f"{name} writes to {MAIL}", key=key)
        self.ahead_s = 40 * DAY_S
        self.running.fold()
        self.running.ok("POST", "/v1/admin/maintenance", json={"action": "demote"})
        for key in self.keys.values():
            self.running.append("u", "new", {"role": "tool", "data": {"card": CARD, "to": MAIL}}, "plain", key=key)
            self.running.ok("PUT", "/v1/users/u/facts/mail", json={"value": MAIL}, key=key)
        self.running.fold()
        self.url = self.running.listen()

    def clock(self) -> int:
        return microseconds() + self.ahead_s * 1_000_000

    def level(self, tenant: str, level: str) -> None:
        self.running.ok("PUT", "/v1/admin/policies/privacy", json={"level": level}, key=self.keys[tenant])

    def rescan(self, tenant: str) -> str:
        """How far the service is with it, as it sees it."""
        shown = self.running.ok("GET", "/v1/admin/policies/privacy", key=self.keys[tenant])
        return str(shown["rescan"]["state"])

    def forget_how_it_came(self) -> None:
        """As if all of acme's had come in under a policy that is strict, and the rules had been worse then."""
        self.running.stop()
        policies = PolicyFile(self.running.settings.files)
        policies.put("acme", "privacy", b'{"level": "strict"}')
        assert policies.raise_floor("acme", PrivacyFloor("strict", policies.floor("acme").changes))
        self.running = Running(self.running.settings, clock=self.clock)
        self.url = self.running.listen()

    @property
    def online(self) -> list[str]:
        return ["--url", self.url, "--key", self.running.key]

    def files_with(self, text: str) -> list[str]:
        files = (path for path in self.running.data.rglob("*") if path.is_file())
        return [path.name for path in files if text.encode() in path.read_bytes()]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    found = Store(tmp_path_factory.mktemp("store") / "data")
    yield found
    found.running.stop()


def test_what_is_there_is_counted_found_once_more_and_gone_after_it_was_applied(jobs: JobsApart, store: Store) -> None:
    data = ["--data", store.running.data, "--json"]
    allowed = jobs.run(RESCAN, *data)
    assert (allowed.status, allowed.json["findings"]) == (0, []), allowed.said

    strict = jobs.run(RESCAN, *data, "--level", "strict")
    assert strict.status == 1
    found = {(one["tenant"], one["root"], one["row"]): (one["rows"], one["kinds"]) for one in strict.json["findings"]}
    each = {
        ("cold", "turn"): (1, {"email": 1}),
        ("tables", "turn"): (1, {"credit_card": 1, "email": 1}),
        ("tables", "fact"): (1, {"email": 1}),
    }
    assert found == {(tenant, *place): told for tenant in ("acme", "beta") for place, told in each.items()}
    assert MAIL not in strict.out + strict.said

    store.forget_how_it_came()
    assert store.rescan("acme") == "done"
    applied = jobs.run(RESCAN, *data, "--level", "strict", "--apply", *store.online)
    assert applied.status == 1  # beta allows what was looked for
    assert (applied.json["applied"], applied.json["looser_policy"]) == (["acme"], ["beta"])
    assert {one["tenant"] for one in applied.json["findings"]} == {"beta"}
    own = jobs.run(RESCAN, *data, *store.online)
    assert (own.status, own.json["clean"]) == (0, True), own.out

    store.level("beta", "strict")
    ends = time.monotonic() + 60
    while store.rescan("beta") != "done":
        assert time.monotonic() < ends
        time.sleep(0.1)
    store.running.ok("POST", "/v1/admin/maintenance", json={"action": "compact"})
    assert jobs.run(RESCAN, *data, "--level", "strict", *store.online).status == 0
    assert store.files_with(MAIL) == []


def test_to_apply_it_takes_a_service(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch) -> None:
    monkeypatch.delenv("MEMSTRATA_KEY", raising=False)

    def never(address):
        raise AssertionError("Ray is not needed")

    assert main(["--data", str(tmp_path), "--apply"], session=never) == 1
    assert "--url" in capsys.readouterr().err
    assert main(["--data", str(tmp_path)], session=never) == 1
    assert "holds no store" in capsys.readouterr().err
