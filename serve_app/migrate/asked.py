"""A gate that is being asked: on a thread of its own, since it may take minutes in which Control has more to do."""

from __future__ import annotations

import threading
from concurrent.futures import Future

from serve_app.migrate.record import Gate, Migration
from serve_app.migrate.switching import Gates


class Asked:
    def __init__(self, gates: Gates, migration: Migration) -> None:
        self._stopped = threading.Event()
        self._answer: Future[Gate | None] = Future()
        thread = threading.Thread(target=self._ask, args=(gates, migration), name=f"gate-{migration.id}", daemon=True)
        thread.start()

    @property
    def answered(self) -> bool:
        return self._answer.done()

    def answer(self) -> Gate | None:
        """None where it was stopped. Raises what it raised."""
        return self._answer.result()

    def stop(self) -> None:
        """Nobody wants to know any more."""
        self._stopped.set()

    def _ask(self, gates: Gates, migration: Migration) -> None:
        try:
            self._answer.set_result(gates.of(migration, migration.state, self._stopped.is_set))
        except Exception as error:  # noqa: BLE001 - it is raised where the answer is asked for
            self._answer.set_exception(error)
