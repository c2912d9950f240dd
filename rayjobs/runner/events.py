"""What happened to a task, one JSON object a line, in a file that Muster reads from the node's agent."""

from __future__ import annotations

import json
import os
import time


class EventLog:
    """Appends to a file and never fails: a full disk must not end a job."""

    def __init__(self, path: str, **common: object) -> None:
        self._common = common
        try:
            self.fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError:
            self.fd = -1

    def write(self, kind: str, **fields: object) -> None:
        line = json.dumps({"at": time.time(), "type": kind, **self._common, **fields}) + "\n"
        try:
            os.write(self.fd, line.encode())
        except OSError:
            return
