"""`make demo`: the sample once in each run mode, on real Ray clusters on this machine, by the command line alone.

Whatever happens, nothing it started is left: clusters are deleted through the service, then the service is stopped,
and what a lost service left behind is ended by the cluster's mark.
"""

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from cluster_groups.backends.local_processes import kill_all_of

MUSTER = Path(sys.executable).with_name("muster")
SAMPLE = Path(__file__).with_name("sample")
ENTRYPOINT = "python main.py --config config.yaml"
HEAD = "cpu=1,memory_gib=2"
WORKERS = "name=w,cpu=1,memory_gib=2,min_instances=2,max_instances=2"
POOL = ("--resource-package", "default", "--resource-group", "default")
START_TIMEOUT_S = 60
GONE_TIMEOUT_S = 60
RUN_TIMEOUT_S = 180
BAR_CELLS = 40
LINE_CELLS = 110

Json = dict[str, Any]


class DemoFailed(Exception):
    """What a person would be told."""


def main() -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    started = time.monotonic()
    say("Muster: one job in three run modes, on real Ray clusters on this machine.")
    try:
        with ExitStack() as ending:
            succeeded = list(show(start_service(ending), ending))
    except (DemoFailed, KeyboardInterrupt) as error:
        say(f"\n{red('The demo failed:')} {str(error) or 'interrupted'}")
        return 1
    say(f"\n{sum(succeeded)} of {len(succeeded)} runs succeeded, in {time.monotonic() - started:.0f} s.")
    say("Nothing of it is left on this machine.")
    return 0 if all(succeeded) else 1


def show(muster: "CommandLine", ending: ExitStack) -> Iterator[bool]:
    heading("The package")
    package = muster("package", "upload", os.path.relpath(SAMPLE), "-o", "name").strip()
    say(f"  {package}")
    heading("1  Run mode cluster: on a cluster you name")
    ending.callback(muster.delete_clusters)
    muster("cluster", "create", "demo", "--head", HEAD, "--worker", WORKERS)
    muster("cluster", "start", "demo")
    yield run_job(muster, "sample-cluster", package, "--cluster", "demo")
    heading("2  Run mode cluster_group: on the member that the group's policy picks")
    muster("cluster", "create", "spare", "--head", HEAD, "--worker", WORKERS)
    muster("group", "create", "demo-group", "--member", "spare", "--member", "demo", "--preset", "failover")
    yield run_job(muster, "sample-group", package, "--cluster-group", "demo-group")
    heading("3  Run mode on_demand: on a cluster made for the run, and deleted with it")
    muster("cluster", "stop", "demo")
    yield run_job(
        muster, "sample-on-demand", package, "--mode", "on_demand", "--head", HEAD, "--worker", WORKERS, *POOL
    )
    heading("The end")


def run_job(muster: "CommandLine", job: str, package: str, *target: str) -> bool:
    """One run from definition to log; whether it succeeded."""
    muster("job", "create", job, *target, "--package", package, "--entrypoint", ENTRYPOINT)
    run_id = muster("run", "submit", job).strip()
    say(f"  {run_id}")
    muster.watch("run", "wait", run_id, "--timeout", str(RUN_TIMEOUT_S))
    wait_until(lambda: is_released(muster.look("run", "show", run_id)), GONE_TIMEOUT_S, f"{run_id} was not released")
    prompt("muster", "run", "show", run_id)
    run = muster.look("run", "show", run_id)
    tell_timeline(run)
    prompt("muster", "run", "why", run_id)
    tell_decisions(run, muster.look("run", "why", run_id)["decisions"])
    for line in muster("run", "logs", run_id, "--tail", "3").splitlines():
        say(f"  {line}")
    succeeded: bool = run["state"] == "SUCCEEDED"
    if not succeeded:
        end = run["end"]
        say(red(f"  {run['state']}  {end['class']}/{end['code']}: {end['detail']} {end['advice'] or ''}"))
    return succeeded


def is_released(run: Json) -> bool:
    """Its log is whole and, on demand, its cluster gone."""
    return all(attempt["state"] == "ENDED" for attempt in run["attempts"])


def tell_timeline(run: Json) -> None:
    phases = [phase for phase in run["phases"] if phase["started_at"] and phase["ended_at"]]
    total_s = seconds_between(run["created_at"], phases[-1]["ended_at"])
    for title, phase in zip(["timeline", *[""] * len(phases)], phases, strict=False):
        start_s = seconds_between(run["created_at"], phase["started_at"])
        length_s = seconds_between(phase["started_at"], phase["ended_at"])
        before, length = (round(BAR_CELLS * span_s / (total_s or 1)) for span_s in (start_s, length_s))
        bar = " " * before + "▇" * max(1, length)
        say(f"  {bold(f'{title:<9}')} {start_s:>5.1f} s  {phase['name']:<12} {length_s:>5.1f} s  {bar}")


def tell_decisions(run: Json, decisions: Sequence[Json]) -> None:
    say(f"  {bold('where')}             {run['cluster']}")
    for title, decision in zip(["why", *[""] * len(decisions)], decisions, strict=False):
        reason = decision.get("because") or (decision["reason"] or {}).get("code") or decision["chosen"]
        after_s = seconds_between(run["created_at"], decision["evaluated_at"])
        say(f"  {bold(f'{title:<9}')} {after_s:>5.1f} s  {decision['outcome']}: {reason}")


@dataclass(frozen=True, kw_only=True, slots=True)
class CommandLine:
    """Runs `muster` as a user would, and prints what it runs."""

    environment: Mapping[str, str] = field(repr=False)

    def __call__(self, *arguments: str) -> str:
        prompt("muster", *arguments)
        return self._run(*arguments)

    def look(self, *arguments: str) -> Json:
        """The API's own body, without a word about it."""
        return dict(json.loads(self._run(*arguments, "-o", "json")))

    def watch(self, *arguments: str) -> None:
        """Shows what the command tells while it goes on; how the run ended is told by its record."""
        prompt("muster", *arguments)
        with subprocess.Popen(
            [MUSTER, *arguments], env=self.environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        ) as process:
            for line in process.stderr or ():
                say(dim(f"  {line.rstrip()}"))

    def delete_clusters(self) -> None:
        """All of them, an on-demand run's too, and wait until they are gone."""
        for run in self.look("run", "list")["items"]:
            if not run["ended_at"]:
                self._run("run", "stop", run["id"])
        for cluster in self._clusters():
            if not cluster["on_demand_run"]:
                self("cluster", "delete", cluster["name"], "--force")
        wait_until(lambda: not self._clusters(), GONE_TIMEOUT_S, "the clusters are still there")

    def _clusters(self) -> list[Json]:
        return list(self.look("cluster", "list")["items"])

    def _run(self, *arguments: str) -> str:
        done = subprocess.run([MUSTER, *arguments], env=self.environment, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise DemoFailed(f"muster {shlex.join(arguments)}\n{done.stderr.strip()}")
        return done.stdout


def start_service(ending: ExitStack) -> CommandLine:
    """On an empty state folder and a free port; ended with the stack, and everything of it gone."""
    state_dir = Path(ending.enter_context(TemporaryDirectory(prefix="muster-demo-")))
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TMPDIR") if name in os.environ}
    service = {**kept, "MUSTER_STATE_DIR": str(state_dir), "MUSTER_PORT": "0"}
    heading("The service")
    prompt("muster", "serve", "&")
    output = state_dir / "serve.log"
    with output.open("wb") as log:
        process = subprocess.Popen([MUSTER, "serve"], env=service, stdout=log, stderr=log, start_new_session=True)
    ending.callback(stop_service, process, state_dir)
    wait_until(lambda: " on http://" in output.read_text() or process.poll() is not None, START_TIMEOUT_S, "no start")
    first_line = output.read_text().partition("\n")[0]
    if process.poll() is not None:
        raise DemoFailed("the service did not start")
    say(f"  {first_line}")
    return CommandLine(environment={**service, "MUSTER_ADDRESS": first_line.rpartition(" ")[2]})


def stop_service(process: subprocess.Popen[bytes], state_dir: Path) -> None:
    if process.poll() is not None:
        say(red(f"The service ended by itself ({process.returncode}). The end of its log:"))
        say("\n".join((state_dir / "serve.log").read_text().splitlines()[-10:]))
    process.terminate()
    try:
        process.wait(timeout=30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for record in state_dir.glob("local/*.json"):
        end_leftovers(Path(json.loads(record.read_text())["folder"]))


def end_leftovers(folder: Path) -> None:
    """Of a cluster whose service was lost: what carries its token goes."""
    wait_until(lambda: not kill_all_of(f"{folder}/token"), GONE_TIMEOUT_S, "processes are left")
    shutil.rmtree(folder, ignore_errors=True)


def wait_until(true: Callable[[], bool], timeout_s: float, failure: str) -> None:
    deadline = time.monotonic() + timeout_s
    while not true():
        if time.monotonic() > deadline:
            raise DemoFailed(f"{failure} after {timeout_s:.0f} s")
        time.sleep(0.1)


def seconds_between(start: str, end: str) -> float:
    return (datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds()


def say(text: str = "") -> None:
    print(text, flush=True)


def heading(text: str) -> None:
    say(f"\n{bold(text)}")


def prompt(*command: str) -> None:
    """As a person would type it, a long one on several lines."""
    words = [word if word == "&" else shlex.quote(word) for word in command]
    text = " ".join(words)
    if len(text) > LINE_CELLS:
        text = " ".join(f"\\\n    {word}" if word.startswith("--") else word for word in words)
    say(f"{dim('$')} {text}")


def bold(text: str) -> str:
    return styled("1", text)


def dim(text: str) -> str:
    return styled("2", text)


def red(text: str) -> str:
    return styled("31", text)


def styled(code: str, text: str) -> str:
    return f"\x1b[{code}m{text}\x1b[0m" if sys.stdout.isatty() and "NO_COLOR" not in os.environ else text


if __name__ == "__main__":
    sys.exit(main())
