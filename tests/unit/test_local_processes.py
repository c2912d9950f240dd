"""With real processes, but none of Ray's."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from cluster_groups.backends import local_processes as processes
from cluster_groups.backends.local_capacity import machine_capacity
from cluster_groups.backends.local_ports import free_port, is_free
from kernel.errors import Unavailable
from tests.builders.waiting import wait_until

LIKE_RAY = "import sys, time; print(*(f'line {n}' for n in range(30)), sep='\\n', flush=True); time.sleep(60)"
DETACHING = "import subprocess, sys; subprocess.Popen(['sleep', '60'], start_new_session=True)"


@pytest.fixture
def folder(tmp_path: Path) -> str:
    (tmp_path / "0").mkdir()
    return str(tmp_path / "0")


def environment(token_path: str) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], processes.TOKEN_PATH: token_path}


class TestNode:
    def test_is_found_by_its_folder_alone_until_it_ends(self, folder: str) -> None:
        argv = [sys.executable, "-c", LIKE_RAY, "--block", f"--temp-dir={folder}"]
        pid = processes.spawn(argv, environment("t"), folder)
        wait_until(lambda: psutil.Process(pid).cmdline() != [])  # until then any folder may be its own
        assert processes.find_node(folder) == pid
        assert not processes.is_node(pid, folder[:-1])
        assert not processes.is_node(os.getpid(), folder)
        assert os.getsid(pid) == pid
        assert psutil.Process(pid).cwd() == folder

        processes.signal_node(pid, f"{folder}0", 9)  # another's folder: not this process
        assert processes.is_node(pid, folder)
        processes.signal_node(pid, folder, 9)
        assert processes.exit_code(pid) == -9
        assert processes.find_node(folder) is None
        processes.forget(pid)
        assert not psutil.pid_exists(pid)

    def test_is_alive_before_it_has_a_command_line(self, folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """As seen on one core, about once in a thousand starts."""
        pid = processes.spawn([sys.executable, "-c", LIKE_RAY], environment("t"), folder)
        monkeypatch.setattr(psutil.Process, "cmdline", lambda _self: [])
        assert processes.is_node(pid, folder)
        os.kill(pid, 9)
        assert processes.exit_code(pid) == -9
        assert not processes.is_node(pid, folder)
        processes.forget(pid)

    def test_last_lines_are_the_last_and_without_colour(self, folder: str) -> None:
        text = "print(*(f'\\033[31mline\\033[0m {n}' for n in range(30)), sep='\\n')"
        pid = processes.spawn([sys.executable, "-c", text], environment("t"), folder)
        assert processes.exit_code(pid) == 0
        assert processes.last_lines(folder) == [f"line {n}" for n in range(10, 30)]
        assert processes.last_lines(folder + "-never") == []
        processes.forget(pid)


def test_what_detached_itself_is_ended_by_the_token_path_it_carries_and_nobody_else(tmp_path: Path) -> None:
    mine, other = str(tmp_path / "mine"), str(tmp_path / "other")
    for token_path in (mine, other):
        subprocess.run([sys.executable, "-c", DETACHING], env=environment(token_path), check=True)
    assert processes.kill_all_of(mine) == 1
    wait_until(lambda: processes.kill_all_of(mine) == 0)
    assert processes.kill_all_of(other) == 1


class TestPorts:
    def test_listened_on_is_not_free(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = int(server.getsockname()[1])
            assert not is_free(port)
            assert free_port(range(port, port + 50), taken={port + 1}) not in {port, port + 1}
            with pytest.raises(Unavailable, match="NO_FREE_PORT"):
                free_port(range(port, port + 1), taken=())
        assert is_free(port)


def test_this_machine_has_something_to_offer() -> None:
    capacity = machine_capacity()
    assert 1 <= capacity.cpu <= (os.cpu_count() or 1)
    assert 0 < capacity.memory_gib <= psutil.virtual_memory().total / 2**30 + 0.1
