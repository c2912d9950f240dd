"""A job's command whose children detach themselves in every way we know, and the count of those still alive."""

import os
import secrets
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_SLEEP = "exec sleep 300"
_CHILDREN = {
    "plain": "bash -c '{note} {sleep}' &",
    "own_session": "setsid bash -c '{note} {sleep}' &",
    "double_fork": "( bash -c '{note} {sleep}' & )",
    "daemon": "( setsid bash -c '{note} {sleep}' </dev/null >/dev/null 2>&1 & )",
    "nohup": "nohup bash -c '{note} {sleep}' >/dev/null 2>&1 &",
    "clean_environment": "env -i PATH=\"$PATH\" setsid bash -c '{note} {sleep}' &",
    "deaf": "setsid bash -c 'trap \"\" TERM INT HUP; {note} {sleep}' &",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Leak:
    """Children write their pids to `folder`; all but one also carry `mark`, so each count checks the other."""

    folder: Path
    mark: str
    children: Mapping[str, str]

    def command(self, then: str) -> str:
        lines = [f"export LEAK_MARK={self.mark}"]
        for name, start in self.children.items():
            note = f"echo $$ > {self.folder}/{name}.new; mv {self.folder}/{name}.new {self.folder}/{name}.pid;"
            lines.append(start.format(note=note, sleep=_SLEEP))
        return "\n".join([*lines, then])

    def all_started(self) -> bool:
        return len(list(self.folder.glob("*.pid"))) == len(self.children)

    def survivors(self) -> dict[int, str]:
        """What is alive, by pid: the child's name, or its command line when only the mark tells."""
        marked = {
            pid: _read(pid, "cmdline").replace(b"\0", b" ").decode() for pid in _pids() if self._carries_mark(pid)
        }
        noted = {int(file.read_text()): file.stem for file in self.folder.glob("*.pid")}
        return marked | {pid: name for pid, name in noted.items() if _sleeps(pid)}

    def end(self) -> None:
        for pid in self.survivors():
            os.kill(pid, signal.SIGKILL)

    def _carries_mark(self, pid: int) -> bool:
        return f"LEAK_MARK={self.mark}".encode() in _read(pid, "environ").split(b"\0")


def a_leak(folder: Path, without: str = "") -> Leak:
    folder.mkdir()
    children = {name: start for name, start in _CHILDREN.items() if name != without}
    return Leak(folder=folder, mark=secrets.token_hex(8), children=children)


def _sleeps(pid: int) -> bool:
    """Still one of ours, and no other process that got its number."""
    return _read(pid, "cmdline").startswith(b"sleep\x00300")


def _pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""
