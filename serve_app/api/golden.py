"""What the routes of `/v1/golden` do: golden queries of a tenant, stored by hand or from a search that was kept."""

from __future__ import annotations

from typing import Any

from serve_app.api.asking import moment
from serve_app.api.auth import Principal
from serve_app.api.http import BodyDecoder, Request, Response, json_response
from serve_app.api.ids import identifier, integer
from serve_app.api.schemas import PAGE_GOLDEN_DEFAULT, PAGE_GOLDEN_MAX, GoldenIn
from serve_app.api.times import format_time
from serve_app.core import Owner
from serve_app.errors import InvalidRequest, NotFound
from serve_app.memory.golden import GoldenSets
from serve_app.stores.golden_file import Golden

_golden = BodyDecoder(GoldenIn)


class GoldenRoutes:
    """The handlers. Each takes the principal and the request, and gives a response or raises."""

    def __init__(self, golden: GoldenSets) -> None:
        self._golden = golden

    async def add(self, who: Principal, request: Request) -> Response:
        body = await _golden(request.body)
        owner, query, as_of, drawn = self._asked(who, body)
        gold = [(one.session_id, one.turn_id) for one in body.gold]
        stored, fresh = await self._golden.add(owner, query, gold, as_of, body.note, drawn)
        return json_response(shown_golden(stored) | {"status": "stored" if fresh else "duplicate"}, 201)

    async def page(self, who: Principal, request: Request) -> Response:
        user = _user(who, request.query.get("user_id"))
        limit = integer(request.query, "limit", PAGE_GOLDEN_DEFAULT, 1, PAGE_GOLDEN_MAX)
        after = identifier(request.query["after"], "after") if "after" in request.query else ""
        page = await self._golden.page(who.tenant, user, after, limit)
        shown: dict[str, Any] = {"golden": [shown_golden(one) for one in page.queries]}
        return json_response(shown | ({} if page.next is None else {"next": page.next}))

    async def remove(self, who: Principal, request: Request) -> Response:
        given = {name: identifier(text, name) for name, text in request.query.items()}
        if not given:
            raise InvalidRequest("name a golden query by its id, or a user_id to remove all of that user")
        user = _user(who, given.get("user_id"))
        return json_response({"deleted": await self._golden.remove(who.tenant, user, given.get("id"))})

    def _asked(self, who: Principal, body: GoldenIn) -> tuple[Owner, str, str | int | None, frozenset[int]]:
        """Who asked what, as of when, in words of which turns: as the body says, or as the search that it names."""
        if body.search_id is None:
            if body.user_id is None or body.query is None:
                raise InvalidRequest("a golden query needs user_id and query, or the search_id of a search")
            owner = Owner(who.tenant, identifier(body.user_id, "user_id"))
            who.require_user(owner.user)
            if not body.query.strip():
                raise InvalidRequest("query: it is empty")
            return owner, body.query, _checked(body.as_of), frozenset()
        if (body.query, body.as_of) != (None, None):
            raise InvalidRequest("search_id stands for query and as_of: leave them out")
        if body.user_id is not None:
            who.require_user(body.user_id)
        logged = self._golden.searches.find(who.tenant, body.search_id)
        if (who.user or logged.owner.user) != logged.owner.user or body.user_id not in (None, logged.owner.user):
            raise NotFound("search_id: no such search is kept")  # of another user, which is not told
        return logged.owner, logged.query, format_time(logged.asked_for), logged.drawn_from


def shown_golden(golden: Golden) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "id": golden.id,
        "user_id": golden.user,
        "query": golden.query,
        "gold": [{"session_id": one.session, "turn_id": one.turn_id} for one in golden.gold],
        "gone": golden.gone,
        "as_of": golden.as_of,
        "note": golden.note,
        "created_at": format_time(golden.stored_at),
    }
    return shown


def _user(who: Principal, user: str | None) -> str | None:
    """Whose golden queries this request may touch: those of the user it names, of the key's, or of the tenant."""
    if user is None:
        return who.user
    who.require_user(identifier(user, "user_id"))
    return user


def _checked(as_of: str | int | None) -> str | int | None:
    """A time, a receipt or a seq, or what a context answered. Raises InvalidRequest for what is none."""
    moment(as_of)
    return as_of
