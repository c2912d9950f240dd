"""Requests as fast as a server answers them: threads with a kept connection each, and nothing between them and http."""

import json
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    address: str
    path: str
    headers: Mapping[str, str]


@dataclass(frozen=True, kw_only=True, slots=True)
class Answers:
    took_s: float
    statuses: Counter[int]
    bodies: Sequence[Any]

    @property
    def per_second(self) -> float:
        return sum(self.statuses.values()) / self.took_s


def post_all(target: Target, bodies: Sequence[Mapping[str, Any]], *, connections: int) -> Answers:
    """Each body once; every connection waits for an answer before it sends the next."""
    waiting, lock = iter(bodies), threading.Lock()
    statuses: Counter[int] = Counter()
    answers: list[Any] = []
    threads = [
        threading.Thread(target=_post_some, args=(target, _shared(waiting, lock), statuses, answers))
        for _ in range(connections)
    ]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return Answers(took_s=time.perf_counter() - start, statuses=statuses, bodies=answers)


def _shared(waiting: Iterator[Mapping[str, Any]], lock: threading.Lock) -> Iterator[Mapping[str, Any]]:
    while True:
        with lock:
            body = next(waiting, None)
        if body is None:
            return
        yield body


def _post_some(target: Target, bodies: Iterator[Mapping[str, Any]], statuses: Counter[int], answers: list[Any]) -> None:
    where = urlsplit(target.address)
    connection = HTTPConnection(str(where.hostname), where.port, timeout=120)
    headers = {"Content-Type": "application/json", **target.headers}
    for body in bodies:
        connection.request("POST", target.path, json.dumps(body), headers)
        answer = connection.getresponse()
        answers.append(json.loads(answer.read()))
        statuses[answer.status] += 1
    connection.close()
