"""A named lease in the database: at most one holder at a time, taken over when it expires or its process is gone."""

import os
import socket
from dataclasses import dataclass
from datetime import datetime, timedelta

import psutil
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
    """A process, so exactly that a later process with its id on the same host is told apart."""

    host: str
    pid: int
    started: float

    @classmethod
    def this_process(cls) -> "Holder":
        pid = os.getpid()
        return cls(socket.gethostname(), pid, psutil.Process(pid).create_time())

    @classmethod
    def parse(cls, text: str) -> "Holder":
        host, pid, started = text.rsplit("/", 2)
        return cls(host, int(pid), float(started))

    def __str__(self) -> str:
        return f"{self.host}/{self.pid}/{self.started}"

    def is_gone(self) -> bool:
        """Known to be dead: only the host it ran on can tell, and then nobody need wait for the lease to expire."""
        if self.host != socket.gethostname():
            return False
        try:
            return psutil.Process(self.pid).create_time() != self.started
        except psutil.NoSuchProcess:
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
