"""The runner as Ray starts it, without Ray: unpacked package on PYTHONPATH, `/bin/sh -c`, output to a driver log."""

import io
import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rayjobs.dispatch import RunnerSpec, entrypoint, runner_package
from tests.builders.waiting import wait_until

SUBMISSION = "run_1-a1"


class RunnerProcess:
    def __init__(self, folder: Path, command: str, environment: Mapping[str, str] | None = None, **fields: Any) -> None:
        spec = RunnerSpec(submission_id=SUBMISSION, run_id="run_1", attempt=1, command=command, **fields)
        self.home = unpacked_runner(folder)
        self.log = folder / "logs" / f"job-driver-{SUBMISSION}.log"
        self.files = self.log.parent / "muster" / SUBMISSION
        self.work = folder / "work"
        for one in (self.log.parent, self.work):
            one.mkdir(exist_ok=True)
        python = str(Path(sys.executable).parent)
        base = {"PATH": f"{python}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(self.home)}
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                ["/bin/sh", "-c", entrypoint(spec, runner_package())],
                cwd=self.work,
                env={**base, **(environment or {})},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def wait(self, timeout_s: float = 20) -> int:
        return self.process.wait(timeout_s)

    def output(self) -> str:
        return self.log.read_text()

    def events(self) -> list[dict[str, Any]]:
        file = self.files / "events.jsonl"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def event(self, kind: str) -> dict[str, Any]:
        (only,) = [event for event in self.events() if event["type"] == kind]
        return only

    def wait_for(self, kind: str) -> dict[str, Any]:
        wait_until(lambda: any(event["type"] == kind for event in self.events()), say=self.output)
        return self.event(kind)

    def guard(self) -> int:
        """The guard's pid: bash is its child."""
        bash = self.wait_for("task_started")["pid"]
        stat = Path(f"/proc/{bash}/stat").read_text()
        return int(stat.rpartition(")")[2].split()[1])

    def close(self) -> None:
        """Whatever the test found: leave nothing behind."""
        self.process.kill()
        self.process.wait()


def unpacked_runner(folder: Path) -> Path:
    package = runner_package()
    home = folder / package.name.removesuffix(".zip")
    with zipfile.ZipFile(io.BytesIO(package.data)) as archive:
        archive.extractall(home)
    return home
