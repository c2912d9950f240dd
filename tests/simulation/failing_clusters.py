"""Clusters that execute jobs under leases and guards, and that are cut off, frozen, killed and come back.

Seen from the service by `SimulatedGateway`; `executions` is what no service can know: what really ran, and when.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from cluster_groups.model.cluster import Endpoint, Node, ProbeResult
from kernel.errors import Conflict
from kernel.reasons import Reason
from kernel.resources import Resources
from rayjobs.gateway.base import ClusterUnreachable, Delivery, RayJob, RayStatus, RequestRefused, Submission
from rayjobs.runner.spec import EXIT_LEASE_LOST, LeaseTerms, RunnerSpec, unpack
from tests.simulation.timeline import Timeline

RENEW_S = 15.0
GRACE_AFTER_LEASE_S = 60.0
"""Guards kill by then, whatever grace the job asks for."""
NODE_DEATH_S = 60.0
"""A node whose head died ends itself by then, and its guards their tasks within the grace."""
NEVER = float("inf")

ChanceOf = Callable[[str], random.Random]
"""Of each attempt and each cluster its own: in which order things happen at one instant shall not matter."""
Renew = Callable[[str, LeaseTerms, str], Awaitable[int]]
"""Of the service, through the network: raises Conflict when it refuses, ConnectionError when nobody answers."""


@dataclass(slots=True)
class Execution:
    """User code at work. While `frozen_since` it does nothing."""

    attempt: str
    run: str
    cluster: str
    began_s: float
    ended_s: float | None = None
    finished: bool = False
    has_lease: bool = False


@dataclass(slots=True, eq=False)
class Job:
    spec: RunnerSpec
    runtime_s: float
    chance: random.Random
    status: RayStatus = RayStatus.PENDING
    exit_code: int | None = None
    stop_at_s: float = NEVER
    lease_until_s: float = NEVER
    secret: str = ""
    execution: Execution | None = None
    tasks: set[asyncio.Task[None]] = field(default_factory=set)


class SimulatedCluster:
    def __init__(self, name: str, timeline: Timeline, chance_of: ChanceOf, *, can_call_back: bool) -> None:
        self.name = name
        self.can_call_back = can_call_back
        self.is_unreachable = self.is_deaf = self.is_frozen = self.is_dead = False
        """`is_unreachable` to the service; `is_deaf`: its nodes do not reach the service."""
        self.loses_answers = False
        self.jobs: dict[str, Job] = {}
        self.executions: list[Execution] = []
        self.runtimes_s: dict[str, float] = {}
        """By run."""
        self.drift = chance_of(name).uniform(0.98, 1.02)
        """Of its clocks."""
        self.renew: Renew = _nobody
        self.on_submit: Callable[[Submission], None] = lambda _submission: None
        self.on_active: Callable[[Execution], None] = lambda _execution: None
        """User code begins, or goes on after a freeze."""
        self._timeline = timeline
        self._chance_of = chance_of
        self._busy_until_s = 0.0
        """It is so slow that it takes one request after the other."""
        self._buffered: list[Submission] = []
        """In the socket of a head that is frozen."""

    @property
    def answers(self) -> bool:
        return not (self.is_unreachable or self.is_frozen or self.is_dead or self._timeline.now_s < self._busy_until_s)

    @property
    def active(self) -> list[Execution]:
        return [] if self.is_frozen else [one for one in self.executions if one.ended_s is None]

    # --- what happens to it ------------------------------------------------------------------------------------------

    def switch(self, flags: tuple[str, ...], on: bool) -> None:
        for flag in flags:
            setattr(self, flag, on)

    def freeze(self) -> None:
        self.is_frozen = True

    def thaw(self) -> None:
        """Guards come first: they sleep on what is over, and nothing of the user's goes on before."""
        for job in list(self.jobs.values()):
            if job.execution and self._timeline.now_s >= job.lease_until_s:
                self._end(job, RayStatus.FAILED, EXIT_LEASE_LOST)
        self.is_frozen = False
        for execution in self.active:
            self.on_active(execution)
        late, self._buffered = self._buffered, []
        for submission in late:
            self._arrives_after(self._chance_of(submission.submission_id).uniform(0, 5), submission)

    def die(self) -> None:
        """The head at once and for good; what runs on the nodes a little later."""
        self.is_dead = True
        self._buffered.clear()
        jobs, self.jobs = list(self.jobs.values()), {}
        for job in jobs:
            lives_s = job.chance.uniform(0, NODE_DEATH_S + job.spec.stop_grace_s)
            self._timeline.at(self._timeline.now_s + lives_s, lambda job=job: self._end(job, RayStatus.FAILED, None))

    def rise(self) -> None:
        """A new head, which knows of nothing."""
        self.is_dead = False

    # --- what the service asks it ------------------------------------------------------------------------------------

    def submit(self, submission: Submission) -> None:
        if submission.submission_id in self.jobs:
            return
        self.on_submit(submission)
        spec = unpack(submission.entrypoint.split()[-1])
        secret = f"{spec.submission_id} of {self._timeline.now_s}"
        chance = self._chance_of(spec.submission_id)
        job = Job(spec=spec, runtime_s=self.runtimes_s[spec.run_id], chance=chance, secret=secret)
        self.jobs[submission.submission_id] = job
        self._begin(job, self._run(job))

    def submits_late(self, submission: Submission) -> None:
        """The request is on its way, and whoever sent it has given up."""
        if self.is_frozen:
            self._buffered.append(submission)
        elif not self.is_dead:
            seconds = self._chance_of(submission.submission_id).choice([0.1, 2, 10, 50])
            self._busy_until_s = max(self._busy_until_s, self._timeline.now_s + seconds + 0.1)
            self._arrives_after(seconds, submission)

    def stop(self, attempt: str) -> None:
        job = self.jobs.get(attempt)
        if job is None or job.status not in {RayStatus.PENDING, RayStatus.RUNNING}:
            return
        job.stop_at_s = min(job.stop_at_s, self._timeline.now_s + job.chance.uniform(0.1, job.spec.stop_grace_s))

    # --- what its processes do ---------------------------------------------------------------------------------------

    async def _run(self, job: Job) -> None:
        await self._sleep(job.chance.uniform(0.3, 3))
        job.status = RayStatus.RUNNING
        lease = job.spec.lease
        if lease is not None:
            job.lease_until_s = 0.0
            if not await self._take(job, lease):
                self._end(job, RayStatus.FAILED, EXIT_LEASE_LOST)
                return
            self._begin(job, self._keep(job, lease))
        if self._timeline.now_s >= job.stop_at_s:
            self._end(job, RayStatus.STOPPED, None)
            return
        spec = job.spec
        job.execution = Execution(
            spec.submission_id, spec.run_id, self.name, self._timeline.now_s, has_lease=lease is not None
        )
        self.executions.append(job.execution)
        self.on_active(job.execution)
        await self._work(job)

    async def _work(self, job: Job) -> None:
        ends_s = self._timeline.now_s + job.runtime_s
        while True:
            now_s = self._timeline.now_s
            if now_s >= job.lease_until_s:
                await self._sleep(job.chance.uniform(0, min(job.spec.stop_grace_s, GRACE_AFTER_LEASE_S)))
                return self._end(job, RayStatus.FAILED, EXIT_LEASE_LOST)
            if now_s >= job.stop_at_s:
                return self._end(job, RayStatus.STOPPED, None)
            if now_s >= ends_s:
                return self._end(job, RayStatus.SUCCEEDED, 0)
            await self._sleep(min(ends_s - now_s, job.lease_until_s - now_s, 5.0))

    async def _take(self, job: Job, lease: LeaseTerms) -> bool:
        give_up_at_s = self._timeline.now_s + lease.take_within_s
        while True:
            is_refused = await self._ask(job, lease)
            if self._timeline.now_s < job.lease_until_s:
                return True
            if is_refused or self._timeline.now_s >= give_up_at_s:
                return False
            await self._sleep(1)

    async def _keep(self, job: Job, lease: LeaseTerms) -> None:
        while self._timeline.now_s < job.lease_until_s:
            await self._sleep(RENEW_S)
            if self._timeline.now_s < job.lease_until_s:
                await self._ask(job, lease)

    async def _ask(self, job: Job, lease: LeaseTerms) -> bool:
        """Whether it was refused. A term counts from the asking, by a clock of its own."""
        asked_s, was_over = self._timeline.now_s, self._timeline.now_s >= job.lease_until_s > 0
        try:
            if self.is_deaf:
                await self._sleep(10)
                return False
            await self._sleep(job.chance.uniform(0.01, 0.5))
            ttl_s = await self.renew(job.spec.submission_id, lease, job.secret)
            await self._sleep(job.chance.choice([0.01, 0.01, 0.01, 9.0]))
        except Conflict:
            job.lease_until_s = min(job.lease_until_s, self._timeline.now_s)
            return True
        except ConnectionError:
            return False
        if not was_over:
            job.lease_until_s = max(job.lease_until_s, asked_s + ttl_s * self.drift)
        return False

    def _end(self, job: Job, status: RayStatus, exit_code: int | None) -> None:
        if job.execution is not None and job.execution.ended_s is None:
            job.execution.ended_s = self._timeline.now_s
            job.execution.finished = status is RayStatus.SUCCEEDED
        if job.status in {RayStatus.PENDING, RayStatus.RUNNING}:
            job.status, job.exit_code = status, exit_code
        current = asyncio.current_task()
        for task in job.tasks - {current}:
            task.cancel()

    def _begin(self, job: Job, work: Any) -> None:
        task = self._timeline.begin(work)
        job.tasks.add(task)
        task.add_done_callback(job.tasks.discard)

    def _arrives_after(self, seconds: float, submission: Submission) -> None:
        def arrive() -> None:
            if self.is_frozen:
                self._buffered.append(submission)
            elif not self.is_dead:
                self.submit(submission)

        self._timeline.at(self._timeline.now_s + seconds, arrive)

    async def _sleep(self, seconds: float) -> None:
        await self._timeline.sleep(seconds)
        while self.is_frozen:
            await self._timeline.sleep(0.5)


class SimulatedGateway:
    """The network between: what takes how long, and what gets lost."""

    def __init__(self, timeline: Timeline, chance_of: ChanceOf) -> None:
        self.by_address: dict[str, SimulatedCluster] = {}
        self.sent: dict[str, Submission] = {}
        self._timeline = timeline
        self._chance_of = chance_of

    async def deliver(self, endpoint: Endpoint, delivery: Delivery) -> None:
        del delivery
        await self._reach(endpoint)

    async def submit(self, endpoint: Endpoint, submission: Submission) -> None:
        """Nobody knows whether one arrived that was not answered."""
        cluster = self.by_address[endpoint.address]
        self.sent[submission.submission_id] = submission
        chance = self._chance_of(submission.submission_id)
        try:
            await self._reach(endpoint)
        except (ClusterUnreachable, asyncio.CancelledError):
            if not cluster.is_unreachable and chance.random() < 0.5:
                cluster.submits_late(submission)
            raise
        if cluster.loses_answers and chance.random() < 0.5:
            cluster.submits_late(submission)
            await self._timeline.sleep(5)
            raise ClusterUnreachable("no answer")
        cluster.submit(submission)
        await self._timeline.sleep(chance.uniform(0.01, 0.3))
        if cluster.is_unreachable or cluster.is_frozen:
            raise ClusterUnreachable("no answer")

    async def look(self, endpoint: Endpoint, submission_id: str) -> RayJob | None:
        job = (await self._reach(endpoint)).jobs.get(submission_id)
        return RayJob(status=job.status, exit_code=job.exit_code) if job else None

    async def stop(self, endpoint: Endpoint, submission_id: str) -> None:
        (await self._reach(endpoint)).stop(submission_id)

    async def forget(self, endpoint: Endpoint, submission_id: str) -> None:
        cluster = await self._reach(endpoint)
        job = cluster.jobs.get(submission_id)
        if job and job.status in {RayStatus.PENDING, RayStatus.RUNNING}:
            raise RequestRefused(500, f"job '{submission_id}' is in a non-terminal state")
        cluster.jobs.pop(submission_id, None)

    async def read_log(
        self, endpoint: Endpoint, agent_address: str, path: str, *, offset: int, limit_bytes: int
    ) -> bytes:
        del agent_address, path, offset, limit_bytes
        await self._reach(endpoint)
        return b""

    async def probe(self, endpoint: Endpoint, *, with_nodes: bool, with_jobs: bool = False) -> ProbeResult:
        del with_nodes, with_jobs
        try:
            cluster = await self._reach(endpoint, patience_s=3)
        except ClusterUnreachable:
            return ProbeResult(at=self._timeline.now(), failure=Reason(code="PROBE_FAILED"))
        return ProbeResult(at=self._timeline.now(), nodes=nodes_of(cluster.name), is_open=False)

    async def can_call_back(self, endpoint: Endpoint) -> bool | None:
        try:
            cluster = await self._reach(endpoint)
        except ClusterUnreachable:
            return None
        return cluster.can_call_back and not cluster.is_deaf

    async def _reach(self, endpoint: Endpoint, patience_s: float = 8) -> SimulatedCluster:
        cluster = self.by_address[endpoint.address]
        await self._timeline.sleep(0.01)
        if cluster.answers:
            return cluster
        await self._timeline.sleep(0.05 if cluster.is_dead else patience_s)
        raise ClusterUnreachable(cluster.name)


def nodes_of(name: str) -> tuple[Node, ...]:
    head = Node(id=f"{name}-0", ip="127.0.1.1", group="head", alive=True, is_head=True, total=Resources(memory_gib=16))
    worker = Node(
        id=f"{name}-1", ip="127.0.1.2", group="w", alive=True, is_head=False, total=Resources(cpu=8, memory_gib=16)
    )
    return head, worker


async def _nobody(attempt: str, terms: LeaseTerms, secret: str) -> int:
    raise ConnectionError(attempt, terms, secret)
