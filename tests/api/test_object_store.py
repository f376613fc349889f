"""A whole service whose log and tables lie in a bucket: an S3 server on loopback."""

import json
import logging
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import obstore
import pytest
from moto.server import ThreadedMotoServer
from obstore.store import S3Store

from serve_app.cli import main
from serve_app.config import Settings, StoreOptions
from serve_app.write.follow import FollowOptions
from tests.api.running import Running, hash_settings, refused, word
from tests.api.switched import Switched

REGION = "us-east-1"
SIGNED = f"AWS4-HMAC-SHA256 Credential=any/20200101/{REGION}/s3/aws4_request"


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    moto = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    moto.start()
    host, port = moto.get_host_and_port()
    yield f"http://{host}:{port}"
    moto.stop()


@pytest.fixture
def bucket(server: str, request: pytest.FixtureRequest) -> str:
    """A fresh bucket."""
    name = f"b{abs(hash(request.node.name)) % 10**12}"
    assert httpx.put(f"{server}/{name}", headers={"authorization": SIGNED}, trust_env=False).status_code == 200
    return name


@pytest.fixture
def start() -> Iterator[Callable[..., Running]]:
    started: list[Running] = []

    def begin(settings: Settings) -> Running:
        started.append(Running(settings))
        return started[-1]

    yield begin
    for running in started:
        running.stop()


def in_bucket(folder: Path, server: str, bucket: str, prefix: str = "") -> Settings:
    names = {"endpoint": server, "region": REGION, "access_key_id": "any", "secret_access_key": "any"}
    options = {f"{prefix}{name}": value for name, value in names.items()} | {"allow_http": "true"}
    store = StoreOptions(shards=1, log_uri=f"s3://{bucket}/log", tables_uri=f"s3://{bucket}/tables", options=options)
    return hash_settings(folder, store=store)


def all_in_bucket(folder: Path, server: str, bucket: str, prefix: str = "store") -> Settings:
    """The small files, too."""
    options = in_bucket(folder, server, bucket).store.options
    store = StoreOptions(shards=1, files_uri=f"s3://{bucket}/{prefix}", files_look_s=0.05, options=options)
    return hash_settings(folder, store=store)


def config_file(settings: Settings, folder: Path) -> Path:
    """What of the settings says where the store is and what it holds."""
    store = settings.store
    lines = ["[store]", f'files_uri = "{store.files_uri}"', "files_look_s = 0.05", "[store.options]"]
    lines += [f'{name} = "{value}"' for name, value in store.options.items()]
    path = folder / "settings.toml"
    path.write_text("\n".join([*lines, "[encoder]", 'model = "hash"', ""]))
    return path


def state(running: Running) -> list[Any]:
    """All that can be read, in a form that does not depend on which process it is read from."""
    found = [(one["id"], one["content"]) for one in running.search("u", word(3))["results"]]
    context = running.context("u", "what now?", session_id="s", now="2030-01-01T00:00:00Z")
    facts = running.ok("GET", "/v1/users/u/facts")["facts"]
    return [running.turns("u", "s"), found, context["context_id"], context["messages"], facts]


@pytest.mark.parametrize("prefix", ["", "aws_"])
def test_what_was_written_to_a_bucket_is_read_back_after_fold_and_restart(
    start: Callable[..., Running], tmp_path: Path, server: str, bucket: str, prefix: str
) -> None:
    settings = in_bucket(tmp_path / "data", server, bucket, prefix)
    running = start(settings)
    running.append("u", "s", *[f"the {word(n)} is number {n}" for n in range(8)], wait="indexed")
    running.ok("PUT", "/v1/users/u/facts/colour", json={"value": "blue"})
    written = state(running)
    running.fold()
    assert state(running) == written
    assert not (tmp_path / "data" / "log").exists()
    assert not (tmp_path / "data" / "tables").exists()
    running.run(running.service.stop())
    again = start(settings)
    assert state(again) == written
    again.append("u", "s", "more")
    assert again.turns("u", "s")[-1]["content"] == "more"
    assert again.ok("GET", "/readyz", key=None) == {"status": "ready", "degraded": []}


def test_what_has_expired_is_in_no_object_of_the_bucket(
    start: Callable[..., Running], tmp_path: Path, server: str, bucket: str
) -> None:
    settings = in_bucket(tmp_path / "data", server, bucket)
    running = start(settings)
    long_ago = "2020-01-01T00:00:00Z"
    data = {"price": "pricewise", "order": "A-77"}
    running.append("u", "s", {"role": "tool", "data": data, "field_ttl": {"price": 60}, "created_at": long_ago})
    running.append("u", "s", {"role": "user", "content": "saidbriefly", "created_at": long_ago, "ttl_seconds": 60})
    running.append("u", "s", "stays", wait="indexed")
    running.fold()
    held = objects(server, bucket)
    assert all(text in held for text in (b"pricewise", b"saidbriefly", b"A-77"))
    running.ok("POST", "/v1/admin/maintenance", json={"action": "expire"})
    held = objects(server, bucket)
    assert [text for text in (b"pricewise", b"saidbriefly") if text in held] == []
    assert b"A-77" in held
    assert [turn["content"] for turn in running.turns("u", "s")] == ['{"order":"A-77"}', "stays"]


def objects(server: str, bucket: str) -> bytes:
    """The bytes of all objects."""
    options = {"access_key_id": "any", "secret_access_key": "any", "region": REGION, "endpoint": server}
    store = S3Store(bucket, client_options={"allow_http": True}, **options)
    names = [one["path"] for page in obstore.list(store) for one in page]
    return b"".join(bytes(obstore.get(store, name).bytes()) for name in names)


def test_a_service_that_vanished_loses_nothing_and_cannot_write_any_more(
    start: Callable[..., Running], tmp_path: Path, server: str, bucket: str
) -> None:
    """The next one takes over while the old one, unaware, still believes in itself."""
    settings = in_bucket(tmp_path / "old", server, bucket)
    old = start(settings)
    acknowledged = []
    for number in range(4):
        old.append("u", "s", f"turn {number}")
        acknowledged.append(f"turn {number}")
        if number == 1:
            old.fold()
    shutil.copytree(tmp_path / "old", tmp_path / "new")
    new = start(in_bucket(tmp_path / "new", server, bucket))
    assert [turn["content"] for turn in new.turns("u", "s")] == acknowledged
    new.append("u", "s", "from the new one")
    body = {"user_id": "u", "turns": [{"role": "user", "content": "lost?"}]}
    for _ in range(3):
        refused(old.call("POST", "/v1/sessions/s/turns", json=body), 503, "writer_fenced")
    assert [turn["content"] for turn in new.turns("u", "s")] == [*acknowledged, "from the new one"]
    new.fold()
    new.run(new.service.stop())
    third = start(in_bucket(tmp_path / "new", server, bucket))
    assert [turn["content"] for turn in third.turns("u", "s")] == [*acknowledged, "from the new one"]


def test_while_the_bucket_cannot_be_reached_reads_go_on_and_writes_resume_by_themselves(
    start: Callable[..., Running], tmp_path: Path, server: str, bucket: str
) -> None:
    """Of the writer and of a replica of it."""
    host, _, port = server.removeprefix("http://").partition(":")
    network = Switched(host, int(port))
    settings = in_bucket(tmp_path / "data", network.address, bucket)
    writer = start(settings)
    writer.append("u", "s", "before", wait="indexed")
    follow = FollowOptions(data=str(tmp_path / "data"), look_s=0.2)
    replica = start(msgspec.structs.replace(settings, data=str(tmp_path / "replica"), role="replica", follow=follow))
    (tmp_path / "replica" / "admin.key").write_text(writer.key)
    assert replica.found("u", "before") == ["before"]
    network.off()
    body = {"user_id": "u", "turns": [{"id": "t", "role": "user", "content": "during"}]}
    refused(writer.call("POST", "/v1/sessions/s/turns", json=body), 503, "store_unavailable")
    for one in (writer, replica):
        assert one.found("u", "before") == ["before"]
    ends = time.monotonic() + 10  # it is behind by then, but not at once
    while not {one["what"] for one in replica.ok("GET", "/readyz", key=None)["degraded"]} >= {"replica_behind"}:
        assert time.monotonic() < ends
        time.sleep(0.05)
    [reason] = replica.search("u", "before")["degradation"]["reasons"]
    assert reason.startswith("replica: ")
    network.on()
    ends = time.monotonic() + 60
    while (answer := writer.call("POST", "/v1/sessions/s/turns", json=body)).status_code != 201:
        assert time.monotonic() < ends, answer.text
        time.sleep(0.2)
    assert answer.json()["results"][0]["status"] in ("stored", "duplicate")
    found = replica.found("u", "during", min_receipt=answer.json()["receipt"], deadline_ms=60_000)
    assert found[0] == "during"
    assert [turn["content"] for turn in writer.turns("u", "s")] == ["before", "during"]
    network.close()


def test_a_store_that_is_all_in_a_bucket_needs_nothing_of_its_folder(
    start: Callable[..., Running], tmp_path: Path, server: str, bucket: str
) -> None:
    running = start(all_in_bucket(tmp_path / "data", server, bucket))
    running.append("u", "s", "the river was high", wait="indexed")
    running.ok("PUT", "/v1/admin/policies/privacy", json={"level": "strict"})
    gold = [{"session_id": "s", "turn_id": running.turns("u", "s")[0]["id"]}]
    running.ok("POST", "/v1/golden", json={"user_id": "u", "query": "how was the river?", "gold": gold})
    written = state(running)
    key = running.key
    running.fold()
    running.run(running.service.stop())
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["lock"]
    again = start(all_in_bucket(tmp_path / "elsewhere", server, bucket))
    assert again.key == key
    assert state(again) == written
    assert again.ok("GET", "/v1/admin/policies/privacy")["policy"] == {"level": "strict"}
    assert [one["query"] for one in again.ok("GET", "/v1/golden")["golden"]] == ["how was the river?"]
    assert again.ok("GET", "/readyz", key=None)["degraded"] == []


def test_what_was_answered_of_keys_and_policies_holds_on_every_service_of_the_bucket(
    start: Callable[..., Running], tmp_path: Path, server: str, bucket: str
) -> None:
    settings = all_in_bucket(tmp_path / "data", server, bucket)
    apart = msgspec.structs.replace(settings.store, files_look_s=0.06)  # as another process has it
    writer = start(settings)
    replica = start(msgspec.structs.replace(settings, data=str(tmp_path / "r"), role="replica", store=apart))
    for _ in range(2):
        made = writer.ok("POST", "/v1/admin/keys", json={"role": "app"})
        assert replica.call("GET", "/v1/sessions?user_id=u", key=made["key"]).status_code == 200
        writer.ok("DELETE", f"/v1/admin/keys/{made['key_id']}")
        refused(replica.call("GET", "/v1/sessions?user_id=u", key=made["key"]), 401, "unauthorized")
    for level in ("strict", "off"):
        writer.ok("PUT", "/v1/admin/policies/privacy", json={"level": level})
        assert replica.ok("GET", "/v1/admin/policies/privacy")["policy"]["level"] == level


def test_commands_reach_small_files_in_a_bucket_by_the_file_of_settings(
    start: Callable[..., Running], tmp_path: Path, server: str, bucket: str, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = all_in_bucket(tmp_path / "data", server, bucket)
    running = start(settings)
    running.append("u", "s", "the river was high", wait="indexed")
    given = ["--data", settings.data, "--config", str(config_file(settings, tmp_path)), "--json"]
    assert main(["keys", "create", *given, "--tenant", "default"]) == 0
    key = json.loads(capsys.readouterr().out.splitlines()[-1])["key"]
    assert len(running.ok("GET", "/v1/sessions?user_id=u", key=key)["sessions"]) == 1
    running.run(running.service.stop())
    assert main(["backup", *given, "--to", str(tmp_path / "backups")]) == 0
    restored = all_in_bucket(tmp_path / "again", server, bucket, "restored")
    (tmp_path / "other").mkdir()
    into = ["--data", restored.data, "--config", str(config_file(restored, tmp_path / "other")), "--json"]
    assert main(["restore", *into, "--from", str(tmp_path / "backups")]) == 0
    assert main(["verify", *into]) == 0
    again = start(restored)
    assert [turn["content"] for turn in again.ok("GET", "/v1/sessions/s/turns?user_id=u", key=key)["turns"]] == [
        "the river was high"
    ]
