"""What only a real process can show: what is loaded at start, memory, a terminal, a reader that has enough."""

import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.cli_stand_in import Cli, Reply, StandIn, a_stand_in

CALL_MAIN = "from api.cli.main import main; main()"
SERVER_SIDE = {"sqlalchemy", "fastapi", "starlette", "ray", "uvicorn", "boto3", "pydantic", "kubernetes"}
MIB = 2**20


@pytest.fixture
def server() -> Iterator[StandIn]:
    with a_stand_in() as server:
        yield server


@pytest.fixture
def cli(server: StandIn, tmp_path: Path) -> Cli:
    return Cli(server, tmp_path)


def loaded_by(code: str) -> set[str]:
    names = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys; print(*sys.modules)"], capture_output=True, text=True, check=True
    ).stdout.split()
    return {name.split(".")[0] for name in names}


class TestStart:
    def test_help_needs_nothing_but_click(self) -> None:
        loaded = loaded_by("import api.cli.main\ntry: api.cli.main.main(['--help'])\nexcept SystemExit: pass")
        assert "click" in loaded
        assert not loaded & (SERVER_SIDE | {"httpx", "yaml", "platformdirs"})

    def test_no_command_loads_the_server_s_side(self) -> None:
        every_noun = "from importlib import import_module\nfrom pathlib import Path\nimport api.cli\n"
        every_noun += "for file in Path(api.cli.__path__[0]).glob('*.py'): import_module(f'api.cli.{file.stem}')"
        assert not loaded_by(every_noun) & SERVER_SIDE


class TestServe:
    @pytest.mark.parametrize(
        ("option", "exit_code", "code"), [("--port", 5, "CANNOT_LISTEN"), ("--config", 2, "INVALID_SETTING")]
    )
    def test_what_hinders_a_start_is_one_line(self, cli: Cli, option: str, exit_code: int, code: str) -> None:
        taken = {"--port": cli.server.address.rpartition(":")[2], "--config": str(cli.home / "none.toml")}
        command = [sys.executable, "-c", CALL_MAIN, "serve", "--state-dir", str(cli.home / "s"), option, taken[option]]
        done = subprocess.run(command, env=_environment(cli), capture_output=True, text=True, check=False)
        assert done.returncode == exit_code
        assert done.stderr.startswith(f"error: {code}: ")
        assert "Traceback" not in done.stderr


class TestUpload:
    def test_the_file_is_never_in_memory(self, server: StandIn, cli: Cli, tmp_path: Path) -> None:
        server.on("POST", "/packages", {"id": "pkg_1", "warnings": []})
        server.on("POST", "/uploads", {"id": "upl_1", "package": None, "offset_bytes": 0, "size_bytes": 256 * MIB})
        server.on("PATCH", "/uploads/upl_1", Reply(status=204))
        server.on("GET", "/uploads/upl_1", {"id": "upl_1", "package": "pkg_1", "offset_bytes": 256 * MIB})
        for nothing in ("/packages", "/uploads"):
            server.on("GET", nothing, {"items": [], "next_cursor": None})
        server.on("GET", "/packages/pkg_1", {"id": "pkg_1", "warnings": []})
        code = "import atexit, resource, sys\n"
        code += "atexit.register(lambda: print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr))\n"
        peaks_kib = []
        for size in (1 * MIB, 256 * MIB):
            file = tmp_path / "a.zip"
            with file.open("wb") as out:
                out.truncate(size)
            done = subprocess.run(
                [sys.executable, "-c", code + CALL_MAIN, "package", "upload", str(file)],
                env=_environment(cli),
                capture_output=True,
                text=True,
                check=True,
            )
            assert max(request.size_bytes for request in server.requests) >= size
            peaks_kib.append(int(done.stderr))
        assert peaks_kib[1] - peaks_kib[0] < 16 * 1024

    def test_progress_is_for_terminals(self, server: StandIn, cli: Cli, tmp_path: Path) -> None:
        server.on("POST", "/packages", {"id": "pkg_1", "warnings": []})
        (tmp_path / "a.zip").write_bytes(bytes(MIB))
        main_end, program_end = pty.openpty()
        command = [sys.executable, "-c", CALL_MAIN, "package", "upload", str(tmp_path / "a.zip"), "-o", "name"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=program_end, env=_environment(cli)) as process:
            os.close(program_end)
            assert process.stdout
            assert process.stdout.read() == b"pkg_1\n"
        told = os.read(main_end, 2**16).decode()
        os.close(main_end)
        assert "uploading a.zip" in told
        assert "100%" in told
        assert cli("package", "upload", str(tmp_path / "a.zip")).stderr == ""


class TestPipe:
    def test_a_reader_that_has_enough_is_no_failed_run(self, server: StandIn, cli: Cli) -> None:
        text = "x" * 100 + "\n"
        page = {"offset": 0, "next_offset": 10**6, "data": text * 10**4, "complete": True}
        server.on("GET", "/runs/run_1/logs", Reply(body=page))
        command = [sys.executable, "-c", CALL_MAIN, "run", "logs", "run_1"]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=_environment(cli)
        ) as process:
            assert process.stdout
            assert process.stderr
            assert process.stdout.readline() == text.encode()
            process.stdout.close()
            assert process.stderr.read() == b""
        assert process.returncode == 141

    @pytest.mark.parametrize("call", [["--help"], ["run", "logs", "run_1"], ["run", "list", "-o", "json"]])
    def test_a_full_disk_is_told_in_one_line(self, server: StandIn, cli: Cli, call: list[str]) -> None:
        page = {"offset": 0, "next_offset": 10**6, "data": "x" * 10**6, "complete": True}
        server.on("GET", "/runs/run_1/logs", Reply(body=page))
        server.on("GET", "/runs", {"items": [], "next_cursor": None})
        command = [sys.executable, "-c", CALL_MAIN, *call]
        with Path("/dev/full").open("wb") as full:
            done = subprocess.run(
                command, stdout=full, stderr=subprocess.PIPE, env=_environment(cli), text=True, check=False
            )
            assert (done.returncode, done.stderr) == (2, "error: OUTPUT: No space left on device\n")
            assert subprocess.run(command, stdout=full, stderr=full, env=_environment(cli), check=False).returncode == 2


def _environment(cli: Cli) -> dict[str, str]:
    return {name: value for name, value in cli.env.items() if value is not None}
