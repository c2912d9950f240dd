"""The commands of a job, of a plain one or of each of its task groups: what may stand there, and whether it fits."""

import re
import unicodedata
from base64 import b64encode
from hashlib import shake_256

from kernel.errors import Problem, pointer_to, problem
from rayjobs.dispatch import MAX_SPEC_BYTES, LeaseTerms, SpecTooLarge, pack, runner_spec
from rayjobs.model.job import JobSpec, Origin
from runtime_envs.check import IMAGE_URI

MAX_ENTRYPOINT = 8192

_LONGEST_RUN = "run_0123456789ABCDEFGHJKMNPQRS"
_LONGEST_ATTEMPT = 10**6
_LONGEST_CLUSTER = "abcdefghijklmnopqrstuvwxyz0123456789-_AB" * 2
_LONGEST_LEASE = LeaseTerms(url=b64encode(shake_256(b"url").digest(150)).decode(), claim=shake_256().hexdigest(16))
"""Longer than any, so that what fits with these fits always."""


def check_commands(spec: JobSpec, origin: Origin) -> list[Problem]:
    """A plain job has a package and a command; a multi-task job its commands in the groups, and perhaps a package."""
    if spec.is_gang:
        if spec.entrypoint.strip():
            return [problem("ENTRYPOINT_AND_TASK_GROUPS", "/entrypoint")]
        return [
            one
            for index, group in enumerate(spec.task_groups)
            for one in check_entrypoint(group.entrypoint, pointer_to("task_groups", index, "entrypoint"))
        ]
    needs_package = origin is Origin.API and IMAGE_URI not in spec.runtime_env
    missing = [problem("PACKAGE_REQUIRED", "/package")] if needs_package and not spec.package else []
    return [*missing, *check_entrypoint(spec.entrypoint, "/entrypoint")]


def check_entrypoint(entrypoint: str, pointer: str) -> list[Problem]:
    if not entrypoint.strip():
        return [problem("ENTRYPOINT_REQUIRED", pointer)]
    if len(entrypoint) > MAX_ENTRYPOINT:
        return [problem("ENTRYPOINT_TOO_LONG", pointer, length=len(entrypoint), maximum=MAX_ENTRYPOINT)]
    if "\0" in entrypoint or any(unicodedata.category(char) == "Cs" for char in entrypoint):
        return [problem("ENTRYPOINT_INVALID", pointer)]
    return []


def starts_in(entrypoint: str, folder: str) -> bool:
    """Whether the command goes into this top folder of its package, by `cd` or by path (requirements §4.1)."""
    return re.search(rf"(?<![\w./-])(\./)?{re.escape(folder)}(?![\w.-])", entrypoint) is not None


def check_size(spec: JobSpec) -> list[Problem]:
    """Of a job that is right in all else: its commands ride in one argument of one process. A plain one always fits."""
    if not spec.is_gang:
        return []
    runner = runner_spec(spec, _LONGEST_RUN, _LONGEST_ATTEMPT)
    runner = runner._replace(previous_cluster=_LONGEST_CLUSTER, lease=_LONGEST_LEASE)
    try:
        pack(runner)
    except SpecTooLarge as error:
        sizes = {"size_bytes": error.size_bytes, "maximum_bytes": MAX_SPEC_BYTES}
        return [problem("JOB_TOO_LARGE", "/task_groups", **sizes)]
    return []
