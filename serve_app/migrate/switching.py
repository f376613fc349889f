"""What Control leans on: the effects of a migration on the service, the job that fills in, the gates. Seams only.

Everything here is called on Control's thread, but for a gate, which has one of its own. Whatever changes something may
be called again at any time, after a kill at any instant, and then changes only what is not so yet.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from serve_app.migrate.migration_file import Fields
from serve_app.migrate.record import Gate, Migration, State
from serve_app.routing import Epoch


class Switch(Protocol):
    """How one kind of migration changes the service."""

    def begin(self, options: Mapping[str, Any], replaces: str) -> Fields:
        """What is known of a migration to this before it begins. Raises InvalidRequest for what cannot be."""
        ...

    def open(self, migration: Migration) -> Fields:
        """Load the new one, see that it does what it should; gives what is to be kept of that.

        Raises InvalidRequest for one that never will, another MemstrataError for one that cannot be loaded now.
        """
        ...

    def hold(self, migration: Migration) -> Fields:
        """Have the service hold the new one beside the old, as far as the migration's record goes.

        What it gives is to be kept, and it is to be called again with that; nothing: it is done.
        """
        ...

    def epoch(self, now: Epoch, migration: Migration) -> Epoch:
        """What serves whom in the migration's state, where that is what serves now."""
        ...

    def retire(self, migration: Migration) -> bool:
        """Make the new one the base and let the old one go, which serves nobody any more. False: not all of it yet."""
        ...

    def withdraw(self, migration: Migration) -> None:
        """Let the new one go, which serves nobody any more."""
        ...


class Backfill(Protocol):
    """How far the vectors of what was written earlier are."""

    def complete(self, migration: Migration) -> bool:
        """Whether nothing lacks them but what has failed for good, which is not too much."""
        ...

    def discard(self, migration: Migration) -> None:
        """Forget how far it was."""
        ...


class Runner(Protocol):
    """Starts the job that fills in, and ends it."""

    def tend(self, migration: Migration) -> str:
        """Have it run, if it does not, and it is time to try; gives why it does not run, if so."""
        ...

    def stop(self) -> None:
        """End it, if it runs."""
        ...


class Gates(Protocol):
    def of(self, migration: Migration, state: State, stopped: Callable[[], bool]) -> Gate | None:
        """Judge the new one by what the old one answers; None where `stopped` said so before the end. Takes minutes."""
        ...


class Shadows(Protocol):
    """Searches that are answered by both sides while a canary runs."""

    def watch(self, migration: Migration) -> None:
        """Have a share of the searches answered by both, from now on; it goes on counting where it does already."""
        ...

    def unwatch(self) -> None: ...

    @property
    def reads(self) -> int:
        """Searches that both have answered."""
        ...
