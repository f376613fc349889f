"""Models that a Serve config declares: their names are those that services of the same settings ask for."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ray.serve._private.build_app import build_app

from serve_app.config import load_settings
from serve_app.deployments import cluster
from serve_app.deployments.applications import EMBEDDER, RERANKER, SUMMARISER, EmbedderApplications, application_of
from serve_app.deployments.beside import DECLARED
from serve_app.deployments.declared import declared, main
from serve_app.deployments.place import Place, placed_apart
from serve_app.deployments.rerank import PairCalls, RerankerDeployments, opening_rerankers
from serve_app.deployments.summarise import SummariserDeployments, opening_summarisers
from serve_app.errors import InvalidRequest

CONFIG = """
[store]
files_uri = "/tmp/nowhere"
[encoder]
model = "hash"
placement = "deployment"
[encoder.deployment]
replicas = 2
replicas_max = 6
gpus = 0.5
[multilingual]
model = "hash-32"
[rerank]
model = "a-model"
placement = "deployment"
[rerank.deployment]
replicas = 3
[compress]
placement = "deployment"
[compress.coarse]
backend = "transformers"
model = "{folder}"
[compress.fine]
backend = "transformers"
model = "{folder}"
window_tokens = 512
"""


@pytest.fixture
def args(tmp_path: Path) -> dict[str, str]:
    config = tmp_path / "memstrata.toml"
    config.write_text(CONFIG.format(folder=tmp_path))
    return {"config": str(config)}


class Asked:
    """Deployments that note what is asked for."""

    def __init__(self, kind: str) -> None:
        self.kind, self.names = kind, list[str]()

    def run(self, name: str, options: Any) -> None:
        self.names.append(application_of(self.kind, name))

    def end(self, name: str) -> None:
        pass

    def handle(self, name: str) -> Callable[[], Any]:
        return lambda: None  # nobody is there, and so nobody answers


def test_services_ask_for_the_applications_that_are_declared(args: dict[str, str]) -> None:
    settings = load_settings(Path("unused"), Path(args["config"]))
    assert placed_apart(settings) == ["encoder", "rerank", "compress"]
    rerankers, summarisers = Asked(RERANKER), Asked(SUMMARISER)
    asyncio.run(ask(settings, rerankers, summarisers))
    versions = [application_of(EMBEDDER, one.version.name) for one in settings.open_embedders()]
    asked = versions + rerankers.names + summarisers.names
    assert [one.application for one in declared(Place.of(args))] == asked
    assert len(set(asked)) == 5


async def ask(settings: Any, rerankers: RerankerDeployments, summarisers: SummariserDeployments) -> None:
    loop = asyncio.get_running_loop()
    model = await asyncio.to_thread(opening_rerankers(rerankers, loop), settings.rerank)
    coarse, fine = await asyncio.to_thread(opening_summarisers(summarisers, loop), settings.compress)
    assert isinstance(model, PairCalls)
    for one in (model, coarse, fine):
        assert one is not None
        await asyncio.to_thread(one.close)


def test_each_section_has_its_builder(args: dict[str, str]) -> None:
    for one in declared(Place.of(args)):
        builder = getattr(cluster, one.builder)
        [built] = build_app(builder(args | {"model": one.section}), name="x").deployments
        assert built.name == one.deployment
        config = built._deployment_config
        assert config.max_queued_requests > 0
        scaling = config.autoscaling_config
        assert (scaling and (scaling.min_replicas, scaling.max_replicas)) == (
            (2, 6) if one.section == "encoder" else None
        )
    [encoder] = build_app(cluster.embedder(args), name="x").deployments
    assert encoder.ray_actor_options == {"num_cpus": 0, "num_gpus": 0.5}


def test_what_is_no_deployment_is_refused(args: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="'rerank' places no encoder"):
        cluster.embedder(args | {"model": "rerank"})
    inside = tmp_path / "inside.toml"
    inside.write_text("[rerank]\nmodel = 'a-model'\n")
    with pytest.raises(InvalidRequest, match="'rerank' places no"):
        cluster.reranker({"config": str(inside)})
    assert declared(Place(config=str(inside))) == declared(Place()) == []


def test_the_applications_of_a_session_have_them(args: dict[str, str]) -> None:
    names = [name for name, _, _ in cluster.applications(args | {"store": "/tmp/nowhere"}, 1)]
    assert names[-3:] == ["memstrata-control", "memstrata-writer-0", "memstrata"]
    assert names[:-3] == [one.application for one in declared(Place.of(args))]


def test_it_prints_what_a_serve_config_has_of_them(args: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--config", args["config"], "--path", "/etc/memstrata/memstrata.toml"]) == 0
    found = json.loads(capsys.readouterr().out)["applications"]
    assert [one["name"] for one in found] == [one.application for one in declared(Place.of(args))]
    assert found[0]["args"] == {"model": "encoder", "config": "/etc/memstrata/memstrata.toml"}
    assert found[0]["deployments"][0]["ray_actor_options"] == {"num_cpus": 1, "num_gpus": 0.5}
    assert main(["--config", args["config"] + ".none"]) == 1


def test_there_may_be_more_replicas_of_a_declared_one_than_the_settings_say() -> None:
    assert DECLARED.embedders.declared
    assert not EmbedderApplications(lambda version, options: pytest.fail("none is started")).declared
