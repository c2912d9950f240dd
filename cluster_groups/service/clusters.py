"""Use cases of clusters: make, change, start, stop, delete, and the ones made for a single run."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from cluster_groups.check import check_cluster
from cluster_groups.decide.health import begun_anew, health_in
from cluster_groups.decide.lifecycle import CLEANING_UP
from cluster_groups.decide.quota import beyond_quota
from cluster_groups.model.cluster import (
    CLUSTER_TRANSITIONS,
    EDITABLE,
    ON_DEMAND_PREFIX,
    Cluster,
    ClusterConfig,
    ClusterKind,
    ClusterRef,
    ClusterState,
    site_of,
)
from cluster_groups.model.demand import ClusterView
from cluster_groups.model.quota import ClusterUse
from cluster_groups.service.base import (
    CLUSTER_LOOP,
    HEALTH_LOOP,
    QUEUE_KEY,
    QUEUE_LOOP,
    ClusterRuns,
    Credentials,
    busy_with,
    refuse_new_values,
    store_named,
)
from cluster_groups.service.resources import DEFAULT, ResourcePools
from cluster_groups.store import clusters as store
from cluster_groups.store import resources as resource_store
from cluster_groups.tables import ClusterRow
from kernel.actor import SYSTEM_ACTOR, Actor, Role
from kernel.clock import Clock, instant
from kernel.errors import Conflict, Problem, StaleRevision, problem, raise_problems
from kernel.events import audit, record
from kernel.ids import new_id
from kernel.loop import Hints
from kernel.paging import Page, PageRequest
from kernel.reasons import Reason
from kernel.remembered import Remembered
from kernel.resources import total
from kernel.states import move
from runtime_envs.volumes import store as volumes
from runtime_envs.volumes.available import check_available
from runtime_envs.volumes.check import check_mounts

_FIXED = ("name", "kind", "backend")
_REMEMBERED = 2000
"""Clusters whose views are kept at hand."""
_UP = frozenset({ClusterState.STARTING, ClusterState.RUNNING})
_GOING = frozenset({ClusterState.STOPPING, ClusterState.DELETING})


class Clusters:
    def __init__(
        self,
        clock: Clock,
        hints: Hints,
        *,
        backends: Collection[str],
        pools: ResourcePools,
        runs: ClusterRuns,
        credentials: Credentials,
    ) -> None:
        self._clock = clock
        self._hints = hints
        self._backends = backends
        self._pools = pools
        self._runs = runs
        self._credentials = credentials
        self._views: Remembered[str, ClusterView] = Remembered(_REMEMBERED)

    async def get(self, session: AsyncSession, ref: str) -> Cluster:
        return store.cluster_of(await store.find(session, ref))

    async def reference(self, session: AsyncSession, name: str) -> ClusterRef | None:
        """None: there is no such cluster (any more)."""
        return await store.reference(session, name)

    async def page(
        self, session: AsyncSession, filters: Mapping[str, str | None], request: PageRequest
    ) -> Page[Cluster]:
        return await store.page(session, filters, request)

    async def views(self, session: AsyncSession, ids: Collection[str] | None = None) -> list[ClusterView]:
        """All that are not deleted, or those of these; the ones made for one run included.

        For a session that writes nothing: views are remembered.
        """
        versions = await store.live_versions(session, ids)
        known = self._views.known(versions)
        for row in await store.rows_of(session, versions.keys() - known.keys()):
            known[row.id] = store.view_of(store.cluster_of(row))
            self._views.keep(row.id, row.version, known[row.id])
        return [known[one] for one in versions if one in known]

    async def usage(self, session: AsyncSession) -> Mapping[str, tuple[ClusterUse, ...]]:
        """What clusters hold of each resource group, at their minimum."""
        return await store.uses(session)

    async def create(self, session: AsyncSession, actor: Actor, config: ClusterConfig) -> Cluster:
        actor.need(Role.ADMIN if config.allow_open else Role.OPERATOR)
        config = await self._with_defaults(session, config)
        raise_problems(await self._problems(session, actor, config))
        managed = config.kind is ClusterKind.MANAGED
        row = await self._insert(session, actor, config, ClusterState.CREATED if managed else ClusterState.RUNNING)
        audit(session, "create", ("cluster", row.name), at=row.created_at, actor=actor.user)
        if config.autostart:
            await self._autostart(session, row, actor)
        return store.cluster_of(row)

    async def edit(
        self, session: AsyncSession, actor: Actor, ref: str, changes: Mapping[str, Any], *, if_match: int | None = None
    ) -> Cluster:
        """`changes` by the names of ClusterConfig's fields. They count from the next start, of attached ones now."""
        row = await self._open(session, actor, ref)
        cluster = store.cluster_of(row)
        await self._need_revision(session, row, if_match)
        refuse_new_values(cluster, changes, _FIXED)
        if cluster.kind is ClusterKind.MANAGED and cluster.state not in EDITABLE:
            raise Conflict("CLUSTER_NOT_EDITABLE", cluster=row.name, state=row.state)
        edited = replace(cluster, **changes)
        if edited == cluster:
            return cluster
        if edited.allow_open and (edited.allow_open, edited.address) != (cluster.allow_open, cluster.address):
            actor.need(Role.ADMIN)  # what one was allowed for one address does not go along to another
        if edited.address != cluster.address:
            await self._need_no_runs(session, row)  # they would be looked for in the wrong place
        raise_problems(await self._problems(session, actor, edited))
        health = store.health_column(begun_anew(cluster.health, self._clock.now()))
        seen = {"health": health, "can_call_back": None}
        columns = {**store.config_columns(edited), "revision": row.revision + 1, **seen}
        changed = [name for name in changes if getattr(edited, name) != getattr(cluster, name)]
        self._write(session, row, store.EDITED, actor, columns, fields=changed)
        audit(session, "edit", ("cluster", row.name), at=self._clock.now(), actor=actor.user, fields=changed)
        return store.cluster_of(row)

    async def start(self, session: AsyncSession, actor: Actor, ref: str) -> Cluster:
        row = await self._open(session, actor, ref, managed=True)
        if row.state not in _UP:
            await self._start(session, row, actor)
            audit(session, "start", ("cluster", row.name), at=self._clock.now(), actor=actor.user)
        return store.cluster_of(row)

    async def stop(self, session: AsyncSession, actor: Actor, ref: str, *, force: bool = False) -> Cluster:
        """`force` ends its live runs; without, they refuse the stop. Waiting runs do not."""
        row = await self._open(session, actor, ref, managed=True)
        state = ClusterState(row.state)
        if state is ClusterState.DELETING:
            raise Conflict("CLUSTER_BUSY", cluster=row.name, state=row.state)
        if state not in {ClusterState.CREATED, ClusterState.STOPPED}:
            await self._take_away(session, row, ClusterState.STOPPING, actor, force=force)
        return store.cluster_of(row)

    async def delete(
        self, session: AsyncSession, actor: Actor, ref: str, *, force: bool = False, if_match: int | None = None
    ) -> Cluster:
        """An attached one goes at once, or once the runs that ended there are done with it."""
        row = await self._open(session, actor, ref)
        await self._need_revision(session, row, if_match)
        await self._take_away(session, row, ClusterState.DELETING, actor, force=force)
        if row.kind == ClusterKind.ATTACHED and not await busy_with(self._runs, session, row.id):
            self._move(session, row, ClusterState.DELETED, actor)
        return store.cluster_of(row)

    async def cordon(self, session: AsyncSession, actor: Actor, ref: str) -> Cluster:
        """No new work; what runs goes on."""
        return await self._set_cordoned(session, actor, ref, cordoned=True)

    async def uncordon(self, session: AsyncSession, actor: Actor, ref: str) -> Cluster:
        return await self._set_cordoned(session, actor, ref, cordoned=False)

    async def autostart(self, session: AsyncSession) -> None:
        """To be called when the service starts."""
        for cluster in await store.live(session):
            if cluster.autostart and cluster.state in EDITABLE and cluster.on_demand_run is None:
                row = await store.find(session, cluster.id, lock=True)
                await self._autostart(session, row, SYSTEM_ACTOR)

    async def create_for_run(
        self, session: AsyncSession, config: ClusterConfig, *, run_id: str, created_by: str
    ) -> Cluster:
        """A cluster for one run, starting at once. Its configuration was checked with the job.

        Raises QUOTA_INSUFFICIENT when somebody was faster than the admission that decided on it.
        """
        config = replace(await self._with_defaults(session, config), name=on_demand_name(run_id))
        owner = replace(SYSTEM_ACTOR, user=created_by)
        row = await self._insert(session, owner, config, ClusterState.STARTING, on_demand_run=run_id)
        cluster = store.cluster_of(row)
        await self._need_quota(session, cluster)
        return cluster

    async def release(self, session: AsyncSession, cluster_id: str) -> None:
        """Delete the cluster that was made for one run, whatever is still on it."""
        row = await store.get(session, cluster_id, lock=True)
        if row is not None and ClusterState.DELETING in CLUSTER_TRANSITIONS[ClusterState(row.state)]:
            self._move(session, row, ClusterState.DELETING, SYSTEM_ACTOR, force_stop=True)

    async def _with_defaults(self, session: AsyncSession, config: ClusterConfig) -> ClusterConfig:
        if config.kind is ClusterKind.ATTACHED:
            return config
        group_name, package_name, backend = config.resource_group, config.resource_package, config.backend
        if group_name is None and package_name is None:
            group_name = DEFAULT
        group = await resource_store.group_named(session, group_name) if group_name else None
        if package_name is None:
            package_name = group.resource_package if group else None
        if backend is None:
            package = await resource_store.package_named(session, package_name) if package_name else None
            backend = (package.backend if package else None) or next(iter(sorted(self._backends)), None)
        return replace(config, resource_group=group_name, resource_package=package_name, backend=backend)

    async def _problems(self, session: AsyncSession, actor: Actor, config: ClusterConfig) -> list[Problem]:
        found = check_cluster(config)
        if config.kind is ClusterKind.MANAGED and config.backend not in self._backends:
            available = sorted(self._backends)
            found.append(problem("BACKEND_NOT_AVAILABLE", "/backend", backend=config.backend, available=available))
        if config.credential and not await self._credentials.exists(session, config.credential):
            found.append(problem("REFERENCE_NOT_FOUND", "/credential", kind="credential", ref=config.credential))
        if not check_mounts(config.volumes, "/volumes"):  # else `check_cluster` has told what is wrong with them
            found += await _volume_problems(session, config)
        return found + await self._place_problems(session, actor, config)

    async def _place_problems(self, session: AsyncSession, actor: Actor, config: ClusterConfig) -> list[Problem]:
        package, group = config.resource_package, config.resource_group
        if config.kind is ClusterKind.ATTACHED and package is None and group is None:
            return []
        if group is None:
            return [problem("FIELD_REQUIRED", "/resource_group", field="resource_group")]
        return await self._pools.check_place(session, actor, package, group)

    async def _insert(
        self, session: AsyncSession, actor: Actor, config: ClusterConfig, state: ClusterState, **columns: Any
    ) -> ClusterRow:
        now = self._clock.now()
        row = ClusterRow(
            id=new_id("clu"),
            created_at=now,
            created_by=actor.user,
            version=1,
            revision=1,
            cordoned=False,
            nodes_up=0,
            nodes_wanted=0,
            **{**store.config_columns(config), **store.state_columns(state, now), **columns},
        )
        await store_named(session, row, "cluster", config.name)
        record(session, row.id, "CREATED", at=now, actor=actor.user, state=row.state)
        self._tell(session, row)
        return row

    async def _open(self, session: AsyncSession, actor: Actor, ref: str, *, managed: bool = False) -> ClusterRow:
        """The row, locked, for somebody who wants to change it."""
        actor.need(Role.OPERATOR)
        row = await store.find(session, ref, lock=True)
        if row.on_demand_run is not None:
            raise Conflict("CLUSTER_OF_RUN", cluster=row.name, run=row.on_demand_run)
        if managed and row.kind != ClusterKind.MANAGED:
            raise Conflict("CLUSTER_NOT_MANAGED", cluster=row.name)
        return row

    async def _need_revision(self, session: AsyncSession, row: ClusterRow, if_match: int | None) -> None:
        if if_match is None or if_match == row.revision:
            return
        by, at = await store.last_edit(session, row)
        raise StaleRevision(
            "REVISION_CONFLICT", expected=if_match, revision=row.revision, changed_by=by, changed_at=instant(at)
        )

    async def _need_no_runs(self, session: AsyncSession, row: ClusterRow) -> None:
        runs = await self._runs.live(session, row.id)
        if runs:
            raise Conflict("CLUSTER_HAS_ACTIVE_RUNS", cluster=row.name, runs=list(runs))

    async def _take_away(
        self, session: AsyncSession, row: ClusterRow, target: ClusterState, actor: Actor, *, force: bool
    ) -> None:
        """Towards STOPPING or DELETING. Asked for again, `force` hurries what is under way."""
        if row.state == target and not force:
            return
        if force:
            await self._runs.end(session, row.id, actor)
        else:
            await self._need_no_runs(session, row)
        if row.state == target:
            self._write(session, row, "FORCED", actor, {"force_stop": True})
        else:
            self._move(session, row, target, actor, force_stop=force)
        verb = "stop" if target is ClusterState.STOPPING else "delete"
        audit(session, verb, ("cluster", row.name), at=self._clock.now(), actor=actor.user, force=force)

    async def _autostart(self, session: AsyncSession, row: ClusterRow, actor: Actor) -> None:
        """A cluster that its group has no quota for stays as it is."""
        try:
            await self._start(session, row, actor)
        except Conflict as refused:
            now = self._clock.now()
            record(session, row.id, "AUTOSTART_REFUSED", at=now, actor=actor.user, code=refused.code, **refused.params)

    async def _start(self, session: AsyncSession, row: ClusterRow, actor: Actor) -> None:
        state = ClusterState(row.state)
        if state in _GOING:
            raise Conflict("CLUSTER_BUSY", cluster=row.name, state=row.state)
        await self._need_quota(session, store.cluster_of(row))
        reason = CLEANING_UP if state is ClusterState.FAILED else None
        self._move(session, row, ClusterState.STARTING, actor, reason=reason, force_stop=False)

    async def _need_quota(self, session: AsyncSession, cluster: Cluster) -> None:
        # The group's row is what two starts in it would both have to pass.
        group = await resource_store.group_named(session, cluster.resource_group or "", lock=True)
        if group is None:
            return
        uses = (await store.uses(session)).get(group.name, ())
        used = total(use.amount for use in uses if use.cluster != cluster.name)
        short = beyond_quota(cluster.spec.minimum, used, group.quota)
        if short:
            raise Conflict("QUOTA_INSUFFICIENT", resource_group=group.name, short=short)

    async def _set_cordoned(self, session: AsyncSession, actor: Actor, ref: str, *, cordoned: bool) -> Cluster:
        row = await self._open(session, actor, ref)
        if row.cordoned != cordoned:
            self._write(session, row, "CORDONED" if cordoned else "UNCORDONED", actor, {"cordoned": cordoned})
            verb = "cordon" if cordoned else "uncordon"
            audit(session, verb, ("cluster", row.name), at=self._clock.now(), actor=actor.user)
        return store.cluster_of(row)

    def _move(
        self,
        session: AsyncSession,
        row: ClusterRow,
        target: ClusterState,
        actor: Actor,
        *,
        reason: Reason | None = None,
        **columns: Any,
    ) -> None:
        state = move(CLUSTER_TRANSITIONS, ClusterState(row.state), target)
        now = self._clock.now()
        columns |= store.state_columns(state, now, reason, health_in(state, store.cluster_of(row), now))
        self._write(session, row, str(state), actor, columns)

    def _write(
        self, session: AsyncSession, row: ClusterRow, event: str, actor: Actor, columns: Mapping[str, Any], **told: Any
    ) -> None:
        for name, value in columns.items():
            setattr(row, name, value)
        row.version += 1
        record(session, row.id, event, at=self._clock.now(), actor=actor.user, **told)
        self._tell(session, row)

    def _tell(self, session: AsyncSession, row: ClusterRow) -> None:
        self._hints.send(session, CLUSTER_LOOP, row.id)
        self._hints.send(session, HEALTH_LOOP, row.id)
        self._hints.send(session, QUEUE_LOOP, QUEUE_KEY)


async def _volume_problems(session: AsyncSession, config: ClusterConfig) -> list[Problem]:
    """Of a cluster that has the plugin each volume is mounted for every run, so it must be one that can be."""
    wanted = await volumes.wanted(session, config.volumes, lock=True)
    found = volumes.missing(config.volumes, wanted, "/volumes")
    if config.kind is ClusterKind.MANAGED:
        found += check_available(wanted, site_of(config.kind, config.volumes), config.name, "/volumes")
    return found


def on_demand_name(run_id: str) -> str:
    return ON_DEMAND_PREFIX + run_id.removeprefix("run_")
