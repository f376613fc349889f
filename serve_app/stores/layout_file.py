"""The layouts that were tuned, with their revisions, in one file of the store, by tenant."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from msgspec.structs import replace

from serve_app.errors import InvalidRequest, NotFound
from serve_app.layouts import (
    BUILT_IN,
    DEFAULT_NAME,
    LAYOUTS_MAX,
    NOTHING_TUNED,
    Chosen,
    History,
    State,
    TunedLayout,
)
from serve_app.stores.documents import Documents
from serve_app.stores.private_file import PrivateFile

LAYOUTS_FILE = "layouts.json"
NO_HISTORY = History()


class Stored(msgspec.Struct, frozen=True):
    """The file."""

    tenants: dict[str, History] = {}


class LayoutFile:
    """See `layouts.Layouts`."""

    def __init__(self, files: Documents, clock: Callable[[], int]) -> None:
        self._file = PrivateFile(files, LAYOUTS_FILE, Stored, Stored)
        self._clock = clock
        self._newest: tuple[Stored | None, dict[str, State]] = (None, {})

    @property
    def trouble(self) -> str | None:
        """Why the file cannot be read at the moment; the layouts that were read before count."""
        return self._file.trouble

    def newest(self, tenant: str) -> State:
        stored = self._file.read()
        if tenant not in stored.tenants:
            return NOTHING_TUNED
        known = self._newest
        if stored is not known[0]:
            known = self._newest = (stored, {})  # as one value: another thread may have read an older file
        states = known[1]
        state = states.get(tenant)
        if state is None:
            history = stored.tenants[tenant]
            state = states[tenant] = history.at_revision(history.newest)
        return state

    def history(self, tenant: str) -> History:
        return self._file.read().tenants.get(tenant, NO_HISTORY)

    def get(self, tenant: str, name: str) -> Chosen:
        """Raises NotFound."""
        state = self.newest(tenant)
        return state.chosen(name) or _no_layout(name, state)

    def put(self, tenant: str, name: str, layout: TunedLayout) -> Chosen:
        """A new revision, unless this very layout has the name already. Raises InvalidRequest, StoreUnavailable."""
        if name == DEFAULT_NAME and layout.when is not None:
            raise InvalidRequest(f"when: {DEFAULT_NAME!r} holds where no other layout does; give the rule another name")

        def tuned(stored: Stored) -> Stored:
            history = stored.tenants.get(tenant, NO_HISTORY)
            state = history.at_revision(history.newest)
            if name not in state.layouts and len(state.layouts) >= LAYOUTS_MAX:
                raise InvalidRequest(f"a tenant has at most {LAYOUTS_MAX} layouts")
            if state.layouts.get(name) == layout:
                return stored
            return _with(stored, tenant, history.with_change(name, layout, self._clock()))

        return Chosen(name, layout, self._file.change(tuned).tenants[tenant].newest)

    def remove(self, tenant: str, name: str) -> int:
        """Gives the new revision; `default` is the built-in one then. Raises NotFound, StoreUnavailable."""

        def without(stored: Stored) -> Stored:
            history = stored.tenants.get(tenant, NO_HISTORY)
            state = history.at_revision(history.newest)
            if name not in state.layouts:
                _no_layout(name, state)
            return _with(stored, tenant, history.with_change(name, None, self._clock()))

        return self._file.change(without).tenants[tenant].newest

    def refresh(self) -> None:
        """Read what is in the file, here and now: a request that asks next finds it in memory."""
        self._file.read()


def _with(stored: Stored, tenant: str, history: History) -> Stored:
    return replace(stored, tenants={**stored.tenants, tenant: history})


def _no_layout(name: str, state: State) -> Chosen:
    if name == DEFAULT_NAME and state.named(name) is BUILT_IN:
        raise NotFound(f"layout {name!r} is the built-in one; it is there as long as no other is set")
    raise NotFound(f"there is no layout {name!r}; there are: {', '.join(map(repr, state.names))}")
