"""What the routes below `/v1/admin` do: state, maintenance, keys, policies. For keys of role admin or operator."""

from __future__ import annotations

import asyncio

import msgspec

from serve_app.api.auth import KeyFile, Principal
from serve_app.api.http import BodyDecoder, Request, Response, json_response
from serve_app.api.schemas import KeyIn, MaintenanceIn
from serve_app.errors import Forbidden
from serve_app.memory.memory import Memory
from serve_app.memory.operator import Operator
from serve_app.policies import OF_SERVICE, PrivacyPolicy
from serve_app.stores.policy_file import PolicyFile
from serve_app.write.rescan import Rescan

_key = BodyDecoder(KeyIn)
_maintenance = BodyDecoder(MaintenanceIn)


class AdminRoutes:
    """The handlers. Each takes the principal and the request, and gives a response or raises."""

    def __init__(self, memory: Memory, operator: Operator, keys: KeyFile, policies: PolicyFile, rescan: Rescan) -> None:
        self._memory = memory
        self._operator = operator
        self._keys = keys
        self._policies = policies
        self._rescan = rescan

    async def stats(self, who: Principal, request: Request) -> Response:
        return json_response({"shards": await self._operator.stats(), "version": self._memory.encoder.version.name})

    async def maintain(self, who: Principal, request: Request) -> Response:
        body = await _maintenance(request.body)
        done = await self._operator.maintain(body.action, body.shard)
        return json_response({"action": body.action, "shards": done})

    async def create_key(self, who: Principal, request: Request) -> Response:
        body = await _key(request.body)
        tenant = body.tenant or who.tenant
        if who.role != "operator" and (tenant != who.tenant or body.role == "operator"):
            raise Forbidden("an admin makes keys of its own tenant, and no operator keys")
        key_id, key = await asyncio.to_thread(self._keys.create, tenant=tenant, role=body.role, user=body.user_id)
        return json_response({"key_id": key_id, "key": key, "tenant": tenant, "role": body.role}, 201)

    async def list_keys(self, who: Principal, request: Request) -> Response:
        records = self._keys.records(None if who.role == "operator" else who.tenant)
        shown = [{"key_id": one.key_id, "tenant": one.tenant, "role": one.role, "user_id": one.user} for one in records]
        return json_response({"keys": shown})

    async def delete_key(self, who: Principal, request: Request) -> Response:
        tenant = None if who.role == "operator" else who.tenant
        await asyncio.to_thread(self._keys.revoke, request.path[0], tenant)
        return json_response({"deleted": 1})

    async def get_policy(self, who: Principal, request: Request) -> Response:
        policy = await asyncio.to_thread(self._policies.get, who.tenant, request.path[0])
        shown = {"name": request.path[0], "policy": msgspec.to_builtins(policy)}
        if isinstance(policy, PrivacyPolicy):
            shown["rescan"] = await asyncio.to_thread(self._rescan.state, who.tenant)
        return json_response(shown)

    async def put_policy(self, who: Principal, request: Request) -> Response:
        """The body is the policy as a whole: what it leaves out takes its default."""
        name = request.path[0]
        if name in OF_SERVICE and who.role != "operator":
            raise Forbidden("this policy is the service's: only an operator sets it")
        policy = await asyncio.to_thread(self._policies.put, who.tenant, name, request.body)
        return json_response({"name": name, "policy": msgspec.to_builtins(policy)})
