"""What the service tells the runner, packed into one word of the entrypoint; both sides read this file."""

from __future__ import annotations

import base64
import json
import zlib
from typing import NamedTuple

MAX_SPEC_BYTES = 96 * 1024
"""Linux bounds one argument of a command at 128 KiB, and Ray passes the whole entrypoint as one."""

EXIT_MAX_RUNTIME = 230
EXIT_GUARD_LOST = 231
EXIT_RUNNER_FAILED = 232
EXIT_GANG_TIMEOUT = 233
EXIT_TASK_LOST = 234
EXIT_LEASE_LOST = 235
"""Codes of our own, where programs seldom end; events.jsonl tells for certain."""

OWN_ENV_VARS = ("RAY_JOB_STOP_WAIT_TIME_S",)
"""What Muster adds to the job's runtime_env for Ray's supervisor, and takes out again before the user's code."""


class SpecTooLarge(ValueError):
    """The start command does not fit into an entrypoint."""

    def __init__(self, size_bytes: int) -> None:
        super().__init__(f"the runner's spec takes {size_bytes} bytes, at most {MAX_SPEC_BYTES} fit")
        self.size_bytes = size_bytes


class GroupSpec(NamedTuple):
    """One task group; sizes are those of one task."""

    name: str
    tasks: int
    cpu: float
    memory_bytes: int
    gpu: int
    gpu_type: str | None
    command: str
    min_succeeded: int | None = None
    min_failed: int | None = None


class LeaseTerms(NamedTuple):
    """Where a lease is asked for. The claim is no secret: it serves once, whoever asks first (docs/decisions/0009)."""

    url: str
    claim: str
    take_within_s: float = 120


class RunnerSpec(NamedTuple):
    """Either `command`, of a plain job, or `groups`."""

    submission_id: str
    run_id: str
    attempt: int
    command: str = ""
    groups: tuple[GroupSpec, ...] = ()
    placement_strategy: str = "STRICT_SPREAD"
    gang_timeout_s: float = 600
    stop_grace_s: float = 10
    max_runtime_s: float | None = None
    previous_cluster: str | None = None
    lease: LeaseTerms | None = None
    """None: the job depends on nobody's word, and goes on whatever happens to Muster."""


def pack(spec: RunnerSpec) -> str:
    packed = base64.urlsafe_b64encode(zlib.compress(json.dumps(spec._asdict()).encode(), 9)).decode()
    if len(packed) > MAX_SPEC_BYTES:
        raise SpecTooLarge(len(packed))
    return packed


def unpack(packed: str) -> RunnerSpec:
    fields = json.loads(zlib.decompress(base64.urlsafe_b64decode(packed)))
    groups = tuple(GroupSpec(*group) for group in fields.pop("groups"))
    lease = fields.pop("lease")
    return RunnerSpec(groups=groups, lease=LeaseTerms(*lease) if lease else None, **fields)
