"""A store whose vectors are those of its texts passes; one whose vectors were damaged does not."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lancedb
import msgspec
import numpy as np
import pyarrow as pa
import pytest

from jobs.alignment import BAR, main
from serve_app.config import Settings, load_settings
from serve_app.core import Turn
from serve_app.models.stub import HashEmbedder
from serve_app.shards import change_identity
from serve_app.stores.packing import pack_vectors, text_digest, turn_text
from serve_app.stores.vector_table import VectorRow, VectorTable
from tests.api.running import Running, word
from tests.jobs.apart import JobsApart

pytestmark = pytest.mark.ray

ALIGNMENT = "jobs.alignment"
TURNS = 60
BESIDE = HashEmbedder(32)


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("config") / "memstrata.toml"
    path.write_text('[encoder]\nmodel = "hash-48"\n\n[store]\nshards = 2\n')
    return path


@pytest.fixture
def data(config: Path, tmp_path: Path) -> Path:
    """Turns of many users, folded, with their vectors."""
    running = Running(load_settings(tmp_path / "data", config))
    for number in range(TURNS):
        said = {"role": "user", "content": f"the {word(number)} harbour {number}", "speaker": "Ann"}
        running.append(f"u{number % 9}", "s", said, wait="indexed")
    running.fold()
    running.stop()
    return tmp_path / "data"


def table(settings: Settings, shard: int) -> lancedb.table.Table:
    return lancedb.connect(settings.layout.tables["tables"]).open_table(f"shard-{shard:04d}")


def test_a_sound_store_is_aligned_and_a_damaged_one_is_not(jobs: JobsApart, data: Path, config: Path) -> None:
    words = ["--data", data, "--config", config, "--json", "--sample", 5]
    ran = jobs.run(ALIGNMENT, *words)
    assert ran.status == 0, ran.said
    [version] = ran.json["versions"]
    assert (version["dimension"], version["faults"], version["share"]) == (48, {}, 1.0)
    assert version["min"] >= BAR
    assert {(one["shard"], one["place"]) for one in version["groups"]} == {(0, "inline"), (1, "inline")}
    assert all(one["turns"] <= 5 for one in version["groups"])
    assert jobs.run(ALIGNMENT, *words).json["versions"] == ran.json["versions"]

    stored = table(load_settings(data, config), 1)
    column = f"v_{version['version']}"
    rows = stored.search().where("kind = 'turn'").select(["row"]).limit(TURNS).to_arrow()["row"].to_pylist()
    chance = np.random.default_rng(1).standard_normal((len(rows), 48))
    unit = (chance / np.linalg.norm(chance, axis=1, keepdims=True)).astype(np.float16)
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(unit.reshape(-1)), 48)
    damage = pa.table({"row": pa.array(rows, pa.int64()), column: vectors})
    stored.merge_insert("row").when_matched_update_all().execute(damage)
    ran = jobs.run(ALIGNMENT, *words)
    assert ran.status == 1
    [version] = ran.json["versions"]
    assert not version["aligned"]
    assert version["min"] < 0.9
    assert {one["shard"] for one in version["groups"] if one["min"] < BAR} == {1}


@pytest.mark.slow
def test_what_lies_beside_is_tested_too_and_by_the_digest_of_its_text(
    jobs: JobsApart, data: Path, config: Path
) -> None:
    settings = load_settings(data, config)
    put_beside(settings, lambda text: text)
    words = ["--data", data, "--config", config, "--json"]
    missing = jobs.run(ALIGNMENT, *words)
    assert missing.status == 1
    assert "no encoder of this version" in missing.json["versions"][1]["left_out"]
    brought = {"encoders": {BESIDE.version.name: {"model": "hash-32"}}}
    (data / "migrations.json").write_text(json.dumps(brought))
    ran = jobs.run(ALIGNMENT, *words)
    assert ran.status == 0, ran.out
    beside = ran.json["versions"][1]
    assert (beside["version"], beside["turns"], beside["digests"]) == (BESIDE.version.name, TURNS, TURNS)
    assert {one["place"] for one in beside["groups"]} == {"beside"}
    put_beside(settings, lambda text: f"{text}!")
    ran = jobs.run(ALIGNMENT, *words)
    assert ran.status == 1
    assert ran.json["versions"][1]["faults"] == {"text": TURNS}
    assert ran.json["versions"][0]["aligned"]


def put_beside(settings: Settings, read: Callable[[str], str]) -> None:
    """As a backfill would, of what `read` makes of each text."""
    change_identity(settings.files, beside=[BESIDE.version])
    for shard in range(2):
        beside = VectorTable(settings.layout.tables["tables"], f"shard-{shard:04d}", BESIDE.version, {})
        stored = table(settings, shard).search().where("kind = 'turn'").limit(TURNS).to_list()
        beside.put([row_beside(row, read) for row in stored])


def row_beside(row: dict[str, Any], read: Callable[[str], str]) -> VectorRow:
    turn = msgspec.msgpack.decode(row["body"], type=Turn)
    text = read(turn_text(turn))
    newer = row["vector_seq"] + len(text)  # so that another text replaces this one
    vector = pack_vectors(BESIDE.embed([text]))
    return VectorRow(row["row"], turn.rev, newer, row["owner"], turn.session, turn.seq, text_digest(text), vector)


def test_without_a_store_nothing_is_started(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def never(address):
        raise AssertionError("Ray is not needed")

    assert main(["--data", str(tmp_path)], session=never) == 1
    assert "holds no store" in capsys.readouterr().err
