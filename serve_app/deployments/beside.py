"""Which models of a service run in deployments beside it, and the parts that it is then composed with.

Sections of the settings say it (`placement = "deployment"`): the encoders', the cross-encoder's, the summarisers'.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import Any, NamedTuple

from serve_app.asgi import AsgiService
from serve_app.deployments.applications import Applications, EmbedderApplications, rerankers, summarisers
from serve_app.deployments.models import encoders_beside
from serve_app.deployments.rerank import opening_rerankers
from serve_app.deployments.summarise import opening_summarisers
from serve_app.models.rerank import ModelOptions
from serve_app.models.summarise import CompressOptions

__all__ = ["DECLARED", "SECTIONS", "Models", "compose_beside"]

SECTIONS = ("encoder", "rerank", "compress")


class Models(NamedTuple):
    """Of Serve, by kind."""

    embedders: EmbedderApplications
    rerankers: Applications[ModelOptions]
    summarisers: Applications[CompressOptions]

    def parts(self, sections: Collection[str]) -> dict[str, Any]:
        """Of a service, by the names of its arguments, for the `SECTIONS` named. To be called on the loop that the
        service will run on.
        """
        loop, several = asyncio.get_running_loop(), self.embedders.declared
        parts = encoders_beside(self.embedders) if "encoder" in sections else {}
        if "rerank" in sections:
            parts["reranker"] = opening_rerankers(self.rerankers, loop, several=several)
        if "compress" in sections:
            parts["summarisers"] = opening_summarisers(self.summarisers, loop, several=several)
        return parts


DECLARED = Models(EmbedderApplications(None), rerankers(None), summarisers(None))
"""Those that a Serve config declares: the cluster profile's. A process starts and ends none of them."""


def compose_beside(compose: Callable[..., AsgiService], models: Models, sections: Collection[str]) -> AsgiService:
    """The service, its models in deployments beside it. To be called on the loop that the service will run on."""
    return compose(**models.parts(sections))
