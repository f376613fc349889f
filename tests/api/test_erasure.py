"""What is erased, deleted or edited away is nowhere: in no answer, cache or file; and what is told of it is right."""

import asyncio
import gc
import os
import sys
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import pytest

from serve_app.errors import StoreUnavailable
from serve_app.kept import Kept
from serve_app.memory.memory import MemoryOptions
from serve_app.stores.lance import RecordTable
from serve_app.write.housekeeping import FoldOptions
from tests.api.running import Running, hash_settings, quoted, refused
from tests.write.shards import wait_until

HALVES = "zirkon", "quibble"
"""Of the word that is looked for: only the service ever holds it whole."""

RESIDENT = 8


@pytest.fixture(params=[MemoryOptions(), MemoryOptions(owner_turns_resident=RESIDENT)], ids=["memory", "tables"])
def running(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Running]:
    """With little in memory, or all."""
    often = FoldOptions(round_s=0.1, purge_every_s=0.1)
    started = Running(hash_settings(tmp_path, memory=request.param, fold=often))
    yield started
    started.stop()


def sentence(number: int) -> str:
    return f"the {''.join(HALVES)} of number {number}"


def written(running: Running, user: str) -> None:
    """Turns in the tables and in the log, of one vector and of many, facts with a history, summaries, a tool call."""
    turns: list[dict[str, Any]] = [{"id": str(n), "role": "user", "content": sentence(n)} for n in range(20)]
    turns[3] |= {"metadata": {"note": sentence(3)}, "speaker": "".join(HALVES)}
    running.append(user, "s", *turns, wait="indexed")
    running.ok("POST", "/v1/sessions/s/summary:refresh", params={"user_id": user})
    for value in range(3):
        running.ok("PUT", f"/v1/users/{user}/facts/k", json={"value": sentence(value)})
    running.fold()
    call = {"id": "c", "name": "look", "arguments": {"of": sentence(1)}}
    running.append(
        user,
        "s",
        {"id": "call", "role": "assistant", "content": "calls", "tool_calls": [call]},
        {"id": "result", "role": "tool", "tool_call_id": "c", "data": {"".join(HALVES): [sentence(2)]}},
        {"id": "long", "role": "user", "content": f"{sentence(9)} and on " * 400},
        wait="indexed",
    )
    running.append(user, "t", "another session", wait="indexed")
    running.ok("PUT", f"/v1/users/{user}/facts/j", json={"value": sentence(5)})


def read_everywhere(running: Running, user: str) -> None:
    """Fills every cache that a read may fill."""
    assert "".join(HALVES) in running.call("GET", f"/v1/users/{user}/export").text
    for mode in ("hybrid", "dense", "lexical"):
        assert len(running.search(user, "number and on", mode=mode, k=50)["results"]) > 5
    for budget in (300, 20_000):
        for kind in ("openai", "anthropic", "text"):
            running.context(user, "number?", budget, session_id="s", format=kind, explain=True)


def in_files(folder: Path) -> list[str]:
    """Files that hold the word, in their names or bytes, in any case."""
    needle = "".join(HALVES).encode()
    paths = [Path(at, name) for at, _, names in os.walk(folder) for name in names]  # folders may go meanwhile
    return [str(path.relative_to(folder)) for path in paths if needle in str(path).encode() + _bytes_of(path)]


def _bytes_of(path: Path) -> bytes:
    """None of a file that has gone since it was listed."""
    try:
        return path.read_bytes().lower()
    except FileNotFoundError:
        return b""


@pytest.fixture(scope="module", autouse=True)
def old_objects_are_left_alone() -> Iterator[list[Any]]:
    """What was there before any of these tests holds nothing of theirs, but for what the project's modules keep."""
    gc.collect()
    gc.freeze()
    yield []
    gc.unfreeze()


def in_process() -> list[str]:
    """What holds the word: every object that is new, what the project keeps in its modules, and all threads' locals."""
    gc.collect()
    needle, seen = "".join(HALVES), set[int]()
    threads = [(frame.f_code.co_qualname, one) for frame in _frames() for one in list(frame.f_locals.values())]
    kept = [
        (module, value) for module in sorted(sys.modules) if module.startswith("serve_app") for value in _kept(module)
    ]
    found = [
        f"{name} {type(root).__qualname__}: {str(one)[:60]!r}"
        for name, root in [*threads, *kept, *(("", one) for one in gc.get_objects())]
        for one in _within(root, seen)
        if _says(one, needle) and one is not needle
    ]
    return sorted(set(found))[:20]


def _kept(module: str) -> Iterable[Any]:
    """Values of a module, and what those hold that are neither code nor classes: caches, and their entries."""
    waiting, seen = list(vars(sys.modules[module]).values()), set[int]()
    while waiting:
        one = waiting.pop()
        if id(one) in seen or isinstance(one, ModuleType | type | FunctionType):
            continue
        seen.add(id(one))
        yield one
        if type(one).__name__ == "_lru_cache_wrapper" or isinstance(one, dict | list | OrderedDict | Kept):
            waiting += [inner for inner in gc.get_referents(one) if gc.is_tracked(inner)]


def _frames() -> Iterable[Any]:
    """Those of the service's threads."""
    for thread, frame in sys._current_frames().items():
        at = frame if thread != threading.get_ident() else None
        while at is not None:
            yield at
            at = at.f_back


def _within(root: Any, seen: set[int]) -> Iterable[Any]:
    """An object and what it holds that the collector does not know by itself."""
    waiting = [root]
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        waiting += [inner for inner in gc.get_referents(one) if not gc.is_tracked(inner)]


def _says(value: Any, needle: str) -> bool:
    if isinstance(value, str):
        return needle in value.lower()
    return isinstance(value, bytes | bytearray) and needle.encode() in bytes(value).lower()


def erased(running: Running, user: str, key: str = "") -> dict[str, Any]:
    return done(running, running.ok("DELETE", f"/v1/users/{quoted(user)}", key=key)["erasure_id"], key)


def done(running: Running, erasure: str, key: str = "") -> dict[str, Any]:
    """The erasure once it is done."""
    state: dict[str, Any] = {}

    def over() -> bool:
        state.update(running.ok("GET", f"/v1/erasures/{erasure}", key=key))
        return state["state"] == "done"

    wait_until(over)
    return state


def test_the_search_for_a_word_finds_it_where_it_is(running: Running) -> None:
    """Else the tests below would show nothing."""
    written(running, "u")
    read_everywhere(running, "u")
    assert len(in_process()) == 20
    assert any("lance" in name for name in in_files(running.data))
    assert any(name.endswith(".seg") for name in in_files(running.data))


def test_after_an_erasure_the_word_is_nowhere(running: Running) -> None:
    written(running, "u")
    read_everywhere(running, "u")
    running.append("other", "s", "stays", wait="indexed")
    state = erased(running, "u")
    assert state["completed_at"] is not None
    assert in_files(running.data) == []
    assert in_process() == []
    assert [turn["content"] for turn in running.turns("other", "s")] == ["stays"]


@pytest.mark.parametrize("how", ["turns", "session", "edits"])
def test_after_deletes_and_edits_the_word_is_nowhere(running: Running, how: str) -> None:
    turns = [{"id": str(n), "role": "user", "content": sentence(n)} for n in range(20)]
    running.append("u", "s", *turns[:12], wait="indexed")
    running.ok("POST", "/v1/sessions/s/summary:refresh", params={"user_id": "u"})
    running.fold()
    running.append("u", "s", *turns[12:], wait="indexed")
    del turns  # they hold the word, too
    read_everywhere(running, "u")
    where = {"user_id": "u", "session_id": "s"}
    if how == "session":
        assert running.ok("DELETE", "/v1/sessions/s", params={"user_id": "u"})["deleted"] == 20
    for number in range(20 if how != "session" else 0):
        if how == "turns":
            running.ok("DELETE", f"/v1/turns/{number}", params=where)
        else:
            running.ok("PATCH", f"/v1/turns/{number}", params=where, json={"content": f"plain {number}"})
    wait_until(lambda: not in_files(running.data))
    wait_until(lambda: not in_process())
    assert len(running.turns("u", "s")) == (20 if how == "edits" else 0)


def test_counts_are_those_of_what_was_there(running: Running) -> None:
    written(running, "u")
    lines = running.call("GET", "/v1/users/u/export").text.count('"kind":"turn"')
    table = [writer.shard for writer in running.service._writers]
    vectors = sum(len(shard.vector_rows("default\x1fu")) for shard in table)
    tail = sum(shard.tail_of("default\x1fu") for shard in table)
    counts = erased(running, "u")["counts"]
    assert counts["turns"] == lines == 24
    assert counts["vectors"] == vectors > 24
    assert counts["facts"] == 2
    assert counts["summaries"] >= 1
    assert counts["log_records"] >= tail


def test_who_is_not_there_is_erased_and_so_is_who_was_erased(running: Running) -> None:
    nobody = erased(running, "nobody")["counts"]
    assert set(nobody) == {"turns", "vectors", "facts", "summaries", "cold", "log_records"}
    assert set(nobody.values()) == {0}
    running.append("u", "s", {"id": "1", "role": "user", "content": "one"})
    assert erased(running, "u")["counts"]["turns"] == 1
    assert erased(running, "u")["counts"]["turns"] == 0
    again = running.append("u", "s", {"id": "1", "role": "user", "content": "another"}, wait="indexed")
    assert again["results"][0]["status"] == "stored"
    assert [turn["content"] for turn in running.turns("u", "s")] == ["another"]
    assert running.found("u", "another") == ["another"]


def test_what_is_written_while_a_user_is_erased_is_gone_or_stays_whole(running: Running) -> None:
    """All that was acknowledged before the erasure is gone, all that came after it is there."""
    for number in range(40):
        running.append("u", "s", {"id": f"before-{number}", "role": "user", "content": sentence(number)})

    async def both() -> tuple[str, list[int]]:
        async def append(number: int) -> tuple[int, int]:
            turn = {"id": f"t{number}", "role": "user", "content": f"said {number}"}
            body = {"user_id": "u", "turns": [turn]}
            answer = await running.ask("POST", "/v1/sessions/s/turns", json=body)
            assert answer.status_code == 201
            return number, int(answer.json()["results"][0]["seq"])

        begun = [asyncio.ensure_future(append(number)) for number in range(30)]
        erasing = asyncio.ensure_future(running.ask("DELETE", "/v1/users/u"))
        await asyncio.sleep(0)
        begun += [asyncio.ensure_future(append(number)) for number in range(30, 60)]
        erasure = (await erasing).json()["erasure_id"]
        after = [await append(number) for number in range(60, 70)]
        await asyncio.gather(*begun)
        return erasure, [number for number, _ in after]

    erasure, after = running.run(both())
    gone = done(running, erasure)["counts"]["turns"]
    left = {turn["id"] for turn in running.turns("u", "s")}
    assert left >= {f"t{number}" for number in after}
    assert not any(name.startswith("before") for name in left)
    assert gone + len(left) == 110
    assert in_files(running.data) == []


def test_a_bound_key_sees_the_erasures_of_its_user_alone(running: Running) -> None:
    bound = running.make_key(user_id="u")
    own = running.ok("DELETE", "/v1/users/u", key=bound)["erasure_id"]
    others = running.ok("DELETE", "/v1/users/v")["erasure_id"]
    assert running.call("GET", f"/v1/erasures/{own}", key=bound).status_code == 200
    refused(running.call("GET", f"/v1/erasures/{others}", key=bound), 404, "not_found")
    running.fold()
    again = running.again()
    try:
        assert again.call("GET", f"/v1/erasures/{own}", key=bound).status_code == 200
        refused(again.call("GET", f"/v1/erasures/{others}", key=bound), 404, "not_found")
    finally:
        again.stop()
        running.stop = lambda: None  # type: ignore[method-assign]


class Stuck(RecordTable):
    """A table whose files cannot be rewritten while it is told so."""

    broken = False

    def purge(self, folded_seq: int) -> None:
        if Stuck.broken:
            raise StoreUnavailable("read only")
        super().purge(folded_seq)


def test_an_erasure_that_fails_says_so_and_ends_once_it_can(tmp_path: Path) -> None:
    running = Running(hash_settings(tmp_path, fold=FoldOptions(round_s=0.05)), table=Stuck)
    try:
        running.append("u", "s", sentence(1))
        Stuck.broken = True
        erasure = running.ok("DELETE", "/v1/users/u")["erasure_id"]

        def state() -> Any:
            return running.ok("GET", f"/v1/erasures/{erasure}")

        wait_until(lambda: state()["state"] == "failed")
        assert state()["completed_at"] is None
        assert running.turns("u", "s") == []
        Stuck.broken = False
        wait_until(lambda: state()["state"] == "done")
        assert in_files(running.data) == []
    finally:
        Stuck.broken = False
        running.stop()
