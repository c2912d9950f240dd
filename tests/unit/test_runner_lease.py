"""The runner under a lease, against a server that a test commands: what it does when that refuses, is slow, or gone."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rayjobs.dispatch import EXIT_LEASE_LOST
from rayjobs.runner.clock import now_s
from rayjobs.runner.lease import Lease
from rayjobs.runner.spec import LeaseTerms
from tests.builders.leaky import Leak
from tests.builders.lease_server import REFUSED, LeaseServer, lease_server
from tests.builders.runner_process import RunnerProcess
from tests.builders.waiting import wait_until

Run = Callable[..., RunnerProcess]
NOT_MUSTER = [
    (404, "default backend"),
    (409, {"code": "SOMETHING_ELSE"}),
    (200, {"code": "LEASE_REFUSED"}),
    (200, [1]),
    (401, {"code": "UNAUTHENTICATED"}),
    (302, {"ttl_s": 9}),
]


@pytest.fixture
def server() -> Iterator[LeaseServer]:
    with lease_server() as server:
        yield server


@pytest.fixture
def run(tmp_path: Path, server: LeaseServer) -> Iterator[Run]:
    started: list[RunnerProcess] = []

    def start(command: str, **fields: Any) -> RunnerProcess:
        started.append(RunnerProcess(tmp_path, command, **{"lease": server.terms(), "stop_grace_s": 0.5, **fields}))
        return started[-1]

    yield start
    for one in started:
        one.close()


class TestBefore:
    def test_asks_first_and_then_runs(self, run: Run, server: LeaseServer) -> None:
        assert run("exit 3").wait() == 3
        (asked,) = server.asked
        assert asked["path"] == "/runner/v1/attempts/run_1-a1/lease"
        assert asked["claim"] == "claim"
        assert len(asked["secret"]) > 60

    def test_the_secret_reaches_neither_command_nor_command_line(self, run: Run, server: LeaseServer) -> None:
        runner = run("env; cat /proc/$PPID/cmdline /proc/$PPID/environ; cat $PAI_BOOTSTRAP_PATH")
        assert runner.wait() == 0
        secret = server.asked[0]["secret"].partition(" ")[2]
        assert secret not in runner.output()

    def test_nothing_starts_when_it_is_refused(self, run: Run, server: LeaseServer) -> None:
        server.answer = REFUSED
        runner = run("touch began")
        assert runner.wait() == EXIT_LEASE_LOST
        assert not (runner.work / "began").exists()
        assert runner.event("verdict") | {"at": 0} == {
            "at": 0, "type": "verdict", "end_class": "lost", "code": "LEASE_LOST", "exit_code": EXIT_LEASE_LOST,
            "group": None, "task": None, "params": {},
        }  # fmt: skip
        assert "nothing was started" in runner.output()

    def test_nothing_starts_when_nobody_answers(self, run: Run, server: LeaseServer) -> None:
        server.is_gone = True
        runner = run("touch began", lease=server.terms(take_within_s=0.1))
        assert runner.wait() == EXIT_LEASE_LOST
        assert not (runner.work / "began").exists()

    def test_nothing_starts_when_nobody_listens(self, run: Run) -> None:
        runner = run("touch began", lease=LeaseTerms("http://127.0.0.1:9/lease", "claim", 0.1))
        assert runner.wait() == EXIT_LEASE_LOST

    def test_waits_for_somebody_who_comes_back(self, run: Run, server: LeaseServer) -> None:
        server.is_gone = True
        runner = run("exit 3")
        wait_until(lambda: len(server.asked) >= 1)
        server.is_gone = False
        assert runner.wait() == 3
        assert len({asked["secret"] for asked in server.asked}) == 1  # else the second would be a stranger's

    def test_a_stop_meanwhile_ends_it(self, run: Run, server: LeaseServer) -> None:
        server.is_gone = True
        runner = run("touch began")
        wait_until(lambda: len(server.asked) >= 1)
        runner.process.terminate()
        assert runner.wait() == -signal.SIGTERM

    def test_no_proxy_is_asked(self, run: Run) -> None:
        proxies = dict.fromkeys(["http_proxy", "HTTP_PROXY", "all_proxy", "https_proxy"], "http://127.0.0.1:9")
        assert run("exit 3", environment=proxies).wait() == 3

    @pytest.mark.parametrize("answer", NOT_MUSTER, ids=str)
    def test_only_musters_own_words_count(self, server: LeaseServer, answer: tuple[int, Any]) -> None:
        server.answer = answer
        assert not Lease(server.terms(take_within_s=0)).take()

    def test_counts_from_the_moment_of_asking(self, server: LeaseServer) -> None:
        server.delay_s = 0.5
        lease, asked_at = Lease(server.terms()), now_s()
        assert lease.take()
        assert 0 <= lease.until - server.ttl_s - asked_at < 0.4


class TestWhileItRuns:
    def test_is_renewed(self, run: Run, server: LeaseServer) -> None:
        server.ttl_s = 1
        assert run("sleep 2.5; exit 3").wait() == 3
        assert len(server.asked) > 4

    def test_ends_everybody_when_it_is_not(self, run: Run, server: LeaseServer, leak: Leak) -> None:
        runner = run(leak.command("sleep 300"))
        wait_until(leak.all_started)
        server.is_gone = True
        gone_at = now_s()
        assert runner.wait() == EXIT_LEASE_LOST
        assert now_s() - gone_at < server.ttl_s + 0.5 + 1.5
        assert leak.survivors() == {}
        assert runner.event("verdict")["reason"] == "LEASE_EXPIRED"

    def test_ends_everybody_as_soon_as_it_is_refused(self, run: Run, server: LeaseServer, leak: Leak) -> None:
        server.ttl_s = 4
        runner = run(leak.command("sleep 300"))
        wait_until(leak.all_started)
        server.ttl_s, server.answer = 600, REFUSED
        refused_at = now_s()
        assert runner.wait() == EXIT_LEASE_LOST
        assert now_s() - refused_at < 3
        assert leak.survivors() == {}

    def test_goes_on_when_an_outage_is_short(self, run: Run, server: LeaseServer) -> None:
        runner = run("until [ -e go ]; do sleep 0.05; done; exit 3")
        runner.wait_for("task_started")
        server.is_gone = True
        asked = len(server.asked)
        wait_until(lambda: len(server.asked) > asked)
        server.is_gone = False
        ends_without_at = now_s() + server.ttl_s
        wait_until(lambda: now_s() > ends_without_at)
        (runner.work / "go").touch()
        assert runner.wait() == 3

    def test_a_slow_answer_harms_nobody(self, run: Run, server: LeaseServer) -> None:
        server.delay_s = server.ttl_s / 4
        assert run(f"sleep {2 * server.ttl_s}; exit 3").wait() == 3

    def test_a_frozen_runner_changes_nothing(self, run: Run, server: LeaseServer, leak: Leak) -> None:
        runner = run(leak.command("sleep 300"))
        wait_until(leak.all_started)
        guard = runner.guard()
        runner.process.send_signal(signal.SIGSTOP)
        wait_until(lambda: not Path(f"/proc/{guard}").exists(), server.ttl_s + 3)
        assert leak.survivors() == {}
        runner.process.send_signal(signal.SIGCONT)
        assert runner.wait() == EXIT_LEASE_LOST

    def test_a_machine_that_thaws_runs_nothing_more(self, run: Run, server: LeaseServer, tmp_path: Path) -> None:
        """Not even what it does when it is told to stop: another attempt may be under way."""
        count = tmp_path / "count"
        count.touch()
        runner = run(f"trap 'echo term >> {count}' TERM; touch up; sleep 300 & wait", stop_grace_s=1)
        wait_until((runner.work / "up").exists)
        guard, bash = runner.guard(), runner.event("task_started")["pid"]
        frozen_at = now_s()
        for pid in (runner.process.pid, guard, bash):
            os.kill(pid, signal.SIGSTOP)
        server.ttl_s = 600
        wait_until(lambda: now_s() > frozen_at + 2 + 1)  # the last lease and the grace after it
        for pid in (bash, guard, runner.process.pid):
            os.kill(pid, signal.SIGCONT)
        assert runner.wait() == EXIT_LEASE_LOST
        assert count.read_text() == ""


def test_without_a_lease_nobody_is_asked(run: Run, server: LeaseServer) -> None:
    assert run("exit 3", lease=None).wait() == 3
    assert server.asked == []
