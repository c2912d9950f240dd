"""One life of an installation: the real loops over clusters that fail, after a schedule drawn from a seed."""

import itertools
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

from sqlalchemy import select, update

from cluster_groups.model.cluster import ClusterState
from cluster_groups.model.group import Member, OnClusterLoss, Policy
from cluster_groups.model.health import Health, HealthStatus
from cluster_groups.reconcile.health import HealthReconciler
from cluster_groups.store import clusters as cluster_store
from cluster_groups.tables import ClusterRow
from kernel.db import Database, Superseded
from kernel.errors import Unauthenticated
from kernel.loop import Loop, Stage, Step
from kernel.reasons import Reason
from rayjobs import run_service
from rayjobs.decide.attempt import Change
from rayjobs.gateway.base import Submission
from rayjobs.leases import Callback
from rayjobs.model.job import Retry, RunMode
from rayjobs.model.run import RUN_FINALS, AttemptState, EndCode, RunState, submission_id
from rayjobs.reconcile.attempts import AttemptPlan
from rayjobs.runner.spec import LeaseTerms, unpack
from rayjobs.tables import AttemptRow, RunRow
from tests.builders.run_world import Outside, RunWorld
from tests.builders.targets import store_cluster, store_cluster_group
from tests.fakes.backend import FakeBackend
from tests.simulation.failing_clusters import Execution, SimulatedCluster, SimulatedGateway, nodes_of
from tests.simulation.timeline import BEGIN, Timeline

FAULTS_UNTIL_S = 900.0
HORIZON_S = 4 * 3600.0
LOOPS = ("queue", "attempts", "health")
SWITCHES = {
    "cut off": ("is_unreachable", "is_deaf"),
    "unreachable": ("is_unreachable",),
    "deaf": ("is_deaf",),
    "loses answers": ("loses_answers",),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Fault:
    kind: str
    at_s: float
    lasts_s: float
    cluster: str | None = None

    def __str__(self) -> str:
        return f"{self.kind} {self.cluster or ''} {self.at_s:.0f}+{self.lasts_s:.0f}s"


@dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    at_s: float
    runtime_s: float
    fields: dict[str, Any]
    stop_after_s: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Schedule:
    seed: int
    ttl_s: int
    policy: Policy
    members: tuple[Member, ...]
    callbacks: dict[str, bool]
    work: tuple[Work, ...]
    faults: tuple[Fault, ...]


@dataclass(slots=True)
class Told:
    """What went wrong, and what happened at all."""

    problems: list[str] = field(default_factory=list)
    ends: Counter[str] = field(default_factory=Counter)
    attempt_ends: Counter[str] = field(default_factory=Counter)
    moves: int = 0
    leases: int = 0

    def add(self, other: "Told") -> None:
        self.problems += other.problems
        self.ends += other.ends
        self.attempt_ends += other.attempt_ends
        self.moves += other.moves
        self.leases += other.leases

    def __str__(self) -> str:
        return f"runs {dict(self.ends)}, attempts {dict(self.attempt_ends)}, {self.moves} moves, {self.leases} renewals"


class Service:
    """One process of Muster: what it knew goes with it."""

    def __init__(self, world: "FailingWorld") -> None:
        self._timeline = world.timeline
        outside = Outside(
            clock=world.timeline,
            gateway=world.gateway,
            backend=world.backend,
            callback=Callback(url="http://127.0.0.1:8266", key=b"k"),
            lease_ttl_s=world.schedule.ttl_s,
        )
        self.muster = muster = RunWorld(world.database, world.folder, outside)
        health = HealthReconciler(
            world.gateway, muster.endpoints, muster.fleet.submits, muster.hints, world.timeline, world.gateway
        )
        every = (*(loop.reconciler for loop in muster.loops), health)
        loops = [Loop(one, world.database, world.timeline, world.watch) for one in every if one.name in LOOPS]
        self._loops = {loop.reconciler.name: loop for loop in loops}
        self._due: dict[tuple[str, str], float] = {}
        self._busy: set[tuple[str, str]] = set()
        self._tasks: set[Any] = set()
        self._is_dead = False
        for name in self._loops:
            muster.hints.connect(name, lambda key, name=name: self._look_at(name, key, self._timeline.now_s))
            self._begin(self._list(name))

    async def die(self) -> None:
        self._is_dead = True
        await self._timeline.cancel(self._tasks)

    def _look_at(self, name: str, key: str, at_s: float) -> None:
        known = self._due.get((name, key))
        if known is None or at_s < known:
            self._due[name, key] = at_s
            self._timeline.at(at_s, lambda: self._look(name, key, at_s))

    def _look(self, name: str, key: str, at_s: float) -> None:
        if self._is_dead or self._due.get((name, key)) != at_s or (name, key) in self._busy:
            return
        del self._due[name, key]
        self._busy.add((name, key))
        self._begin(self._step(name, key))

    async def _step(self, name: str, key: str) -> None:
        again_s: float | None
        try:
            again_s = await self._loops[name]._step(key)
        except Superseded:
            again_s = 0.05
        self._busy.discard((name, key))
        waiting = self._due.pop((name, key), None)
        if waiting is not None:
            again_s = 0.0
        if again_s is not None:
            self._look_at(name, key, self._timeline.now_s + max(again_s, 0.02))

    async def _list(self, name: str) -> None:
        loop = self._loops[name]
        while True:
            async with self.muster.database.read() as session:
                keys = await loop.reconciler.list_keys(session)
            for key in keys:
                if (name, key) not in self._due and (name, key) not in self._busy:
                    self._look_at(name, key, self._timeline.now_s)
            await self._timeline.sleep(loop.reconciler.relist_s)

    def _begin(self, work: Any) -> None:
        task = self._timeline.begin(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class FailingWorld:
    def __init__(self, schedule: Schedule, database: Database, folder: Path) -> None:
        self.schedule = schedule
        self.database = database
        self.folder = folder
        self.timeline = Timeline()
        self._chances: dict[str, random.Random] = {}
        self.gateway = SimulatedGateway(self.timeline, self._chance_of)
        self.backend = FakeBackend()
        self.clusters: dict[str, SimulatedCluster] = {}
        self.told = Told()
        self.service: Service | None = None
        self._ids: dict[str, str] = {}
        self._works: dict[str, Work] = {}
        self._given_up: set[str] = set()
        self._ended: set[str] = set()
        self._sent: dict[str, str] = {}
        self._fallen: set[str] = set()
        """As far as the service knows."""
        self._is_over = False
        self._down = 0

    async def play(self) -> Told:
        await self._prepare()
        numbers = itertools.count(1)
        named = patch.object(run_service, "new_id", lambda kind: f"{kind}_{next(numbers):026d}")
        named.start()
        try:
            self.service = Service(self)
            for fault in self.schedule.faults:
                self.timeline.at(fault.at_s, lambda fault=fault: self._strike(fault))
            for work in self.schedule.work:
                self.timeline.at(work.at_s, lambda work=work: self._do(self._submit(work)))
            self._watch_end()
            await self.timeline.play(HORIZON_S, lambda: self._is_over)
            await self._judge()
        finally:
            named.stop()
            await self.timeline.end()
        return self.told

    def watch(self, step: Step) -> None:
        if step.stage is Stage.APPLIED and isinstance(step.plan, AttemptPlan) and isinstance(step.outcome, Change):
            end = step.outcome.end
            if end is not None and end.code is EndCode.CLUSTER_LOST:
                self._given_up.add(step.key)
            if step.outcome.state is AttemptState.ENDED:
                self._ended.add(step.key)
                view = step.plan.view
                matters = view.run_state is RunState.WAITING or step.key in self._given_up
                if matters and any(one.attempt == step.key for one in self._active):
                    self._complain(f"{step.key} was held to be over, and went on")

    # --- the world ---------------------------------------------------------------------------------------------------

    async def _prepare(self) -> None:
        async with self.database.write() as session:
            for name, can_call_back in self.schedule.callbacks.items():
                await store_cluster(session, name)
                row = (await session.scalars(select(ClusterRow).where(ClusterRow.name == name))).one()
                health = Health(status=HealthStatus.HEALTHY, since=BEGIN, last_result_at=BEGIN)
                seen = cluster_store.cluster_of(row)
                values = {
                    "health": cluster_store.health_column(health),
                    "backend": "local",
                    "can_call_back": can_call_back,
                }
                nodes = [asdict(node) for node in nodes_of(name)]
                await session.execute(update(ClusterRow).where(ClusterRow.id == seen.id).values(nodes=nodes, **values))
                self._add(name, row.id, can_call_back=can_call_back)
            await store_cluster_group(session, "g", *self.schedule.members, policy=self.schedule.policy)

    def _add(self, name: str, cluster_id: str, *, can_call_back: bool) -> None:
        cluster = SimulatedCluster(name, self.timeline, self._chance_of, can_call_back=can_call_back)
        cluster.on_active = self._check
        cluster.renew, cluster.on_submit = self._renew, lambda submission: self._arrives(name, submission)
        self.backend.comes_up(cluster_id)
        self.clusters[name] = cluster
        self._ids[name] = cluster_id
        endpoint = self.backend.seen[cluster_id].endpoint
        assert endpoint is not None
        self.gateway.by_address[endpoint.address] = cluster

    async def _renew(self, attempt: str, terms: LeaseTerms, secret: str) -> int:
        if self.service is None:
            raise ConnectionError(attempt)
        self.told.leases += 1
        try:
            return await self.service.muster.leases.renew(attempt, terms.claim, secret)
        except Unauthenticated as error:
            raise ConnectionError(attempt) from error

    def _arrives(self, name: str, submission: Submission) -> None:
        """A cluster that was away has nothing new while anything goes on there that was given up."""
        stale = [one for one in self.clusters[name].active if one.attempt in self._given_up]
        if stale and submission.submission_id not in self._given_up:
            self._complain(f"{submission.submission_id} came to {name} beside {stale[0].attempt}, which was given up")
        spec = unpack(submission.entrypoint.split()[-1])
        self._sent[submission.submission_id] = name
        before = self._sent.get(submission_id(spec.run_id, spec.attempt - 1), spec.previous_cluster)
        if spec.previous_cluster != before or (spec.attempt == 1) != (spec.previous_cluster is None):
            self._complain(f"{submission.submission_id} was told of {spec.previous_cluster}, not {before}")

    async def _submit(self, work: Work) -> None:
        """The request is made again until the service is there."""
        while self.service is None:
            await self.timeline.sleep(3)
        muster = self.service.muster
        run_id = await muster.submit((), muster.HIDDEN, **work.fields)
        self._works[run_id] = work
        for cluster in self.clusters.values():
            cluster.runtimes_s[run_id] = work.runtime_s
        if work.stop_after_s is not None:
            await self.timeline.sleep(work.stop_after_s)
            while self.service is None:
                await self.timeline.sleep(3)
            await self.service.muster.stop(run_id)

    # --- faults ------------------------------------------------------------------------------------------------------

    def _strike(self, fault: Fault) -> None:
        begin, end = self._faults(fault)
        begin()
        self.timeline.at(self.timeline.now_s + fault.lasts_s, end)

    def _faults(self, fault: Fault) -> tuple[Callable[[], None], Callable[[], None]]:
        if fault.kind == "service down":
            return lambda: self._do(self._service_down()), self._service_up
        cluster = self.clusters[fault.cluster or ""]
        if fault.kind in SWITCHES:
            return lambda: cluster.switch(SWITCHES[fault.kind], True), lambda: cluster.switch(
                SWITCHES[fault.kind], False
            )
        if fault.kind == "frozen":
            return cluster.freeze, cluster.thaw
        if fault.kind == "killed unseen":
            return cluster.die, cluster.rise
        assert fault.kind == "killed"
        return lambda: self._do(self._killed(cluster)), lambda: self._do(self._restarted(cluster))

    async def _service_down(self) -> None:
        self._down += 1
        service, self.service = self.service, None
        if service is not None:
            await service.die()

    def _service_up(self) -> None:
        self._down -= 1
        if self._down == 0:
            self.service = Service(self)

    async def _killed(self, cluster: SimulatedCluster) -> None:
        cluster.die()
        await self.timeline.sleep(self._chance_of(cluster.name).uniform(1, 20))
        await self._set_state(cluster, ClusterState.FAILED)
        self._fallen.add(cluster.name)

    async def _restarted(self, cluster: SimulatedCluster) -> None:
        while cluster.name not in self._fallen:
            await self.timeline.sleep(5)
        self._fallen.remove(cluster.name)
        cluster.rise()
        await self._set_state(cluster, ClusterState.RUNNING)

    async def _set_state(self, cluster: SimulatedCluster, state: ClusterState) -> None:
        while self.service is None:
            await self.timeline.sleep(2)
        reason = Reason(code="HEAD_LOST") if state is ClusterState.FAILED else None
        columns = cluster_store.state_columns(state, self.timeline.now(), reason)
        columns["nodes_wanted"] = 2  # of one that fell, nodes are still there
        row = ClusterRow.id == self._ids[cluster.name]
        async with self.database.write() as session:
            await session.execute(update(ClusterRow).where(row).values(version=ClusterRow.version + 1, **columns))

    # --- the end -----------------------------------------------------------------------------------------------------

    def _watch_end(self) -> None:
        self._do(self._look_whether_over())

    async def _look_whether_over(self) -> None:
        await self.timeline.sleep(FAULTS_UNTIL_S)
        while not self._is_over:
            await self.timeline.sleep(30)
            async with self.database.read() as session:
                states = list(await session.scalars(select(RunRow.state)))
                attempts = list(await session.scalars(select(AttemptRow.state)))
            over = len(states) == len(self.schedule.work) and all(one in RUN_FINALS for one in states)
            self._is_over = over and all(one == "ENDED" for one in attempts) and not self._executing

    @property
    def _executing(self) -> list[Execution]:
        return [one for cluster in self.clusters.values() for one in cluster.executions if one.ended_s is None]

    async def _judge(self) -> None:
        async with self.database.read() as session:
            runs = list(await session.scalars(select(RunRow)))
            attempts = list(await session.scalars(select(AttemptRow)))
        self.told.attempt_ends.update(one.end["code"] if one.end else "NONE" for one in attempts)
        by_run: dict[str, list[AttemptRow]] = {run.id: [] for run in runs}
        for attempt in sorted(attempts, key=lambda one: one.epoch):
            by_run[attempt.run_id].append(attempt)
        if len(runs) != len(self.schedule.work):
            self._complain("a submission got lost")
        for run in runs:
            self._judge_run(run, by_run[run.id])

    def _judge_run(self, run: RunRow, attempts: list[AttemptRow]) -> None:
        code = run.end["code"] if run.end else run.state
        self.told.ends[code] += 1
        self.told.moves += sum(one.cluster != other.cluster for one, other in itertools.pairwise(attempts))
        if run.state not in RUN_FINALS:
            states = [(one.state, one.cluster) for one in attempts]
            self._complain(f"{run.id} was lost: {run.state} {run.condition} {states}")
            return
        executions = [one for cluster in self.clusters.values() for one in cluster.executions if one.run == run.id]
        retry: Retry = self._works[run.id].fields["retry"]
        if run.state == "SUCCEEDED" and not any(one.finished for one in executions):
            self._complain(f"{run.id} succeeded, and never ran to its end")
        is_lost = run.end is not None and run.end["class"] == "lost"
        policy = self.schedule.policy
        may_move = run.run_mode == RunMode.CLUSTER or policy.on_cluster_loss is OnClusterLoss.REDISPATCH
        last = attempts[-1] if attempts else None
        fenced = last is not None and (run.run_mode == RunMode.CLUSTER or last.lease_ttl_s or code != "CLUSTER_LOST")
        if (
            is_lost
            and run.stop_code is None
            and may_move
            and fenced
            and "lost" in retry.on
            and run.tries + 1 < retry.max_attempts
        ):
            self._complain(f"{run.id} ended with {code} although attempts were left")
        if is_lost and code == "LEASE_LOST" and retry.max_attempts == 1:
            self._complain(f"{run.id} was ended by a lease, and had no second attempt")

    def _check(self, execution: Execution) -> None:
        """One at most of each run, unless its job says that more do no harm."""
        if execution.attempt in self._ended:
            self._complain(f"{execution.attempt} runs although it was held to be over")
        if self._works[execution.run].fields["retry_safe"]:
            return
        beside = [one.attempt for one in self._active if one.run == execution.run and one is not execution]
        if beside:
            self._complain(f"{execution.attempt} runs beside {', '.join(beside)}")

    @property
    def _active(self) -> list[Execution]:
        return [one for cluster in self.clusters.values() for one in cluster.active]

    def _chance_of(self, key: str) -> random.Random:
        return self._chances.setdefault(key, random.Random(f"{self.schedule.seed} {key}"))  # noqa: S311 - a simulation

    def _complain(self, what: str) -> None:
        self.told.problems.append(f"{self.timeline.now_s:.1f} s: {what}")

    def _do(self, work: Any) -> None:
        self.timeline.begin(work)
