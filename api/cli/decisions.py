"""Decisions on where runs go, for people: which member and why, each member's reason, what waits for what."""

from collections.abc import Iterator, Sequence

from api.cli.output import state_column
from api.cli.session import Session
from api.cli.tables import Column, cell_text, column, lay_out, value_of
from api.client import Json

_CANDIDATE = (
    column("CLUSTER", "cluster"),
    column("ELIGIBLE", "eligible"),
    column("REASON", "reason"),
    column("TIER", "tier"),
    column("WINDOW", "window.state"),
    column("UNTIL", "window.until"),
    state_column("HEALTH", "health"),
    column("LOAD", "load"),
    column("ACCELERATOR", "accelerator"),
    column("FITS NOW", "fits_now"),
    column("RANK", "rank"),
    column("SCORE", "score", is_extra=True),
    column("MESSAGE", "message", is_free=True),
)
_FATE = (
    column("RUN", "run"),
    column("NOW", lambda record: _fate(record["before"])),
    column("THEN", lambda record: _fate(record["after"])),
)


def decision_lines(session: Session, decision: Json) -> Iterator[str]:
    told = [decision.get(name) for name in ("evaluated_at", "outcome", "chosen")]
    if decision.get("tier") is not None:
        told.append(session.say("decision_tier", tier=decision["tier"]))
    reason = decision.get("reason") or {}
    told += [reason.get("code"), reason.get("detail")]
    yield "  ".join(cell_text(part) for part in told if part)
    if decision.get("because"):
        yield cell_text(decision["because"])
    if decision.get("next_window_change_at"):
        yield session.say("decision_window", at=cell_text(decision["next_window_change_at"]))
    candidates = decision.get("candidates") or []
    if candidates:
        yield from _table(session, _CANDIDATE, candidates)


def fate_lines(session: Session, runs: Sequence[Json]) -> Iterator[str]:
    """What becomes of waiting runs, those that nothing changes for only with `-o wide`."""
    moved = [one for one in runs if one["before"] != one["after"]]
    starts = sum(one["after"]["outcome"] == "dispatched" for one in runs)
    yield session.say("waiting_runs", count=len(runs), starts=starts, moved=len(moved))
    shown = runs if session.output == "wide" else moved
    if shown:
        yield from lay_out(_FATE, shown, session.out.width)


def _table(session: Session, columns: Sequence[Column], records: Sequence[Json]) -> list[str]:
    """Without what says nothing of anybody."""
    is_wide = session.output == "wide"
    told = [one for one in columns if is_wide or (not one.is_extra and _says(one, records))]
    return lay_out(told, records, session.out.width)


def _says(one: Column, records: Sequence[Json]) -> bool:
    return any(cell_text(value_of(record, one)) != "-" for record in records)


def _fate(fate: Json) -> object:
    return fate.get("cluster") or fate.get("code") or fate["outcome"]
