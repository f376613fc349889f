"""`deploy/serve.yaml` as Serve reads it, against what the builders that it names build."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from ray.serve._private.build_app import build_app
from ray.serve._private.deploy_utils import get_app_code_version
from ray.serve.schema import ServeDeploySchema

from serve_app.deployments import cluster
from serve_app.deployments.declared import declared
from serve_app.deployments.place import Place
from serve_app.deployments.ways import CONTROL, hot_shard_deployment, writer_deployment
from serve_app.errors import InvalidRequest
from tests.deployments.served import ROOT

SERVE_YAML, SETTINGS = ROOT / "deploy" / "serve.yaml", ROOT / "deploy" / "memstrata.toml"
FILES = {one.name: yaml.safe_load(one.read_text()) for one in (SERVE_YAML, SERVE_YAML.with_name("serve-gpu.yaml"))}
either = pytest.mark.parametrize("document", FILES.values(), ids=FILES)


@pytest.fixture
def document() -> dict[str, Any]:
    return yaml.safe_load(SERVE_YAML.read_text())


@either
def test_serve_accepts_it_and_knows_every_word(document: dict[str, Any]) -> None:
    read = ServeDeploySchema.model_validate(document)
    known = read.model_dump()
    assert set(document) <= set(known)
    for said, found in zip(document["applications"], known["applications"], strict=True):
        assert set(said) <= set(found)
        for ours, theirs in zip(said["deployments"], found["deployments"], strict=True):
            assert set(ours) <= set(theirs)


@either
def test_each_import_path_builds_the_deployments_that_are_named(document: dict[str, Any]) -> None:
    for application in document["applications"]:
        module, _, builder = application["import_path"].partition(":")
        assert module == "serve_app.deployments.cluster"
        args = application["args"] | {"config": str(SETTINGS)}
        built = build_app(getattr(cluster, builder)(args), name=application["name"])
        assert [one.name for one in built.deployments] == [one["name"] for one in application["deployments"]]


def test_gateways_ask_for_the_names_that_it_has(document: dict[str, Any]) -> None:
    named = {(each["name"], one["name"]) for one in document["applications"] for each in one["deployments"]}
    models = {(one.deployment, one.application) for one in declared(Place(config=str(SETTINGS)))}
    assert {deployment.split("@")[0] for deployment, _ in models} == {"Embedder"}
    assert named - models == {
        CONTROL,
        writer_deployment("writer-0"),
        writer_deployment("writer-1"),
        ("Gateway", "memstrata"),
    }


def test_hot_shards_have_the_names_that_gateways_ask_for() -> None:
    own = [one for one in FILES["serve-gpu.yaml"]["applications"] if one not in FILES["serve.yaml"]["applications"]]
    named = [(one["deployments"][0]["name"], one["name"]) for one in own]
    assert named == [hot_shard_deployment(one["args"]["hot"]) for one in own] == [("HotShard-0", "memstrata-hot-0")]


def test_an_option_is_no_new_version_of_an_application_and_an_argument_is(document: dict[str, Any]) -> None:
    def versions() -> list[str]:
        return [get_app_code_version(one) for one in ServeDeploySchema.model_validate(document).applications]

    before = versions()
    gateways = document["applications"][0]
    gateways["deployments"][0]["autoscaling_config"]["max_replicas"] = 16
    gateways["deployments"][0]["max_queued_requests"] = 10
    assert versions() == before
    document["applications"][2]["args"]["data"] = "/elsewhere"
    assert [number for number, new in enumerate(versions()) if new != before[number]] == [2]


def test_arguments_name_places_and_hold_no_settings() -> None:
    assert Place.of({"config": "/a", "writer": "writer-3"}).writer == "writer-3"
    with pytest.raises(InvalidRequest, match="secret"):
        Place.of({"secret_access_key": "x"})
    with pytest.raises(InvalidRequest):
        Place.of({"writer": 3})  # type: ignore[dict-item]


@pytest.mark.slow
def test_serve_build_takes_the_applications(tmp_path: Path) -> None:
    paths = [f"serve_app.deployments.cluster:{one}" for one in ("GATEWAY_APP", "CONTROL_APP", "WRITER_APP")]
    out = tmp_path / "built.yaml"
    words = [sys.executable, "-m", "ray.serve.scripts", "build", *paths, "-o", str(out)]
    subprocess.run(words, check=True, cwd=ROOT, capture_output=True)
    built = yaml.safe_load(out.read_text())["applications"]
    assert [one["deployments"][0]["name"] for one in built] == ["Gateway", "Control", "ShardWriter-0"]
