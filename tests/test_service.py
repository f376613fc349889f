"""A whole service's life: start, stop, what it refuses to be, and how it goes on with a store that fails."""

import asyncio
import errno
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest

from serve_app.config import Settings, StoreOptions
from serve_app.core import Owner
from serve_app.errors import InvalidRequest, StoreUnavailable
from serve_app.models.stub import HashEmbedder
from serve_app.placement import shard_of
from serve_app.ports import SegmentStore
from serve_app.service import Service
from serve_app.stores.segments_disk import DiskCalls, DiskSegments
from serve_app.stores.segments_object import open_segments
from serve_app.write.housekeeping import FoldOptions
from tests.api.running import Running, hash_settings, refused

NEVER_FOLD = FoldOptions(age_s=1e9, purge_every_s=1e9)
SHARDS = 2


def user_of(shard: int) -> str:
    return next(f"user-{n}" for n in range(100) if shard_of(Owner("default", f"user-{n}"), SHARDS) == shard)


ANN, BEN = user_of(0), user_of(1)


@pytest.fixture
def start() -> Iterator[Callable[..., Running]]:
    """Starts services that are stopped when the test is over."""
    started: list[Running] = []

    def begin(settings: Settings, **injected: Any) -> Running:
        started.append(Running(settings, **injected))
        return started[-1]

    yield begin
    for running in started:
        running.stop()


def said(running: Running, user: str) -> list[str]:
    return [turn["content"] for turn in running.turns(user, "s")]


def degraded(running: Running) -> list[dict[str, Any]]:
    return running.ok("GET", "/readyz", key=None)["degraded"]


# ---- start and stop


def test_before_it_has_started_a_service_is_alive_and_not_ready(tmp_path: Path) -> None:
    async def ask() -> list[httpx.Response]:
        transport = httpx.ASGITransport(Service(hash_settings(tmp_path)))
        async with httpx.AsyncClient(transport=transport, base_url="http://memstrata") as client:
            return [await client.get(path) for path in ("/healthz", "/readyz", "/v1/sessions", "/metrics")]

    alive, *others = asyncio.run(ask())
    assert (alive.status_code, alive.json()) == (200, {"status": "alive"})
    for answer in others:
        refused(answer, 503, "not_ready")
        assert answer.headers["retry-after"] == "1"


def test_a_second_service_on_the_same_folder_is_refused_and_the_first_goes_on(
    start: Callable[..., Running], tmp_path: Path
) -> None:
    first = start(hash_settings(tmp_path))
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match="in use by another service"):
            Running(hash_settings(tmp_path))
    first.append(ANN, "s", "still here")
    first.run(first.service.stop())
    again = start(hash_settings(tmp_path))
    assert said(again, ANN) == ["still here"]


def test_everything_is_there_again_after_a_stop(start: Callable[..., Running], tmp_path: Path) -> None:
    first = start(hash_settings(tmp_path))
    key = first.make_key(user_id=ANN)
    first.append(ANN, "s", *[f"turn {n}" for n in range(30)], wait="indexed")
    first.ok("PUT", f"/v1/users/{ANN}/facts/colour", json={"value": "blue"})
    first.ok("POST", "/v1/sessions/s/summary:refresh", params={"user_id": ANN})
    erasure = first.ok("DELETE", f"/v1/users/{BEN}")["erasure_id"]
    paths = [
        f"/v1/sessions/s/turns?user_id={ANN}",
        f"/v1/sessions?user_id={ANN}",
        f"/v1/users/{ANN}/facts",
        f"/v1/sessions/s/summary?user_id={ANN}",
        f"/v1/users/{ANN}/export",
    ]
    shown = [first.call("GET", path, key=key).text for path in paths]
    found = [(one["id"], one["score"]) for one in first.search(ANN, "turn 7")["results"]]
    first.run(first.service.stop())
    again = start(hash_settings(tmp_path))
    assert [again.call("GET", path, key=key).text for path in paths] == shown
    assert [(one["id"], one["score"]) for one in again.search(ANN, "turn 7")["results"]] == found
    assert again.call("GET", f"/v1/erasures/{erasure}").status_code == 200
    assert again.append(ANN, "s", {"id": "new", "role": "user", "content": "x"})["results"][0]["status"] == "stored"


def test_a_stopped_service_answers_that_it_is_not_ready_and_stops_twice(
    start: Callable[..., Running], tmp_path: Path
) -> None:
    running = start(hash_settings(tmp_path))
    running.run(running.service.stop())
    refused(running.call("GET", "/v1/sessions?user_id=u"), 503, "not_ready")


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda text: text.replace('"format": 1', '"format": 99'), "store format 99"),
        (lambda text: '{"format": 2, "whatever": []}', "store format 2"),
        (lambda text: text[:20], "store.json"),
        (lambda text: "[]", "store.json"),
        (lambda text: text.replace('"dimension": 64', '"dimension": "x"'), "store.json"),
    ],
)
def test_a_folder_of_another_format_is_refused_and_left_alone(
    start: Callable[..., Running], tmp_path: Path, change: Callable[[str], str], named: str
) -> None:
    first = start(hash_settings(tmp_path))
    first.append(ANN, "s", "kept")
    first.run(first.service.stop())
    identity = tmp_path / "store.json"
    sound = identity.read_text()
    identity.write_text(change(sound))
    with pytest.raises(InvalidRequest, match=named):
        Running(hash_settings(tmp_path))
    identity.write_text(sound)
    assert said(start(hash_settings(tmp_path)), ANN) == ["kept"]


def test_a_folder_of_another_encoder_is_refused_by_both_names(start: Callable[..., Running], tmp_path: Path) -> None:
    running = start(hash_settings(tmp_path))
    running.run(running.service.stop())
    with pytest.raises(InvalidRequest, match=r"'hash_64'.*'hash_32'"):
        Running(hash_settings(tmp_path), encoder=lambda _: HashEmbedder(32))


def test_the_number_of_shards_is_that_of_the_store(start: Callable[..., Running], tmp_path: Path) -> None:
    """Left out it is the store's; another number is refused, never ignored."""
    first = start(hash_settings(tmp_path))
    first.append(ANN, "s", "kept")
    first.run(first.service.stop())
    with pytest.raises(InvalidRequest, match="2 shards; the settings ask for 7"):
        start(hash_settings(tmp_path, store=StoreOptions(shards=7)))
    again = start(hash_settings(tmp_path, store=StoreOptions()))
    assert len(again.ok("GET", "/v1/admin/stats")["shards"]) == SHARDS
    assert said(again, ANN) == ["kept"]


def test_a_folder_that_cannot_be_is_named(start: Callable[..., Running], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(StoreUnavailable, match="cannot be a data folder"):
            start(hash_settings(folder))


# ---- damage


@pytest.fixture
def stopped(start: Callable[..., Running], tmp_path: Path) -> Settings:
    """A store with some segments in both logs, nothing folded, and nobody on it."""
    settings = hash_settings(tmp_path, fold=NEVER_FOLD)
    running = start(settings)
    for number in range(6):
        for user in (ANN, BEN):
            running.append(user, "s", f"turn {number}", wait="indexed")
    running.run(running.service.stop())
    return settings


def segments_of(settings: Settings, shard: int) -> list[Path]:
    return sorted((Path(settings.data) / "log" / f"{shard:04d}").glob("*.seg"))


def test_a_torn_tail_is_cut_named_and_forgotten(start: Callable[..., Running], stopped: Settings) -> None:
    newest = segments_of(stopped, 0)[-1]
    newest.write_bytes(newest.read_bytes()[:-3])
    running = start(stopped)
    [trouble] = degraded(running)
    assert (trouble["what"], trouble["shard"]) == ("log_damaged", 0)
    assert "torn tail" in trouble["detail"]
    assert newest.name in trouble["detail"]
    stats = running.ok("GET", "/v1/admin/stats")["shards"]
    assert [len(one["damage"]) for one in stats] == [1, 0]
    running.append(ANN, "s", "after")
    assert said(running, ANN) == [*(f"turn {n}" for n in range(6)), "after"]
    running.run(running.service.stop())
    assert degraded(start(stopped)) == []


def test_damage_in_the_middle_makes_its_shard_read_only_and_no_other(
    start: Callable[..., Running], stopped: Settings
) -> None:
    middle = segments_of(stopped, 0)[len(segments_of(stopped, 0)) // 2]
    damaged = bytearray(middle.read_bytes())
    damaged[len(damaged) // 2 :] = bytes(len(damaged) - len(damaged) // 2)
    middle.write_bytes(damaged)
    running = start(stopped)
    [trouble] = degraded(running)
    assert (trouble["what"], trouble["shard"]) == ("log_damaged", 0)
    assert middle.name in trouble["detail"]
    body = {"user_id": ANN, "turns": [{"role": "user", "content": "x"}]}
    for method, path, arguments in [
        ("POST", "/v1/sessions/s/turns", {"json": body}),
        ("PUT", f"/v1/users/{ANN}/facts/k", {"json": {"value": "v"}}),
        ("DELETE", f"/v1/sessions/s?user_id={ANN}", {}),
        ("DELETE", f"/v1/users/{ANN}", {}),
        ("POST", f"/v1/sessions/s/summary:refresh?user_id={ANN}", {}),
    ]:
        answer = running.call(method, path, **arguments)
        refused(answer, 503, "log_damaged")
        assert int(answer.headers["retry-after"]) >= 1
    kept = said(running, ANN)
    assert kept == [f"turn {n}" for n in range(len(kept))]
    assert 0 < len(kept) < 6
    assert running.found(ANN, "turn 0", mode="lexical")[0] == "turn 0"
    assert "turn 0" in str(running.context(ANN, session_id="s")["messages"])
    running.append(BEN, "s", "other shards go on")
    assert said(running, BEN)[-1] == "other shards go on"
    before = {path.name: path.read_bytes() for path in segments_of(stopped, 0)}
    running.run(running.service.stop())
    assert {path.name: path.read_bytes() for path in segments_of(stopped, 0)} == before


# ---- a store that fails


class Trouble:
    """Disk calls that fail with `code` while it is set."""

    def __init__(self) -> None:
        self.code: int | None = None

    def fsync(self, descriptor: int) -> None:
        if self.code is not None:
            raise OSError(self.code, "injected")

    def segments(self, uri: str, options: Mapping[str, str]) -> SegmentStore:
        return DiskSegments(uri, DiskCalls(fsync=self.fsync))


@pytest.mark.parametrize(
    ("code", "status", "named"), [(errno.ENOSPC, 507, "storage_full"), (errno.EIO, 503, "store_unavailable")]
)
def test_a_log_that_takes_nothing(
    start: Callable[..., Running], tmp_path: Path, code: int, status: int, named: str
) -> None:
    trouble = Trouble()
    running = start(hash_settings(tmp_path, fold=NEVER_FOLD), segments=trouble.segments)
    running.append(ANN, "s", "before", wait="indexed")
    trouble.code = code
    turn = {"id": "t", "role": "user", "content": "during"}
    body = {"user_id": ANN, "turns": [turn]}
    for _ in range(2):
        answer = running.call("POST", "/v1/sessions/s/turns", json=body)
        refused(answer, status, named)
        assert int(answer.headers["retry-after"]) >= 1
    assert said(running, ANN) == ["before"]
    assert running.found(ANN, "before")[0] == "before"
    trouble.code = None
    assert running.append(ANN, "s", turn)["results"][0]["status"] == "stored"
    assert said(running, ANN) == ["before", "during"]
    text = running.call("GET", "/metrics", key=None).text
    assert f'memstrata_http_refused_total{{reason="{named}"}} 2.0' in text


# ---- two services on one store


def sharing(folder: Path, name: str) -> Settings:
    """A service with a folder of its own, on a log and tables that it shares."""
    own = folder / name
    own.mkdir()
    store = StoreOptions(shards=SHARDS, log_uri=str(folder / "log"), tables_uri=str(folder / "tables"))
    return hash_settings(own, store=store, fold=NEVER_FOLD)


def test_the_older_of_two_services_is_fenced_and_never_acknowledges_again(
    start: Callable[..., Running], tmp_path: Path
) -> None:
    older = start(sharing(tmp_path, "older"))
    older.append(ANN, "s", "from the older", wait="indexed")
    newer = start(sharing(tmp_path, "newer"))
    assert said(newer, ANN) == ["from the older"]
    newer.append(ANN, "s", "from the newer")
    body = {"user_id": ANN, "turns": [{"role": "user", "content": "too late"}]}
    for _ in range(3):
        refused(older.call("POST", "/v1/sessions/s/turns", json=body), 503, "writer_fenced")
    assert {one["what"] for one in degraded(older)} == {"writer_fenced"}
    assert [one["shard"] for one in degraded(older)] == [0]
    assert said(older, ANN) == ["from the older"]
    for answer in (older.search(ANN, "older"), older.context(ANN, session_id="s")):
        assert answer["degradation"]["reasons"] == ["stale: another service has taken this shard over"]
    assert older.search(BEN, "older")["degradation"]["reasons"] == []
    assert said(newer, ANN) == ["from the older", "from the newer"]
    newer.append(ANN, "s", "and on")
    assert degraded(newer) == []


def test_a_fold_between_two_looks_is_no_hole(start: Callable[..., Running], tmp_path: Path) -> None:
    """The last owner folds, and drops segments, after the new one has read the table and before it reads the log."""
    older = start(sharing(tmp_path, "older"))
    for number in range(5):
        older.append(ANN, "s", f"turn {number}", wait="indexed")
    looks: list[str] = []

    def late(uri: str, options: Mapping[str, str]) -> SegmentStore:
        if not looks:
            older.fold()
            older.append(ANN, "s", "after the fold")
        looks.append(uri)
        return open_segments(uri, options)

    newer = start(sharing(tmp_path, "newer"), segments=late)
    assert len(looks) == SHARDS + 1
    assert degraded(newer) == []
    assert said(newer, ANN) == [*(f"turn {n}" for n in range(5)), "after the fold"]
    newer.append(ANN, "s", "writable")


def test_the_first_start_shows_the_key_it_keeps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    running = Running(hash_settings(tmp_path))
    printed = capsys.readouterr().out
    assert running.key in printed
    assert str(tmp_path / "admin.key") in printed
    running.stop()
    again = Running(hash_settings(tmp_path))
    assert running.key not in capsys.readouterr().out
    again.stop()
    assert json.loads((tmp_path / "store.json").read_text())["version"]["name"] == "hash_64"
