"""From an attempt and its job's revision to what is sent to Ray: packages first, then the submission."""

from collections.abc import AsyncIterator
from dataclasses import dataclass

from kernel.errors import NotFound
from rayjobs.advanced import submission_options
from rayjobs.dispatch import attempt_runtime_env, entrypoint, runner_package, runner_spec
from rayjobs.gateway.base import Delivery, Submission
from rayjobs.leases import Callback
from rayjobs.model.job import JobSpec
from rayjobs.snapshot import AttemptSnapshot
from runtime_envs.packages.base import one_chunk
from runtime_envs.service import PackageService, RayUploads

RAY_PACKAGE_PREFIX = "gcs://"


class PackageGone(Exception):
    """The bytes a run needs are not in the store any more."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Packages:
    """What submissions are made of: where their bytes come from, and how their runners reach Muster, if they can."""

    own: PackageService
    ray_uploads: RayUploads
    callback: Callback | None = None


async def prepare(attempt: AttemptSnapshot, packages: Packages) -> tuple[Submission, list[Delivery]]:
    view, spec = attempt.view, attempt.spec
    deliveries = [_runner()]
    user_env = dict(spec.runtime_env)
    if spec.package is not None:
        delivery = await _package(spec.package, packages.own)
        deliveries.append(delivery)
        user_env["working_dir"] = delivery.uri
    deliveries += [await _ray_upload(name, attempt.owner, packages.ray_uploads) for name in _ray_uploads(spec)]
    options = submission_options(spec.advanced_parameters)
    lease = packages.callback.terms(view.id) if packages.callback and view.lease_ttl_s is not None else None
    runner = runner_spec(spec, view.run_id, view.epoch)._replace(previous_cluster=attempt.previous_cluster, lease=lease)
    package = runner_package()
    submission = Submission(
        submission_id=view.id,
        entrypoint=entrypoint(runner, package),
        runtime_env=attempt_runtime_env(options.runtime_env(user_env), runner, package),
        metadata=spec.metadata,
        options=options.fields,
    )
    return submission, deliveries


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


async def _package(package_id: str, packages: PackageService) -> Delivery:
    """Named by content, and as `gcs://`: Ray strips a lone top folder from other archives, never from these."""
    try:
        package = await packages.get(package_id)
    except NotFound as error:
        raise PackageGone(package_id) from error
    name = f"muster_{package.sha256}.zip"
    return Delivery(
        name=name, size_bytes=package.size_bytes, open=lambda: _or_gone(package_id, packages.content(package))
    )


async def _ray_upload(name: str, owner: str, uploads: RayUploads) -> Delivery:
    try:
        upload, chunks = await uploads.open(owner, name)
    except NotFound as error:
        raise PackageGone(name) from error
    return Delivery(name=name, size_bytes=upload.size_bytes, open=lambda: _or_gone(name, chunks))


async def _or_gone(name: str, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """A row is no proof that the store still has the bytes."""
    try:
        async for chunk in chunks:
            yield chunk
    except NotFound as error:
        raise PackageGone(name) from error
