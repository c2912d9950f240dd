"""A named lease in the database: at most one holder at a time, taken over when it expires or its process is gone."""

import os
import socket
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path

from sqlalchemy import select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Mapped, mapped_column

from kernel.clock import Clock
from kernel.db import Base, Database


class LeaseRow(Base):
    __tablename__ = "leases"

    name: Mapped[str] = mapped_column(primary_key=True)
    holder: Mapped[str]
    expires_at: Mapped[datetime]


@dataclass(frozen=True, slots=True)
class Holder:
    """A process, so exactly that a later one with its id, or one with its id in another container, is told apart."""

    host: str
    """Where process ids mean the same: the host's name, its boot and the namespace of ids."""
    pid: int
    started: str
    """In ticks since the boot: no step of the clock changes them."""

    @classmethod
    def this_process(cls) -> "Holder":
        pid = os.getpid()
        return cls(_host(), pid, _started(pid))

    @classmethod
    def parse(cls, text: str) -> "Holder":
        host, pid, started = text.rsplit("/", 2)
        return cls(host, int(pid), started)

    def __str__(self) -> str:
        return f"{self.host}/{self.pid}/{self.started}"

    def is_gone(self) -> bool:
        """Known to be dead: only where it ran can this be told, and then nobody need wait for the lease to expire."""
        if self.host != _host():
            return False
        try:
            return _started(self.pid) != self.started
        except (FileNotFoundError, ProcessLookupError):
            return True


class Lease:
    def __init__(self, database: Database, clock: Clock, name: str, *, ttl_s: float) -> None:
        self._database = database
        self._clock = clock
        self._name = name
        self._ttl = timedelta(seconds=ttl_s)
        self._holder = Holder.this_process()

    async def hold(self) -> bool:
        """Take or renew it. False: someone else has it."""
        now = self._clock.now()
        try:
            async with self._database.write() as session:
                row = (await session.execute(select(LeaseRow).where(LeaseRow.name == self._name))).scalar_one_or_none()
                if row is None:
                    session.add(LeaseRow(name=self._name, holder=str(self._holder), expires_at=now + self._ttl))
                    return True
                free = row.holder == str(self._holder) or row.expires_at <= now or Holder.parse(row.holder).is_gone()
                if not free:
                    return False
                taken = await session.execute(
                    update(LeaseRow)
                    .where(
                        LeaseRow.name == self._name,
                        LeaseRow.holder == row.holder,
                        LeaseRow.expires_at == row.expires_at,
                    )
                    .values(holder=str(self._holder), expires_at=now + self._ttl)
                    .returning(LeaseRow.name)
                )
                return taken.scalar_one_or_none() is not None
        except IntegrityError:  # two processes inserted the first row at once; the other one was first
            return False

    async def release(self) -> None:
        async with self._database.write() as session:
            await session.execute(
                update(LeaseRow)
                .where(LeaseRow.name == self._name, LeaseRow.holder == str(self._holder))
                .values(expires_at=self._clock.now())
            )


@cache
def _host() -> str:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{socket.gethostname()}:{boot}:{Path('/proc/self/ns/pid').stat().st_ino}"


def _started(pid: int) -> str:
    """From proc_pid_stat(5), whose second field, a name in brackets, may hold anything: count from its end.

    Raises ProcessLookupError also for a zombie: it is dead, and may wait for its parent for ever.
    """
    state, *rest = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    if state in {"Z", "X"}:
        raise ProcessLookupError(pid)
    return rest[18]
