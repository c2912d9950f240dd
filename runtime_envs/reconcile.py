"""Blobs nobody refers to: left by a crash, a replaced upload, an upload that has had its time."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from kernel.db import Database
from runtime_envs import store
from runtime_envs.packages.base import BlobStore

_GRACE = timedelta(days=1)
"""A blob comes before its row: what is younger may still be on its way in."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Collected:
    blobs: int
    size_bytes: int


async def collect(database: Database, blobs: BlobStore, now: datetime, *, keep_ray_uploads_s: float) -> Collected:
    """`keep_ray_uploads_s`: how long an upload of the Ray client stays after its last use."""
    async with database.write() as session:
        await store.forget_ray_uploads(session, now - timedelta(seconds=keep_ray_uploads_s))
        await store.forget_uploads(session, now)
    async with database.read() as session:
        in_use = await store.package_keys(session) | await store.ray_upload_keys(session)
        in_use |= await store.upload_keys(session)
    count = size_bytes = 0
    for prefix in ("packages/", "ray-uploads/", "uploads/"):
        async for blob in blobs.find(prefix):
            if blob.key in in_use or now - blob.modified_at < _GRACE:
                continue
            await blobs.delete(blob.key)
            count += 1
            size_bytes += blob.size_bytes
    return Collected(blobs=count, size_bytes=size_bytes)
