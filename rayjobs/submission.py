"""From an attempt and its job's revision to what is sent to Ray: packages first, then the submission."""

from collections.abc import AsyncIterator, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from cluster_groups.model.cluster import site_of
from kernel.errors import NotFound
from rayjobs.advanced import submission_options
from rayjobs.cargo import (
    RAY_PACKAGE_LIMIT_BYTES,
    CannotSubmit,
    Cargo,
    Carrier,
    all_mounts,
    carry_mounts,
    carry_package,
)
from rayjobs.dispatch import attempt_runtime_env, entrypoint, runner_package, runner_spec
from rayjobs.gateway.base import Delivery, Submission
from rayjobs.leases import Callback
from rayjobs.model.job import JobSpec
from rayjobs.model.run import End, EndClass, EndCode
from rayjobs.snapshot import AttemptSnapshot
from runtime_envs.check import IMAGE_URI
from runtime_envs.model import Package
from runtime_envs.packages.base import one_chunk
from runtime_envs.service import PackageService, RayUploads
from runtime_envs.volumes.available import Site
from runtime_envs.volumes.model import Volume

RAY_PACKAGE_PREFIX = "gcs://"


class VolumesByName(Protocol):
    async def named(self, names: Collection[str]) -> Mapping[str, Volume]:
        """Those of them that there are."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Packages:
    """What submissions are made of: where their bytes come from, and how clusters reach Muster, if they can."""

    own: PackageService
    ray_uploads: RayUploads
    volumes: VolumesByName
    callback: Callback | None = None
    own_url: str | None = None
    """For clusters on this machine, which are all that Muster makes."""

    def carrier(self, attempt: AttemptSnapshot) -> Carrier:
        view, cluster = attempt.view, attempt.view.cluster
        site = site_of(cluster.kind, cluster.mounts) if cluster else Site(has_plugin=False)
        in_image = IMAGE_URI in attempt.spec.runtime_env  # beside which Ray takes no plugin's key
        return Carrier(
            cluster=view.cluster_name,
            site=site,
            callback=self.own_url or (self.callback.url if self.callback else None),
            for_all=cluster.mounts if cluster and site.has_plugin and not in_image else (),
        )


async def prepare(attempt: AttemptSnapshot, packages: Packages) -> tuple[Submission, list[Delivery]]:
    """Raises CannotSubmit."""
    view, spec = attempt.view, attempt.spec
    user_env, deliveries = await _environment(attempt, packages)
    options = submission_options(spec.advanced_parameters)
    lease = packages.callback.terms(view.id) if packages.callback and view.lease_ttl_s is not None else None
    runner = runner_spec(spec, view.run_id, view.epoch)._replace(previous_cluster=attempt.previous_cluster, lease=lease)
    package = runner_package()
    submission = Submission(
        submission_id=view.id,
        entrypoint=entrypoint(runner, package, in_image=IMAGE_URI in user_env),
        runtime_env=attempt_runtime_env(options.runtime_env(user_env), runner, package),
        metadata=spec.metadata,
        options=options.fields,
    )
    return submission, [_runner(), *deliveries]


async def _environment(attempt: AttemptSnapshot, packages: Packages) -> tuple[dict[str, Any], list[Delivery]]:
    """The user's own runtime_env, his package and his volumes in it, and what is to be delivered for that."""
    view, spec = attempt.view, attempt.spec
    carrier = packages.carrier(attempt)
    mounts = await _mounts(attempt, packages.volumes, carrier)
    deliveries = [await _ray_upload(name, attempt.owner, packages.ray_uploads) for name in _ray_uploads(spec)]
    env = {**spec.runtime_env, **mounts.keys}
    if mounts.variables:
        env["env_vars"] = {**spec.runtime_env.get("env_vars", {}), **mounts.variables}
    if spec.package is None:
        return env, deliveries
    package = await _package(spec.package, packages.own)
    if package.size_bytes > RAY_PACKAGE_LIMIT_BYTES:
        return {**env, **carry_package(view.id, package, carrier).keys}, deliveries
    delivery = _delivery(package, packages.own)
    return {**env, "working_dir": delivery.uri}, [delivery, *deliveries]


async def _mounts(attempt: AttemptSnapshot, volumes: VolumesByName, carrier: Carrier) -> Cargo:
    names = {mount.volume for mount in all_mounts(attempt.spec.mounts, carrier)}
    if not names:
        return Cargo()
    return carry_mounts(attempt.view.id, attempt.spec.mounts, await volumes.named(names), carrier)


def _runner() -> Delivery:
    package = runner_package()
    return Delivery(name=package.name, size_bytes=len(package.data), open=lambda: one_chunk(package.data))


def _ray_uploads(spec: JobSpec) -> list[str]:
    uris = [spec.runtime_env.get("working_dir"), *spec.runtime_env.get("py_modules", ())]
    return [
        uri.removeprefix(RAY_PACKAGE_PREFIX)
        for uri in uris
        if isinstance(uri, str) and uri.startswith(RAY_PACKAGE_PREFIX)
    ]


async def _package(package_id: str, packages: PackageService) -> Package:
    try:
        return await packages.get(package_id)
    except NotFound as error:
        raise _gone(package_id) from error


def _delivery(package: Package, packages: PackageService) -> Delivery:
    """Named by content, and as `gcs://`: Ray strips a lone top folder from other archives, never from these."""
    return Delivery(
        name=f"muster_{package.sha256}.zip",
        size_bytes=package.size_bytes,
        open=lambda: _or_gone(package.id, packages.content(package)),
    )


async def _ray_upload(name: str, owner: str, uploads: RayUploads) -> Delivery:
    try:
        upload, chunks = await uploads.open(owner, name)
    except NotFound as error:
        raise _gone(name) from error
    return Delivery(name=name, size_bytes=upload.size_bytes, open=lambda: _or_gone(name, chunks))


async def _or_gone(name: str, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """A row is no proof that the store still has the bytes."""
    try:
        async for chunk in chunks:
            yield chunk
    except NotFound as error:
        raise _gone(name) from error


def _gone(what: str) -> CannotSubmit:
    """A package whose bytes, or row, are not there any more."""
    return CannotSubmit(End(end_class=EndClass.PLATFORM, code=EndCode.PACKAGE_MISSING, params={"package": what}))
