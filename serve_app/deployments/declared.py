"""The models that a cluster's settings place in deployments of their own: their names, and their applications.

Gateways and writers ask for a model by the name that its settings give it, so that no process takes another model's
answers for those of its own. A Serve config has to have the same names, and this prints what belongs into one, as JSON,
which YAML takes as it is:

    python -m serve_app.deployments.declared --config deploy/memstrata.toml
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ray import serve

from serve_app.deployments import app
from serve_app.deployments.applications import EMBEDDER, RERANKER, SUMMARISER, application_of
from serve_app.deployments.models import OpenedEncoders
from serve_app.deployments.place import Place
from serve_app.deployments.rerank import run_inside
from serve_app.errors import InvalidRequest, MemstrataError
from serve_app.memory.configurations import name_of
from serve_app.models.placed import Placed
from serve_app.models.summarise import CompressOptions

if TYPE_CHECKING:
    from serve_app.config import Settings

__all__ = ["COMPRESS", "ENCODERS", "RERANK", "Declared", "application", "declared", "section_of_config"]

ENCODERS, RERANK, COMPRESS = ("encoder", "multilingual"), ("rerank",), ("compress.coarse", "compress.fine")
"""Sections of the settings that name one model each."""

MODEL_CPUS = 1
"""What a replica takes of its node, where nothing else is said."""


class Declared(NamedTuple):
    """One model: the section that names it, its builder in `cluster.py`, how it is placed, and what it is."""

    section: str
    builder: str
    deployment: str
    placed: Placed
    bound: serve.Application

    @property
    def application(self) -> str:
        return application_of(*self.deployment.split("@", 1))


def declared(place: Place) -> list[Declared]:
    """All of them. Raises InvalidRequest, and EncoderUnavailable where an encoder's files are not there."""
    if not place.config:
        return []  # by default every model is inside
    settings = place.settings("writer", "models")
    return [*_embedders(settings, place), *_reranker(settings, place), *_summarisers(settings, place)]


def application(place: Place, sections: tuple[str, ...]) -> serve.Application:
    """Of the model that `place` says, which is one of these sections. Raises as `declared`."""
    section = place.model or sections[0]
    for one in declared(place):
        if one.section == section and section in sections:
            return one.bound
    raise InvalidRequest(f"model: {section!r} places no {' or '.join(sections)} in a deployment of its own")


def section_of_config(place: Place) -> list[dict[str, Any]]:
    """What `applications` of a Serve config have of them: as many replicas as the settings say."""
    args = {"config": place.config, "data": place.data}
    return [
        {
            "name": one.application,
            "route_prefix": None,
            "import_path": f"serve_app.deployments.cluster:{one.builder}",
            "args": {"model": one.section} | {name: value for name, value in args.items() if value},
            "deployments": [
                {
                    "name": one.deployment,
                    "ray_actor_options": {"num_cpus": MODEL_CPUS}
                    | ({"num_gpus": one.placed.gpus} if one.placed.gpus else {}),
                }
            ],
        }
        for one in declared(place)
    ]


def _embedders(settings: Settings, place: Place) -> Iterator[Declared]:
    if settings.encoder.placement == "inside":
        return
    opened = OpenedEncoders()
    for section, one in zip(ENCODERS, settings.open_embedders(opened.open), strict=False):
        version = one.version.name
        options = opened.options(version)
        bound = app.embedder(version, options, place)
        yield Declared(section, "embedder", f"{EMBEDDER}@{version}", options.deployment, bound)


def _reranker(settings: Settings, place: Place) -> Iterator[Declared]:
    options = settings.rerank
    if options.placement == "inside" or not options.model:
        return
    name = name_of(run_inside(options))
    bound = app.reranker(name, options, place)
    yield Declared(RERANK[0], "reranker", f"{RERANKER}@{name}", options.deployment, bound)


def _summarisers(settings: Settings, place: Place) -> Iterator[Declared]:
    section = settings.compress
    if section.placement == "inside":
        return
    names: set[str] = set()
    for part, options in zip(COMPRESS, (section.coarse, section.fine), strict=True):
        name = name_of(options)
        if options.backend == "transformers" and name not in names:
            names.add(name)
            bound = app.summariser(name, CompressOptions(options, options, deployment=section.deployment), place)
            yield Declared(part, "summariser", f"{SUMMARISER}@{name}", section.deployment, bound)


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m serve_app.deployments.declared")
    parser.add_argument("--config", type=Path, required=True, help="the settings as they are here")
    parser.add_argument("--path", default="", help="where the nodes have them; default: the same")
    parser.add_argument("--data", default="", help="a folder on each node for what a process puts somewhere")
    given = parser.parse_args(words)
    try:
        found = section_of_config(Place(config=str(given.config), data=given.data))
    except MemstrataError as error:
        print(f"memstrata: {error}", file=sys.stderr)
        return 1
    for one in found:
        one["args"]["config"] = given.path or str(given.config)
    print(json.dumps({"applications": found}, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
