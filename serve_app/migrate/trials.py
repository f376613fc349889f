"""Rerankers and compressors as migrations: the new one is opened beside the one in force, tried, and kept or let go.

Owns nothing that is stored: what a trial is lies in its record, who is served by which in the plan. Promises that one
that cannot be opened is refused before anybody is served by it, and that options hold no secret: keys are named by the
environment variables or files that hold them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from msgspec.structs import replace

from serve_app.context.tokens import open_tokenizer
from serve_app.core import SECOND_US, Turn
from serve_app.errors import InvalidRequest, MemstrataError, Overloaded, RankerUnusable, RerankerUnavailable
from serve_app.memory.compressors import Compressors
from serve_app.memory.configurations import name_of, set_in
from serve_app.memory.rerankers import Rerankers
from serve_app.memory.reranking import RerankOptions, second_stage
from serve_app.migrate.in_force import SETTLED, Options, in_force, named, read_as, trial_of
from serve_app.migrate.record import Kind, Migration, Migrations
from serve_app.models.hub import local_path
from serve_app.models.rerank import PairReranker
from serve_app.models.summarise import CompressOptions
from serve_app.routing import Choice, Epoch, VersionPlan

OPEN_S = 180.0
"""How long a model may take to load and to give its first answer."""

PATHS = ("/", "./", "../", "~")
"""How a model begins that is named by where it lies."""

_log = logging.getLogger(__name__)


class RerankerTrials:
    """See `switching.Switch`. Every method may be called again after a kill."""

    def __init__(self, rerankers: Rerankers) -> None:
        self._rerankers = rerankers

    def begin(self, options: Mapping[str, Any], replaces: str = "") -> dict[str, Any]:
        """What is known at once. Raises InvalidRequest for what is no reranker, or the one in force."""
        chosen = read_as(RerankOptions, options)
        _refuse_missing(chosen.model)
        with _refusing_rankers():
            second_stage(chosen, (), None, None, 0.0)
        return _asked_for(name_of(chosen), self._rerankers.base, replaces)

    def open(self, migration: Migration) -> dict[str, Any]:
        """Gives what the record keeps of both. Takes as long as a model loads.

        Raises InvalidRequest, RerankerUnavailable: nothing is open then.
        """
        rerankers, base = self._rerankers, self._rerankers.base
        with _refusing_rankers():
            name = rerankers.add(read_as(RerankOptions, migration.options))
        if (model := rerankers.model_of(name)) is not None:
            try:
                _answered(model, time.monotonic() + OPEN_S)
            except Exception as error:
                rerankers.remove(name)
                why = str(error) or type(error).__name__
                raise RerankerUnavailable(f"the new reranker gives no scores: {why}") from error
        both = {"was_names": rerankers.names_of(base), "names": rerankers.names_of(name)}
        return {"was": set_in(rerankers.options_of(base)), **both}

    def hold(self, migration: Migration) -> dict[str, Any]:
        self._rerankers.add(read_as(RerankOptions, migration.options))
        return {}

    def epoch(self, now: Epoch, migration: Migration) -> Epoch:
        return replace(now, reranker=choice(migration)) if migration.names else now

    def retire(self, migration: Migration) -> bool:
        """The new one is in force, and the old one is closed."""
        _settle(self._rerankers, migration, migration.options)
        return True

    def withdraw(self, migration: Migration) -> None:
        _settle(self._rerankers, migration, migration.was)


class CompressorTrials:
    """See `switching.Switch`. Every method may be called again after a kill."""

    def __init__(self, compressors: Compressors) -> None:
        self._compressors = compressors

    def begin(self, options: Mapping[str, Any], replaces: str = "") -> dict[str, Any]:
        """What is known at once. Raises InvalidRequest for what is no compressor, or the one in force."""
        chosen = read_as(CompressOptions, options)
        refuse_secrets(chosen)
        for one in (chosen.coarse, chosen.fine):
            _refuse_missing(one.model if one.backend == "transformers" else "")
        return _asked_for(name_of(chosen), self._compressors.base, replaces)

    def open(self, migration: Migration) -> dict[str, Any]:
        """Gives what the record keeps of both. Takes as long as a model loads. Raises InvalidRequest: nothing is open
        then.
        """
        compressors, base = self._compressors, self._compressors.base
        options = read_as(CompressOptions, migration.options)
        refuse_secrets(options)
        name = compressors.add(options)
        made = compressors.named(name).compressor.compress(TRIED, TRIED_TOKENS, open_tokenizer(), OPEN_S)
        if made.reasons:
            compressors.remove(name)
            raise InvalidRequest(f"options: the new compressor does not answer: {', '.join(made.reasons)}")
        both = {"was_names": (compressors.version_of(base),), "names": (compressors.version_of(name),)}
        return {"was": set_in(compressors.options_of(base)), **both}

    def hold(self, migration: Migration) -> dict[str, Any]:
        self._compressors.add(read_as(CompressOptions, migration.options))
        return {}

    def epoch(self, now: Epoch, migration: Migration) -> Epoch:
        return replace(now, compressor=choice(migration)) if migration.names else now

    def retire(self, migration: Migration) -> bool:
        """The new one is in force, and the old one is closed."""
        _settle(self._compressors, migration, migration.options)
        return True

    def withdraw(self, migration: Migration) -> None:
        _settle(self._compressors, migration, migration.was)


def _answered(model: PairReranker, deadline: float) -> None:
    """Wait for its first scores. While a model loads it sends away whoever asks. Raises what it raises."""
    while True:
        try:
            model.ask("warm up", ["warm up"], deadline).result(max(0.0, deadline - time.monotonic()))
            return
        except Overloaded:
            if time.monotonic() >= deadline:
                raise
            time.sleep(LOADS_S)


def choice(migration: Migration) -> Choice:
    """Who is served by which in the state that the migration is in, once `open` has said what was in force. Pure."""
    old, new = named(migration.kind, migration.was), named(migration.kind, migration.options)
    if migration.state in ("cutover", "soak", *SETTLED):
        return Choice(new, migration=migration.id)
    if migration.state in ("rolling_back", "rolled_back"):
        return Choice(old, migration=migration.id)
    share = migration.terms.canary_share if migration.state == "canary" else 0.0
    return Choice(old, new, share, migration.id)


def _asked_for(wanted: str, base: str, replaces: str) -> dict[str, Any]:
    if replaces:
        raise InvalidRequest("replaces: is for encoders; there is one reranker and one compressor")
    if wanted == base:
        raise InvalidRequest("options: this is in force already")
    return {}


def _refuse_missing(model: str) -> None:
    """Raises InvalidRequest for a path where nothing lies; what is none is a model of the hub, or of a package."""
    if model.startswith(PATHS) and local_path(model) is None:
        raise InvalidRequest(f"options: model: there is no {model}")


@contextmanager
def _refusing_rankers() -> Iterator[None]:
    """A file that is no ranker will never be one."""
    try:
        yield
    except RankerUnusable as error:
        raise InvalidRequest(f"options: {error}") from error


def _settle(held: Rerankers | Compressors, migration: Migration, chosen: dict[str, Any]) -> None:
    """Nobody is served by the other one any more."""
    if migration.names:
        held.settle(named(migration.kind, chosen))
        held.remove(named(migration.kind, migration.was))
    held.remove(named(migration.kind, migration.options))


LOADS_S = 0.2
"""A model that loads is asked again after so long."""

TRIED_TOKENS = 120

TRIED = tuple(
    Turn(f"trial-{number}", "trial", "user", text, number, at, at, rev=number)
    for number, text in enumerate(
        (
            "We are planning a dinner for eight people on Friday evening, and the kitchen is small.",
            "One guest is allergic to peanuts, so nothing with peanuts may be served.",
            "The budget is 120 euros, and the shops close at eight.",
        ),
        1,
    )
    for at in (1_760_000_000 * SECOND_US + number,)
)
"""What a new compressor is asked first: whether it answers at all."""


def refuse_secrets(options: CompressOptions) -> None:
    """Raises InvalidRequest for an address with a password in it: options are kept, and shown."""
    for one in (options.coarse, options.fine):
        parts = urlsplit(one.url)
        if parts.username is not None or parts.password is not None or parts.query:
            raise InvalidRequest("options: url: a key is named by key_env or key_file, and stands in no address")


def adopted(kind: Kind, section: Options, migrations: Migrations) -> Options:
    """What is in force at a start. A section of the settings that does not say so is warned about."""
    options, warning = in_force(kind, section, migrations)
    if warning:
        _log.warning("%s", warning)
    return options


def resumed(rerankers: Rerankers, compressors: Compressors, migrations: Migrations) -> None:
    """Open at a start what a migration tries beside what is in force, and learn what summaries of old are marked with.

    One that does not open serves nobody, and takes nobody else along: Control tries it again, and says so.
    """
    for one in migrations.migrations:
        if one.kind == "compressor" and one.names:
            compressors.learn(named("compressor", one.options), one.names[0])
            compressors.learn(named("compressor", one.was), one.was_names[0])
    for kind in ("reranker", "compressor"):
        if (trial := trial_of(kind, migrations)) is None:
            continue
        switch = RerankerTrials(rerankers) if kind == "reranker" else CompressorTrials(compressors)
        try:
            switch.hold(trial)
        except MemstrataError as error:
            _log.warning("the %s of migration %s cannot be opened: %s", kind, trial.id, error)


def settled_plan(
    plan: VersionPlan, rerankers: Rerankers, compressors: Compressors, since: tuple[int, ...] = (), at: int = 0
) -> VersionPlan:
    """The plan, but that what serves is open: where the settings have put another one in force since, or one does not
    open, the one in force serves from here on.

    Nothing is changed where no migration has ever noted what was in force. `since` and `at` are of the start.
    """
    now = plan.now
    reranker, compressor = _safe(now.reranker, rerankers), _safe(now.compressor, compressors)
    if (reranker, compressor) == (now.reranker, now.compressor):
        return plan
    since, at = since or now.since, max(at, now.at)
    return plan.followed_by(replace(now, reranker=reranker, compressor=compressor, since=since, at=at))


def _safe(chosen: Choice, held: Rerankers | Compressors) -> Choice:
    if chosen.base and not held.holds(chosen.base):
        chosen = replace(chosen, base=held.base)
    return replace(chosen, target="", share=0.0) if chosen.target and not held.holds(chosen.target) else chosen
