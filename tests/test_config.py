"""Settings come from one file, and a wrong one is named before anything starts."""

from pathlib import Path

import pytest

from serve_app.config import S3_OPTIONS, StoreOptions, load_settings
from serve_app.errors import EncoderUnavailable, InvalidRequest
from serve_app.models.embed import EncoderOptions
from serve_app.models.multilingual import MULTILINGUAL
from serve_app.models.stub import HashEmbedder
from serve_app.models.weights import PACKAGED
from serve_app.ports import Embedder


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
        ("[memory.shares]\nembed = 2.0", "embed"),
        ("[memory.shares]\nembed = 0.9", "each stage must end after"),
        ("[memory.summary]\nevery_turns = 0", "every_turns"),
        ("[compress]\nbackend = 'openai'", "backend"),
        ("[compress.coarse]\nbackend = 'openai'\nmodel = 'm'", r"needs url.*compress\.coarse"),
        ("[compress.fine]\nbackend = 'transformers'", r"needs model.*compress\.fine"),
        ("[compress.fine]\nwindow_tokens = 16", "window_tokens"),
        ("data = ", "memstrata.toml"),
        ("[encoder]\npooling = 'max'", "pooling"),
        ("[encoder]\nmodel = 'use-multilingual-v3'\ntemplate = 'q: {text}'", "template"),
        ("[multilingual]\ntemplate = 'q: {text}'", "template"),
        ("[multilingual]\nplacement = 'deployment'", r"placement is a setting of \[encoder\]"),
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


@pytest.mark.parametrize(
    ("text", "models"),
    [
        ("", [PACKAGED, MULTILINGUAL]),
        ("[encoder]\ntemplate = 'q: {text}'", [PACKAGED, MULTILINGUAL]),
        ("[encoder]\nmodel = 'hash'", ["hash"]),
        ("[encoder]\nmodel = 'use-multilingual-v3'", [MULTILINGUAL]),
        ("[multilingual]\nmodel = 'off'", [PACKAGED]),
        ("[multilingual]\nmodel = 'hash-32'", [PACKAGED, "hash-32"]),
        ("[encoder]\nmodel = 'hash'\n[multilingual]\nmodel = 'hash-32'", ["hash", "hash-32"]),
        ("[encoder]\nmodel = 'hash'\n[multilingual]", ["hash", MULTILINGUAL]),
    ],
)
def test_which_encoders_there_are(tmp_path: Path, text: str, models: list[str]) -> None:
    opened: list[str] = []

    def open_one(options: EncoderOptions) -> Embedder:
        opened.append(options.model)
        return HashEmbedder()

    assert len(load_settings(tmp_path, write(tmp_path, text)).open_embedders(open_one)) == len(models)
    assert opened == models


@pytest.mark.parametrize(("text", "left"), [("", 1), ("[multilingual]\nmodel = 'use-multilingual-v3'", None)])
def test_a_multilingual_encoder_that_is_not_installed(tmp_path: Path, text: str, left: int | None) -> None:
    """By default the service runs without; what was asked for by name has to be there."""

    def open_one(options: EncoderOptions) -> Embedder:
        if options.model == MULTILINGUAL:
            raise EncoderUnavailable("pip install it")
        return HashEmbedder()

    settings = load_settings(tmp_path, write(tmp_path, text))
    if left is None:
        with pytest.raises(EncoderUnavailable, match="pip install it"):
            settings.open_embedders(open_one)
    else:
        assert len(settings.open_embedders(open_one)) == left
