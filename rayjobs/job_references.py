"""What a job names beside itself: whether it is there, whether this person may use it, and what to warn of."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from sqlalchemy.ext.asyncio import AsyncSession

from cluster_groups.check import check_name, warnings_about_image
from cluster_groups.check_parameters import check_on_backend
from cluster_groups.decide.quota import beyond_quota
from cluster_groups.model.cluster import LOCAL, Cluster, ClusterKind, ClusterState, site_of
from cluster_groups.model.quota import ResourceGroup
from cluster_groups.store import clusters, groups, resources
from kernel.actor import EVERY, Actor
from kernel.errors import Conflict, Denied, NotFound, Problem, problem
from kernel.ids import looks_like_id
from kernel.resources import Resources, total
from rayjobs import run_store
from rayjobs.job_check import has_own_nodes
from rayjobs.job_command import starts_in
from rayjobs.job_fit import Target, check_fit, check_plain_fit, first_nodes, nodes_of, own_nodes
from rayjobs.model.job import JobSpec, RunMode
from rayjobs.task_groups import warnings_about_gang
from runtime_envs import store as packages
from runtime_envs.model import Package
from runtime_envs.volumes import store as volumes
from runtime_envs.volumes.available import check_available
from runtime_envs.volumes.check import check_mounts

TOP_FOLDER = "SINGLE_TOP_FOLDER"
"""The upload warns of it always; a job only if its command does not go there."""


@dataclass(slots=True)
class Findings:
    errors: list[Problem] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)
    resource_group: ResourceGroup | None = None
    """The one that is named, where there is one of that name."""

    def add_missing(self, kind: str, ref: str, pointer: str) -> None:
        self.errors.append(problem("REFERENCE_NOT_FOUND", pointer, kind=kind, ref=ref))


async def check_opened(session: AsyncSession, actor: Actor, spec: JobSpec) -> None:
    """The preconditions of R38 that hold whatever the job says."""
    if not actor.resource_packages:
        raise Denied("NOT_ALLOW_LISTED", user=actor.user)
    if spec.run_mode is RunMode.ON_DEMAND and not await resources.package_names(session):
        raise Conflict("SERVICE_NOT_OPENED")


async def check_grant(session: AsyncSession, actor: Actor, spec: JobSpec) -> None:
    """Asked when a job is saved and at every run: a grant may have been withdrawn since (R38)."""
    if EVERY in actor.resource_packages:
        return
    used = await _packages_used(session, spec)
    denied = {one for one in used if one is not None and not actor.may_use_package(one)}
    if denied and (denied == used or spec.run_mode is not RunMode.CLUSTER_GROUP):
        raise Denied("RESOURCE_PACKAGE_DENIED", resource_package=min(denied), user=actor.user)


async def _packages_used(session: AsyncSession, spec: JobSpec) -> set[str | None]:
    """Of a group those of all its members, of which one is enough: its policy leaves the others out."""
    if spec.run_mode is RunMode.ON_DEMAND:
        return {spec.resource_package or ""}
    names = {spec.cluster}
    if spec.run_mode is RunMode.CLUSTER_GROUP:
        group = await groups.named(session, spec.cluster_group or "")
        names = {member.cluster for member in group.members} if group else set()
    found = [await clusters.reference(session, name) for name in sorted(filter(None, names))]
    return {one.resource_package for one in found if one}


async def check_references(session: AsyncSession, spec: JobSpec) -> Findings:
    """Whether there is what it names; whether that is large enough, `check_room` asks."""
    findings = Findings(warnings=warnings_about_gang(spec))
    if spec.run_mode is RunMode.ON_DEMAND:
        findings.warnings += warnings_about_image(spec.image, LOCAL)  # the one backend there is today
        findings.errors += check_on_backend(spec.advanced_parameters, LOCAL)
        await _check_resources(session, spec, findings)
    elif spec.run_mode is RunMode.CLUSTER:
        await _check_cluster(session, spec.cluster or "", findings)
    else:
        await _check_group(session, spec.cluster_group or "", findings)
    await _check_package(session, spec, findings)
    if spec.mounts and not check_mounts(spec.mounts, "/mounts"):  # what is wrong in itself `job_check` tells
        await _check_mounts(session, spec, findings)
    return findings


async def _check_resources(session: AsyncSession, spec: JobSpec, findings: Findings) -> None:
    package, name = spec.resource_package or "", spec.resource_group or ""
    if package not in await resources.package_names(session):
        findings.add_missing("resource_package", package, "/resource_package")
    findings.resource_group = group = await resources.group_named(session, name) if _is_name(name) else None
    if group is None:
        findings.add_missing("resource_group", name, "/resource_group")
    elif group.resource_package != package:
        findings.errors.append(
            problem("RESOURCE_GROUP_NOT_IN_PACKAGE", "/resource_group", resource_group=name, resource_package=package)
        )


async def check_room(session: AsyncSession, spec: JobSpec, found: Findings) -> Findings:
    """What can never have its place is refused (R4, R63, A19). Of a job whose references were found good."""
    findings = Findings()
    if found.resource_group is not None:
        _check_quota(spec, found.resource_group, findings)
    if not spec.is_gang and spec.run_mode is not RunMode.ON_DEMAND:
        findings.errors += await _check_plain(session, spec)
    if spec.is_gang and not findings.errors:
        demand = run_store.gang_demand(spec)
        target = await _target(session, spec, found.resource_group)
        findings.errors += check_fit(spec.task_groups, demand, target)
        if found.resource_group is not None and not findings.errors:
            # No backend enlarges a cluster yet: what it starts with is all there will be.
            short = check_fit(spec.task_groups, demand, first_nodes(spec))
            findings.warnings += [problem("GANG_NEEDS_GROWTH", "/worker_groups", **one.params) for one in short]
    return findings


def _check_quota(spec: JobSpec, group: ResourceGroup, findings: Findings) -> None:
    least = run_store.demand_of(spec).resources
    most = total(one.resources * one.max_instances for one in spec.worker_groups)
    most += spec.head.resources if spec.head else Resources()
    if short := beyond_quota(least, Resources(), group.quota):
        pointer = "/worker_groups" if has_own_nodes(spec) else "/task_groups"
        findings.errors.append(problem("QUOTA_NEVER_FITS", pointer, resource_group=group.name, short=short))
    elif short := beyond_quota(most, Resources(), group.quota):
        findings.warnings.append(
            problem("WORKERS_MAX_ABOVE_QUOTA", "/worker_groups", resource_group=group.name, short=short)
        )


async def _check_plain(session: AsyncSession, spec: JobSpec) -> list[Problem]:
    demand = run_store.demand_of(spec)
    if not any(demand.resources.flat().values()):  # as most do: a driver slot of the head is all they take
        return []
    return check_plain_fit(spec, demand, *await _clusters(session, spec))


async def _target(session: AsyncSession, spec: JobSpec, group: ResourceGroup | None) -> Target:
    """Nothing is known of a cluster that was never seen."""
    if group is not None:
        return own_nodes(spec, group.quota)
    name, found = await _clusters(session, spec)
    nodes = [nodes_of(cluster) for cluster in found]
    return Target(name=name, clusters=nodes if all(nodes) else [])


async def _clusters(session: AsyncSession, spec: JobSpec) -> tuple[str, Sequence[Cluster]]:
    """What the job goes to, and what that may turn out to be: of a group any member that is enabled."""
    if spec.run_mode is RunMode.CLUSTER:
        name = spec.cluster or ""
        return name, await clusters.listed(session, [name])
    name = spec.cluster_group or ""
    entry = await groups.named(session, name)
    members = [member.cluster for member in entry.members if member.enabled] if entry else []
    return name, await clusters.listed(session, members)


async def _check_cluster(session: AsyncSession, name: str, findings: Findings) -> None:
    state = await clusters.state_of_listed(session, name) if _is_name(name) else None
    if state is None:
        findings.add_missing("cluster", name, "/cluster")
    elif state is not ClusterState.RUNNING:
        findings.warnings.append(problem("TARGET_NOT_RUNNING", "/cluster", cluster=name, state=str(state)))


async def _check_group(session: AsyncSession, name: str, findings: Findings) -> None:
    group = await groups.named(session, name)
    if group is None:
        findings.add_missing("cluster_group", name, "/cluster_group")
    elif not any(member.enabled for member in group.members):
        findings.warnings.append(problem("GROUP_EMPTY", "/cluster_group", cluster_group=name))


async def _check_package(session: AsyncSession, spec: JobSpec, findings: Findings) -> None:
    if spec.package is None:
        return
    package = await _find_package(session, spec.package)
    if package is None:
        findings.add_missing("package", spec.package, "/package")
        return
    folders = [str(one.params["folder"]) for one in package.warnings if one.code == TOP_FOLDER]
    commands = {"/entrypoint": spec.entrypoint}
    if spec.is_gang:
        commands = {f"/task_groups/{at}/entrypoint": group.entrypoint for at, group in enumerate(spec.task_groups)}
    findings.warnings += [
        problem(TOP_FOLDER, pointer, folder=folder)
        for pointer, command in commands.items()
        for folder in folders
        if not starts_in(command, folder)
    ]


async def _check_mounts(session: AsyncSession, spec: JobSpec, findings: Findings) -> None:
    """Members of a group that cannot have them are left out when a run is placed."""
    wanted = await volumes.wanted(session, spec.mounts, lock=True)
    findings.errors += volumes.missing(spec.mounts, wanted, "/mounts")
    if spec.run_mode is RunMode.ON_DEMAND:
        findings.errors += check_available(wanted, site_of(ClusterKind.MANAGED, ()), spec.name, "/mounts")
    elif spec.run_mode is RunMode.CLUSTER:
        for cluster in await clusters.listed(session, [spec.cluster or ""]):
            site = site_of(cluster.kind, cluster.volumes)
            findings.errors += check_available(wanted, site, cluster.name, "/mounts")


async def _find_package(session: AsyncSession, package_id: str) -> Package | None:
    if not looks_like_id(package_id):
        return None
    try:
        return await packages.get_package(session, package_id, lock=packages.Lock.SHARED)
    except NotFound:
        return None


def _is_name(text: str) -> bool:
    return not check_name(text)
