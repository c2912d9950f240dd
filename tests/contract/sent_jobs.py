"""Jobs put to real local clusters through the gateway, as Muster does it."""

from cluster_groups.model.cluster import Endpoint
from rayjobs.gateway.base import RayJob, RayStatus, Submission
from rayjobs.gateway.ray_jobs import RayJobsGateway
from tests.contract.local_lab import Lab, until

LOG_BYTES = 2**20


async def send(lab: Lab, endpoint: Endpoint, submission: Submission, timeout_s: float = 60) -> RayJob:
    """What Ray says of it when it is over, however it ended."""
    gateway = RayJobsGateway(lab.http)
    await gateway.submit(endpoint, submission)

    async def over() -> RayJob | None:
        job = await gateway.look(endpoint, submission.submission_id)
        return job if job and job.status not in {RayStatus.PENDING, RayStatus.RUNNING} else None

    job = await until(over, timeout_s)
    assert isinstance(job, RayJob)
    return job


async def log_of(lab: Lab, endpoint: Endpoint, submission_id: str, job: RayJob) -> str:
    path = f"job-driver-{submission_id}.log"
    gateway = RayJobsGateway(lab.http)
    data = await gateway.read_log(endpoint, job.driver_address or "", path, offset=0, limit_bytes=LOG_BYTES)
    return data.decode()
