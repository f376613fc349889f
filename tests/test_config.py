"""Settings come from one file, and a wrong one is named before anything starts."""

from pathlib import Path

import pytest

from serve_app.config import S3_OPTIONS, StoreOptions, load_settings
from serve_app.errors import InvalidRequest


def write(folder: Path, text: str) -> Path:
    path = folder / "memstrata.toml"
    path.write_text(text, "utf-8")
    return path


def test_without_a_file_the_defaults_hold(tmp_path: Path) -> None:
    settings = load_settings(tmp_path)
    assert settings.data == str(tmp_path)
    assert (settings.store.shards, settings.store.log_uri) == (None, "")


def test_a_file_says_what_differs(tmp_path: Path) -> None:
    text = """
        [store]
        shards = 8
        log_uri = "s3://memory/log"
        options = { endpoint = "http://127.0.0.1:9000", allow_http = "true" }
        [encoder]
        model = "hash"
        [memory]
        threads = 2
        summary = { every_turns = 3 }
        [fold]
        age_s = 5.0
    """
    settings = load_settings(tmp_path, write(tmp_path, text))
    assert (settings.store.shards, settings.encoder.model, settings.memory.threads) == (8, "hash", 2)
    assert (settings.memory.summary.every_turns, settings.memory.summary.ttl_s) == (3, 14_400)
    assert settings.fold.age_s == 5


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[store]\nshards = 0", "shards"),
        ("[store]\nshards = 5000", "shards"),
        ("[store]\nshards = '4'", "shards"),
        ("[store]\nshard = 4", "shard"),
        ("[stroe]\nshards = 4", "stroe"),
        ("[store.options]\nendpont = 'x'", "endpont"),
        ("[store.options]\nallow_http = true", r"store\.options"),
        ("[memory]\nthreads = 0", "threads"),
        ("[memory]\nvector_share_of_deadline = 2.0", "vector_share_of_deadline"),
        ("[memory.summary]\nevery_turns = 0", "every_turns"),
        ("data = ", "memstrata.toml"),
        ("[encoder]\npooling = 'max'", "pooling"),
    ],
)
def test_a_wrong_setting_is_named(tmp_path: Path, text: str, named: str) -> None:
    with pytest.raises(InvalidRequest, match=named):
        load_settings(tmp_path, write(tmp_path, text))


def test_a_file_that_is_no_text_or_is_not_there_is_named(tmp_path: Path) -> None:
    path = tmp_path / "memstrata.toml"
    with pytest.raises(InvalidRequest, match=r"memstrata\.toml"):
        load_settings(tmp_path, path)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidRequest, match=r"memstrata\.toml"):
        load_settings(tmp_path, path)


def test_options_of_the_store_have_one_set_of_names() -> None:
    given = {"aws_endpoint_url": "http://x", "aws_access_key_id": "a", "region": "r", "aws_allow_http": "true"}
    made = StoreOptions(options=given).connection
    assert made == {"endpoint": "http://x", "access_key_id": "a", "region": "r", "allow_http": "true"}
    assert set(made) <= S3_OPTIONS
    assert StoreOptions(options={"azure_storage_account_name": "n"}).connection == {"azure_storage_account_name": "n"}
    with pytest.raises(ValueError, match="endpiont"):
        StoreOptions(options={"endpiont": "x"})
