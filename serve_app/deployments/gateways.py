"""What a gateway of the cluster profile is made of: a service that follows the store and answers what is read."""

from __future__ import annotations

from typing import Any

from serve_app.asgi import AsgiService
from serve_app.deployments.place import Place, own_name

__all__ = ["compose_gateway"]


def compose_gateway(place: Place, **parts: Any) -> AsgiService:
    """To be called on the loop that the service will run on. Raises InvalidRequest."""
    from serve_app.service import Service  # in the replica, not where the application is built

    return Service(place.settings("replica", own_name("gateway")), **parts)
