"""What the routes below `/v1/admin` do: state, maintenance, keys, policies, layouts. For admins and operators."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import msgspec

from serve_app.api.auth import KeyFile, KeyRecord, Principal
from serve_app.api.http import BodyDecoder, Request, Response, json_response
from serve_app.api.ids import identifier, integer
from serve_app.api.schemas import PAGE_USERS_DEFAULT, PAGE_USERS_MAX, BackupIn, KeyIn, MaintenanceIn
from serve_app.api.showing import shown_backup
from serve_app.api.times import format_time
from serve_app.errors import Forbidden, InvalidRequest
from serve_app.layouts import BUILT_IN, Chosen, TunedLayout
from serve_app.memory.memory import Memory
from serve_app.memory.operator import Operator
from serve_app.policies import OF_SERVICE, PrivacyPolicy
from serve_app.stores.layout_file import LayoutFile
from serve_app.stores.policy_file import PolicyFile
from serve_app.write.rescan import Rescan

_backup = BodyDecoder(BackupIn)
_key = BodyDecoder(KeyIn)
_layout = BodyDecoder(TunedLayout)
_maintenance = BodyDecoder(MaintenanceIn)


class AdminRoutes:
    """The handlers. Each takes the principal and the request, and gives a response or raises."""

    def __init__(
        self,
        memory: Memory,
        operator: Operator,
        keys: KeyFile,
        policies: PolicyFile,
        rescan: Rescan,
        layouts: LayoutFile,
        settles_s: float = 0.0,
    ) -> None:
        """`settles_s`: so long after a change of keys, policies or layouts it holds everywhere, and is answered."""
        self._memory = memory
        self._operator = operator
        self._keys = keys
        self._policies = policies
        self._rescan = rescan
        self._layouts = layouts
        self._settles_s = settles_s

    async def stats(self, who: Principal, request: Request) -> Response:
        """`version` is the primary one of the embedding versions."""
        versions = self._operator.versions
        return json_response({"shards": await self._operator.stats(), "version": versions[0], "versions": versions})

    async def maintain(self, who: Principal, request: Request) -> Response:
        """A rescan of named tenants is begun, and goes on in the background; all else is done before the answer."""
        body = await _maintenance(request.body)
        if body.tenants is not None:
            if body.action != "rescan":
                raise InvalidRequest("tenants: only a rescan is of tenants")
            if set(body.tenants) != {who.tenant}:
                who.require_operator("only an operator has other tenants' data looked through")
            await asyncio.to_thread(self._policies.distrust, body.tenants)
            self._operator.nudge()
            return json_response({"action": body.action, "tenants": body.tenants, "shards": []}, 202)
        done = await self._operator.maintain(body.action, body.shard)
        return json_response({"action": body.action, "shards": done})

    async def begin_backup(self, who: Principal, request: Request) -> Response:
        who.require_operator("a backup holds every tenant's data: only an operator makes one")
        body = await _backup(request.body)
        begun = await asyncio.to_thread(self._operator.begin_backup, body.kind, body.uri)
        shown = {"id": begun.id, "kind": begun.kind, "base": begun.base, "state": "running"}
        return json_response(shown | {"begun_at": format_time(begun.begun_at)}, 202)

    async def list_backups(self, who: Principal, request: Request) -> Response:
        """An admin sees that there are backups, and until when; what they hold of other tenants is not its matter."""
        found = await asyncio.to_thread(self._operator.shown_backups)
        return json_response({"backups": [shown_backup(one, whole=who.role == "operator") for one in found]})

    async def create_key(self, who: Principal, request: Request) -> Response:
        body = await _key(request.body)
        tenant = body.tenant or who.tenant
        if who.role != "operator" and (tenant != who.tenant or body.role == "operator"):
            raise Forbidden("an admin makes keys of its own tenant, and no operator keys")
        create = partial(self._keys.create, user=body.user_id, rate_per_s=body.rate_per_s)
        key_id, key = await asyncio.to_thread(create, tenant=tenant, role=body.role)
        await asyncio.sleep(self._settles_s)
        shown = {"key_id": key_id, "key": key, "tenant": tenant, "role": body.role, "rate_per_s": body.rate_per_s}
        return json_response(shown, 201)

    async def list_keys(self, who: Principal, request: Request) -> Response:
        records = self._keys.records(None if who.role == "operator" else who.tenant)
        return json_response({"keys": [_shown_key(one) for one in records]})

    async def delete_key(self, who: Principal, request: Request) -> Response:
        tenant = None if who.role == "operator" else who.tenant
        await asyncio.to_thread(self._keys.revoke, request.path[0], tenant)
        await asyncio.sleep(self._settles_s)
        return json_response({"deleted": 1})

    async def list_users(self, who: Principal, request: Request) -> Response:
        """Users of the key's tenant who have turns or facts, in order of their ids, a page at a time."""
        who.require_admin()
        asked = request.query
        limit = integer(asked, "limit", PAGE_USERS_DEFAULT, 1, PAGE_USERS_MAX)
        prefix = identifier(asked["prefix"], "prefix") if asked.get("prefix") else ""
        after = identifier(asked["after"], "after") if "after" in asked else None
        users, more = await self._memory.users(who.tenant, prefix, after, limit)
        shown: dict[str, Any] = {"users": [{"user_id": user} for user in users]}
        return json_response(shown | ({"next": users[-1]} if more else {}))

    async def get_policy(self, who: Principal, request: Request) -> Response:
        if request.path[0] in OF_SERVICE and who.role != "operator":
            raise Forbidden("this policy is the service's: only an operator sees it")
        policy = await asyncio.to_thread(self._policies.get, who.tenant, request.path[0])
        shown = {"name": request.path[0], "policy": msgspec.to_builtins(policy)}
        if isinstance(policy, PrivacyPolicy):
            shown["rescan"] = await asyncio.to_thread(self._rescan.state, who.tenant)
        return json_response(shown)

    async def put_policy(self, who: Principal, request: Request) -> Response:
        """The body is the policy as a whole: what it leaves out takes its default."""
        name = request.path[0]
        if name in OF_SERVICE:
            who.require_operator("this policy is the service's: only an operator sets it")
        policy = await asyncio.to_thread(self._policies.put, who.tenant, name, request.body)
        await asyncio.sleep(self._settles_s)
        return json_response({"name": name, "policy": msgspec.to_builtins(policy)})

    async def list_layouts(self, who: Principal, request: Request) -> Response:
        state = await asyncio.to_thread(self._layouts.newest, who.tenant)
        chosen = [one for name in state.names if (one := state.chosen(name)) is not None]
        return json_response({"revision": state.revision, "layouts": [_shown_layout(one) for one in chosen]})

    async def get_layout(self, who: Principal, request: Request) -> Response:
        chosen = await asyncio.to_thread(self._layouts.get, who.tenant, request.path[0])
        return json_response(_shown_layout(chosen) | {"revision": chosen.revision})

    async def put_layout(self, who: Principal, request: Request) -> Response:
        """The body is the layout as a whole. The answer's revision is the one from which it counts."""
        name, body = identifier(request.path[0], "name"), await _layout(request.body)
        chosen = await asyncio.to_thread(self._layouts.put, who.tenant, name, body)
        await asyncio.sleep(self._settles_s)
        return json_response(_shown_layout(chosen) | {"revision": chosen.revision})

    async def remove_layout(self, who: Principal, request: Request) -> Response:
        revision = await asyncio.to_thread(self._layouts.remove, who.tenant, request.path[0])
        await asyncio.sleep(self._settles_s)
        return json_response({"deleted": 1, "revision": revision})


def _shown_layout(chosen: Chosen) -> dict[str, Any]:
    when = chosen.layout.when
    return {
        "name": chosen.name,
        "shares": chosen.layout.shares,
        "when": None if when is None else msgspec.to_builtins(when),
        "built_in": chosen.layout is BUILT_IN,
    }


def _shown_key(record: KeyRecord) -> dict[str, Any]:
    """What may be known of a key by who may revoke it."""
    shown = {"key_id": record.key_id, "tenant": record.tenant, "role": record.role, "user_id": record.user}
    return shown | {"rate_per_s": record.rate_per_s}
