"""Where blobs are kept, from the settings: a folder of the service, or a bucket."""

from urllib.parse import urlsplit

from api.settings import Settings
from runtime_envs.packages.base import BlobStore
from runtime_envs.packages.bucket import Bucket, BucketAddress, BucketKeys, BucketType, Patience
from runtime_envs.packages.bucket_store import BucketBlobStore
from runtime_envs.packages.local import LocalBlobStore


def blob_store(settings: Settings) -> BlobStore:
    if settings.blob_store is None:
        return LocalBlobStore(settings.state_dir / "blobs")
    place = urlsplit(settings.blob_store)
    address = BucketAddress(
        type=BucketType(place.scheme),
        bucket=place.netloc,
        region=settings.blob_region,
        endpoint=settings.blob_endpoint,
    )
    prefix = place.path.strip("/")
    bucket = open_bucket(address, _keys(settings))
    return BucketBlobStore(bucket, f"{prefix}/" if prefix else "", settings.state_dir / "spool")


def open_bucket(address: BucketAddress, keys: BucketKeys | None) -> Bucket:
    """S3 may do without keys of its own; COS may not, which the settings see to."""
    if address.type is BucketType.S3 or keys is None:
        from runtime_envs.packages.s3 import S3Bucket  # noqa: PLC0415  an SDK is slow to load, and many need none

        return S3Bucket(address, keys, Patience())
    from runtime_envs.packages.cos import CosBucket  # noqa: PLC0415

    return CosBucket(address, keys, Patience())


def _keys(settings: Settings) -> BucketKeys | None:
    if settings.blob_key_id is None or settings.blob_secret_key is None:
        return None
    return BucketKeys(
        key_id=settings.blob_key_id.get_secret_value(), secret_key=settings.blob_secret_key.get_secret_value()
    )
