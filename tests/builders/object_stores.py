"""Both kinds of servers with buckets, and how our adapters reach them."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from runtime_envs.packages.bucket import Bucket, BucketAddress, BucketKeys, BucketType, Patience
from runtime_envs.packages.bucket_store import BucketBlobStore
from runtime_envs.packages.cos import CosBucket
from runtime_envs.packages.s3 import S3Bucket
from tests.builders.seaweedfs import BUCKET, CLOSED_BUCKET, S3Server
from tests.fakes.cos_server import CosState, cos_server

COS_BUCKET, COS_CLOSED_BUCKET = "muster-1250000000", "closed-1250000000"
COS_KEYS = {"AKIDmuster": "cos-secret"}
QUICK = Patience(connect_s=2, silence_s=1, tries=1)
"""For tests of servers that do not answer."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """One server with an open and a closed bucket, and how our adapter reaches it."""

    type: BucketType
    endpoint: str
    keys: BucketKeys
    bucket: str
    closed_bucket: str
    missing_bucket: str
    state: CosState | None = None

    @property
    def port(self) -> int:
        return int(self.endpoint.rpartition(":")[2])

    def open(
        self,
        *,
        bucket: str | None = None,
        endpoint: str | None = None,
        keys: BucketKeys | None = None,
        patience: Patience | None = None,
    ) -> Bucket:
        address = BucketAddress(
            type=self.type,
            bucket=bucket or self.bucket,
            region="ap-guangzhou" if self.type is BucketType.COS else None,
            endpoint=endpoint or self.endpoint,
        )
        adapter = CosBucket if self.type is BucketType.COS else S3Bucket
        return adapter(address, keys or self.keys, patience or Patience())


def s3_place(server: S3Server) -> Place:
    return Place(
        type=BucketType.S3,
        endpoint=server.endpoint,
        keys=BucketKeys(key_id=server.key_id, secret_key=server.secret_key),
        bucket=BUCKET,
        closed_bucket=CLOSED_BUCKET,
        missing_bucket="muster-nowhere",
    )


@contextmanager
def cos_place() -> Iterator[Place]:
    with cos_server(COS_KEYS, COS_BUCKET, COS_CLOSED_BUCKET) as state:
        state.closed.add(COS_CLOSED_BUCKET)
        yield Place(
            type=BucketType.COS,
            endpoint=state.endpoint,
            keys=BucketKeys(key_id="AKIDmuster", secret_key="cos-secret"),
            bucket=COS_BUCKET,
            closed_bucket=COS_CLOSED_BUCKET,
            missing_bucket="nowhere-1250000000",
            state=state,
        )


def bucket_store(bucket: Bucket, folder: Path) -> BucketBlobStore:
    """On a prefix of its own, so that one bucket serves all tests."""
    return BucketBlobStore(bucket, f"{uuid4().hex}/", folder / "spool")
