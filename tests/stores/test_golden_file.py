"""Files of golden queries: whole, ordered, one a tenant, and without what was taken out."""

from __future__ import annotations

import stat
import threading
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serve_app.errors import StoreUnavailable
from serve_app.stores import golden_file
from serve_app.stores.documents_disk import DiskDocuments
from serve_app.stores.golden_file import Golden, GoldenFiles, GoldTurn, without


def golden(query: str, user: str = "u", at: int = 1_000, turn: str = "t") -> Golden:
    return Golden("", user, query, (GoldTurn("s", turn, 7),), at)


def queries(files: GoldenFiles, tenant: str = "acme") -> list[str]:
    return [one.query for one in files.of(tenant).queries]


def test_tenants_are_apart_whatever_their_names(tmp_path: Path) -> None:
    files = GoldenFiles(DiskDocuments(tmp_path))
    names = ["acme", "../acme", "a/b", "..", "ACME", "租户", "x" * 256]
    for name in names:
        files.add(name, golden(name), "secrets")
    assert [queries(GoldenFiles(DiskDocuments(tmp_path)), name) for name in names] == [[name] for name in names]
    assert sorted(GoldenFiles(DiskDocuments(tmp_path)).tenants()) == sorted(names)
    assert {path.parent for path in tmp_path.rglob("*.json")} == {tmp_path / "golden"}
    for path in tmp_path.rglob("*.json"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "golden").stat().st_mode) == 0o700


def test_ids_grow_though_the_clock_goes_back(tmp_path: Path) -> None:
    files = GoldenFiles(DiskDocuments(tmp_path))
    times = (5_000, 4_000, 4_000, 9_000, 1)
    ids = [files.add("acme", golden(f"{n}", at=at), "off")[0].id for n, at in enumerate(times)]
    assert ids == sorted(ids)
    assert len(set(ids)) == 5


def test_writers_in_several_processes_lose_none(tmp_path: Path) -> None:
    def store(name: str) -> None:
        beside = GoldenFiles(DiskDocuments(tmp_path))
        for number in range(10):
            beside.add("acme", golden(f"{name} {number}"), "secrets")

    threads = [threading.Thread(target=store, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    files = GoldenFiles(DiskDocuments(tmp_path))
    assert sorted(queries(files)) == sorted(f"{name} {number}" for name in "abcd" for number in range(10))
    ids = [one.id for one in files.of("acme").queries]
    assert ids == sorted(set(ids))


def test_the_level_is_that_of_the_loosest_until_all_are_gone(tmp_path: Path) -> None:
    files = GoldenFiles(DiskDocuments(tmp_path))
    first = files.add("acme", golden("a"), "strict")[0]
    assert files.of("acme").level == "strict"
    second = files.add("acme", golden("b"), "off")[0]
    files.add("acme", golden("c"), "secrets")
    assert files.of("acme").level == "off"
    files.change("acme", without([first.id, second.id]))
    assert files.of("acme").level == "off"
    files.change("acme", without([one.id for one in files.of("acme").queries]))
    assert files.of("acme").level == "strict"


def test_a_damaged_file_is_said_and_left_alone(tmp_path: Path) -> None:
    files = GoldenFiles(DiskDocuments(tmp_path))
    files.add("acme", golden("a"), "secrets")
    (path,) = (tmp_path / "golden").glob("*.json")
    path.write_text("{")
    assert queries(files) == ["a"], "what was read before counts"
    assert files.trouble is not None
    with pytest.raises(StoreUnavailable):
        files.add("acme", golden("b"), "secrets")
    with pytest.raises(StoreUnavailable):
        GoldenFiles(DiskDocuments(tmp_path)).of("acme")
    assert path.read_text() == "{"


def test_few_tenants_stay_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(golden_file, "TENANTS_REMEMBERED", 2)
    files = GoldenFiles(DiskDocuments(tmp_path))
    for name in "abcde":
        files.add(name, golden(name), "secrets")
    assert len(files._files) == 2
    assert [queries(files, name) for name in "abcde"] == [["a"], ["b"], ["c"], ["d"], ["e"]]


steps = st.lists(
    st.tuples(st.sampled_from(["add", "remove"]), st.sampled_from(["t", "v"]), st.integers(0, 4)), max_size=20
)


@settings(max_examples=30, deadline=None)
@given(steps)
def test_any_order_of_changes_leaves_what_a_list_would(taken: list[tuple[str, str, int]]) -> None:
    with TemporaryDirectory() as folder:
        files, model = GoldenFiles(DiskDocuments(Path(folder))), {"t": list[str](), "v": list[str]()}
        for what, tenant, number in taken:
            query = f"q{number}"
            if what == "add":
                fresh = files.add(tenant, golden(query), "secrets")[1]
                assert fresh == (query not in model[tenant])
                model[tenant] += [query] if fresh else []
            else:
                ids = [one.id for one in files.of(tenant).queries if one.query == query]
                files.change(tenant, without(ids))
                model[tenant] = [one for one in model[tenant] if one != query]
        again = GoldenFiles(DiskDocuments(Path(folder)))
        assert {tenant: queries(again, tenant) for tenant in model} == model
