"""Runs: executions of jobs, their logs and their reasons."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from api.client import Json
from api.client.resource import Resource
from api.client.sse import ServerEvent, read_events

PAGE_BYTES = 2**20


@dataclass(frozen=True, kw_only=True, slots=True)
class LogOf:
    """Whose log it is: of a task, by the name of its group and its index there; of the driver without them."""

    task_group: str | None = None
    task: int | None = None


DRIVER = LogOf()


class Runs(Resource):
    path = "/runs"

    def set_priority(self, run_id: str, priority: int) -> Json:
        return self.edit(run_id, {"priority": priority})

    def stop(self, run_id: str) -> Json:
        return self._http.post(self.at(run_id, "/stop"))

    def tasks(self, run_id: str, **query: Any) -> Json:
        return self._http.get(self.at(run_id, "/tasks"), **query)

    def events(self, run_id: str, **query: Any) -> Json:
        return self._http.get(self.at(run_id, "/events"), **query)

    def decisions(self, run_id: str, **query: Any) -> Json:
        return self._http.get(self.at(run_id, "/decisions"), **query)

    def log(
        self,
        run_id: str,
        *,
        of: LogOf = DRIVER,
        attempt: int | None = None,
        offset: int = 0,
        limit_bytes: int = PAGE_BYTES,
    ) -> Json:
        where = {"attempt": attempt, "offset": offset, "limit_bytes": limit_bytes}
        return self._http.get(self.at(run_id, "/logs"), **asdict(of), **where)

    @contextmanager
    def log_stream(
        self,
        run_id: str,
        *,
        of: LogOf = DRIVER,
        attempt: int | None = None,
        offset: int = 0,
        silence_s: float = 30,
    ) -> Iterator[Iterator[ServerEvent | None]]:
        """The log from `offset` on as it grows. May break at any byte: what was read so far is right."""
        with self._http.stream(
            self.at(run_id, "/logs/stream"),
            params={"attempt": attempt, "offset": offset, **asdict(of)},
            headers={"Accept": "text/event-stream"},
            silence_s=silence_s,
        ) as chunks:
            yield read_events(chunks)
