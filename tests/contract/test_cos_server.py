"""The stand-in for COS holds the real SDK to the letter of its signatures: nothing else would show that ours pass."""

import logging
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from qcloud_cos import CosConfig, CosS3Client
from qcloud_cos.cos_exception import CosServiceError

from kernel.errors import Unavailable
from runtime_envs.packages.base import one_chunk
from runtime_envs.packages.bucket import BucketKeys
from tests.builders.object_stores import COS_BUCKET, COS_KEYS, Place, bucket_store
from tests.fakes.cos_server import CosState, cos_server

KEY = "训练/a b~!'()*+,;=@&$.zip"


@pytest.fixture
def state() -> Iterator[CosState]:
    with cos_server(dict(COS_KEYS), COS_BUCKET) as state:
        yield state


@pytest.fixture
def sdk(state: CosState) -> CosS3Client:
    return client(state)


def client(state: CosState, secret: str = COS_KEYS["AKIDmuster"], token: str | None = None) -> CosS3Client:
    config = CosConfig(
        Region="ap-guangzhou",
        SecretId="AKIDmuster",
        SecretKey=secret,
        Token=token,
        Scheme="http",
        IP="127.0.0.1",
        Port=state.port,
    )
    return CosS3Client(config, retry=0)


def test_what_is_signed_passes(state: CosState, sdk: CosS3Client) -> None:
    sdk.put_object(COS_BUCKET, b"0123456789", KEY, EnableMD5=True, Metadata={"x-cos-meta-a": "b c/d"})
    assert state.buckets[COS_BUCKET][KEY].data == b"0123456789"
    assert sdk.get_object(COS_BUCKET, KEY, Range="bytes=2-4")["Body"].get_raw_stream().read() == b"234"
    assert sdk.head_object(COS_BUCKET, KEY)["Content-Length"] == "10"
    assert [one["Key"] for one in sdk.list_objects(COS_BUCKET, Prefix="训练/")["Contents"]] == [KEY]
    sdk.delete_object(COS_BUCKET, KEY)
    assert state.buckets[COS_BUCKET] == {}


def test_a_presigned_address_holds_for_its_time_and_its_object(state: CosState, sdk: CosS3Client) -> None:
    for name in ("a.zip", "b.zip"):
        sdk.put_object(COS_BUCKET, name.encode(), name)
    address = sdk.get_presigned_url(COS_BUCKET, "a.zip", "GET", Expired=60)
    with httpx.Client(trust_env=False) as http:
        assert http.get(address).content == b"a.zip"
        assert http.get(address.replace("a.zip", "b.zip")).status_code == 403
        assert http.delete(address).status_code == 403
        late = http.get(sdk.get_presigned_url(COS_BUCKET, "a.zip", "GET", Expired=-1))
    assert (late.status_code, "AccessDenied" in late.text) == (403, True)


def test_a_wrong_key_is_refused(state: CosState) -> None:
    with pytest.raises(CosServiceError) as refused:
        client(state, "wrong").put_object(COS_BUCKET, b"x", "a.zip")
    assert (refused.value.get_status_code(), refused.value.get_error_code()) == (403, "SignatureDoesNotMatch")
    assert state.buckets[COS_BUCKET] == {}


def test_keys_for_a_while_need_their_token(state: CosState) -> None:
    state.tokens["AKIDmuster"] = "for-a-while"
    client(state, token="for-a-while").put_object(COS_BUCKET, b"x", "a.zip")
    with pytest.raises(CosServiceError):
        client(state).put_object(COS_BUCKET, b"x", "b.zip")
    assert set(state.buckets[COS_BUCKET]) == {"a.zip"}


def test_a_clock_that_is_wrong(state: CosState, sdk: CosS3Client, monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time
    monkeypatch.setattr("qcloud_cos.cos_auth.time.time", lambda: now() + 3600)
    monkeypatch.setattr("tests.fakes.cos_server.clock", now)
    with pytest.raises(CosServiceError) as refused:
        sdk.put_object(COS_BUCKET, b"x", "a.zip")
    assert refused.value.get_error_code() == "RequestTimeTooSkewed"


def test_bytes_that_changed_on_the_way(state: CosState, sdk: CosS3Client) -> None:
    with pytest.raises(CosServiceError) as refused:
        sdk.put_object(COS_BUCKET, b"x", "a.zip", ContentMD5="AAAAAAAAAAAAAAAAAAAAAA==")
    assert refused.value.get_error_code() == "BadDigest"


async def test_a_redirection_is_no_success(cos_place: Place, tmp_path: Path) -> None:
    store, state = bucket_store(cos_place.open(), tmp_path), cos_place.state
    await store.prepare()
    assert state is not None
    state.failures = [("PUT", 307, "TemporaryRedirect")] * 3
    with pytest.raises(Unavailable, match="redirected"):
        await store.put("a/b", one_chunk(b"x"))
    assert await store.size_bytes("a/b") is None


async def test_no_secret_in_any_log(cos_place: Place, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    keys = BucketKeys(key_id=cos_place.keys.key_id, secret_key="a-wrong-secret")
    with pytest.raises(Unavailable):
        await bucket_store(cos_place.open(keys=keys), tmp_path).prepare()
    assert "a-wrong-secret" not in caplog.text
    assert "q-signature" not in caplog.text
