"""An import brings everything over once, in order, and says what it could not bring."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs.bulk_import import main
from tests.api.running import Running, hash_settings
from tests.jobs.apart import JobsApart

pytestmark = pytest.mark.ray

IMPORT = "jobs.bulk_import"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    running = Running(hash_settings(tmp_path_factory.mktemp("service")))
    running.url = running.listen()  # type: ignore[attr-defined]
    yield running
    running.stop()


def to(service: Running, tmp_path: Path, *more: object) -> list[object]:
    return ["--url", service.url, "--key", service.key, "--dead", tmp_path / "dead.jsonl", "--json", *more]


def lines(path: Path, rows: list[dict]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def said(service: Running, user: str, session: str) -> list[str]:
    return [turn["content"] for turn in service.turns(user, session)]


def test_two_files_become_sessions_in_their_order_and_a_repeat_stores_nothing(
    jobs: JobsApart, service: Running, tmp_path: Path
):
    rows = [
        {"user_id": f"u{at % 3}", "session_id": f"s{at % 2}", "role": "user", "content": f"n{at}"} for at in range(60)
    ]
    files = [lines(tmp_path / "one.jsonl", rows[:25]), lines(tmp_path / "two.jsonl", rows[25:])]
    first = jobs.run(IMPORT, *files, *to(service, tmp_path))
    assert first.status == 0, first.said
    assert (first.json["stored"], first.json["turns"], first.json["parts"]) == (60, 60, 2)
    for user in ("u0", "u1", "u2"):
        for session in ("s0", "s1"):
            theirs = [row["content"] for row in rows if (row["user_id"], row["session_id"]) == (user, session)]
            assert said(service, user, session) == theirs
    again = jobs.run(IMPORT, *files, *to(service, tmp_path))
    assert (again.status, again.json["stored"], again.json["duplicate"]) == (0, 0, 60)
    assert not (tmp_path / "dead.jsonl").exists()


def test_an_export_of_mem0_is_brought_over_with_times_and_metadata(jobs: JobsApart, service: Running, tmp_path: Path):
    memory = {"id": "m1", "memory": "Likes tea", "user_id": "alex", "created_at": "2024-07-01T12:00:00Z"}
    fact = {"id": "m2", "memory": "vegan", "user_id": "alex", "metadata": {"fact_key": "diet"}}
    over = {"id": "m3", "memory": "Is ill", "user_id": "alex", "expiration_date": "2024-07-02"}
    path = tmp_path / "mem0.json"
    path.write_text(json.dumps({"results": [memory | {"metadata": {"topic": "drinks"}}, fact, over]}, indent=2))
    for stored, duplicate in ((1, 0), (0, 1)):
        ran = jobs.run(IMPORT, path, *to(service, tmp_path))
        assert ran.status == 0, ran.said
        told = ran.json
        assert (told["form"], told["stored"], told["duplicate"], told["expired"]) == ("mem0", stored, duplicate, 1)
        assert told["facts"] == stored
    [turn] = service.turns("alex", "mem0")
    assert (turn["id"], turn["created_at"], turn["metadata"]) == ("m1", "2024-07-01T12:00:00Z", {"topic": "drinks"})
    facts = service.ok("GET", "/v1/users/alex/facts")["facts"]
    assert [(one["key"], one["value"]) for one in facts] == [("diet", "vegan")]


def test_what_could_not_be_brought_over_is_named_and_the_exit_tells(jobs: JobsApart, service: Running, tmp_path: Path):
    good = {"user_id": "dead", "session_id": "s", "role": "user", "id": "a", "content": "kept"}
    rows = [good, good | {"content": "another"}, good | {"id": "b", "role": "nobody"}, {"role": "user"}]
    ran = jobs.run(IMPORT, lines(tmp_path / "f.jsonl", rows), *to(service, tmp_path))
    assert ran.status == 1
    told = ran.json
    assert (told["stored"], told["rejected"], told["refused"], told["unread"], told["dead"]) == (1, 1, 1, 1, 3)
    letters = [json.loads(line) for line in (tmp_path / "dead.jsonl").read_text().splitlines()]
    assert {letter["code"] for letter in letters} == {"rejected", "invalid_request"}
    assert "another" not in (tmp_path / "dead.jsonl").read_text()


def test_a_run_that_was_stopped_goes_on_where_it_was(jobs: JobsApart, service: Running, tmp_path: Path):
    rows = [{"user_id": "r", "session_id": "s", "role": "user", "content": f"n{at}"} for at in range(20)]
    files = [lines(tmp_path / f"{name}.jsonl", rows[at : at + 10]) for name, at in (("a", 0), ("b", 10))]
    state = tmp_path / "state.json"
    words = [*files, *to(service, tmp_path, "--resume", state)]
    stopped = jobs.run(IMPORT, *files, "--resume", state, "--url", service.url, "--key", "wrong", "--json")
    assert stopped.status == 1
    assert "unauthorized" in stopped.said
    assert jobs.run(IMPORT, *words).json["stored"] == 20
    kept = json.loads(state.read_text())
    assert kept["part"] == 2
    state.write_text(json.dumps(kept | {"part": 1, "counts": {"stored": 10, "turns": 10}}))  # as a kill leaves it
    ran = jobs.run(IMPORT, *words)
    assert ran.status == 0, ran.said
    assert (ran.json["resumed_at_part"], ran.json["stored"], ran.json["duplicate"]) == (1, 10, 10)
    lines(files[0], rows[:5])
    assert "they have changed" in jobs.run(IMPORT, *words).said


def test_without_a_key_or_a_file_nothing_is_started(tmp_path: Path, capsys, monkeypatch):
    monkeypatch.delenv("MEMSTRATA_KEY", raising=False)

    def never(address):
        raise AssertionError("Ray is not needed")

    assert main([str(tmp_path / "f")], session=never) == 1
    assert main([str(tmp_path / "f"), "--key", "k"], session=never) == 1
    assert "no key" in capsys.readouterr().err
