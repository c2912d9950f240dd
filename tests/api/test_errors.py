"""Every refusal has one shape, a code, a pointer and words in the asker's language."""

from enum import StrEnum

import httpx
import pytest
import structlog

from cluster_groups.model.cluster import ClusterKind, ClusterState
from rayjobs.model.job import RunMode
from rayjobs.model.run import RunState

pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)  # nothing here is about the database

JSON = {"Content-Type": "application/json"}
TOKEN = {"name": "ci", "user": "ci", "role": "viewer"}


async def test_the_shape_of_a_problem(client: httpx.AsyncClient) -> None:
    answer = await client.get("/tokens/nobody", headers={"X-Request-Id": "abc-1"})
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.headers["x-request-id"] == "abc-1"
    assert answer.json() == {
        "type": "urn:muster:error:NOT_FOUND",
        "title": "Not found",
        "status": 404,
        "code": "NOT_FOUND",
        "detail": "There is no token nobody.",
        "errors": [],
        "advice": None,
        "params": {"kind": "token", "ref": "nobody"},
        "request_id": "abc-1",
    }


@pytest.mark.parametrize(
    ("accepted", "title"),
    [
        ("zh", "不存在"),
        ("zh-CN,zh;q=0.9,en;q=0.8", "不存在"),
        ("en-GB,en;q=0.9,zh;q=0.8", "Not found"),
        ("fr, zh;q=0.1", "不存在"),
        ("fr;q=x", "Not found"),
        ("zh;q=0", "Not found"),
    ],
)
async def test_words_in_the_language_asked_for(client: httpx.AsyncClient, accepted: str, title: str) -> None:
    answer = await client.get("/tokens/nobody", headers={"Accept-Language": accepted})
    assert (answer.json()["title"], answer.json()["code"]) == (title, "NOT_FOUND")


@pytest.mark.parametrize(
    ("content", "headers", "status", "code"),
    [
        (b"{", JSON, 400, "MALFORMED_JSON"),
        (b'{"name": NaN}', JSON, 400, "MALFORMED_JSON"),
        (b'{"name": "\xff"}', JSON, 400, "MALFORMED_JSON"),
        (rb'{"name": "a\u0000"}', JSON, 400, "MALFORMED_JSON"),
        (rb'{"name": ["\ud800"]}', JSON, 400, "MALFORMED_JSON"),
        (b"[" * 100_000, JSON, 400, "MALFORMED_JSON"),
        (b'{"name": "a", "name": "b"}', JSON, 400, "DUPLICATE_KEY"),
        (rb'{"name": {"\ud800": 1, "\ud800": 2}}', JSON, 400, "DUPLICATE_KEY"),
        (b"", JSON, 422, "BODY_REQUIRED"),
        (b"[]", JSON, 422, "INVALID_TYPE"),
        (b"{}", {"Content-Type": "text/plain"}, 415, "UNSUPPORTED_MEDIA_TYPE"),
        (b"{}", {}, 415, "UNSUPPORTED_MEDIA_TYPE"),
        (b" " * (2 * 2**20 + 1), JSON, 413, "BODY_TOO_LARGE"),
    ],
)
async def test_bodies_that_cannot_be_read(
    client: httpx.AsyncClient, content: bytes, headers: dict[str, str], status: int, code: str
) -> None:
    answer = await client.post("/tokens", content=content, headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize(
    ("change", "pointer", "code"),
    [
        ({"name": None}, "/name", "INVALID_TYPE"),
        ({"user": 7}, "/user", "INVALID_TYPE"),
        ({"user": ""}, "/user", "INVALID_VALUE"),
        ({"role": "boss"}, "/role", "INVALID_VALUE"),
        ({"resource_packages": ["a", 1]}, "/resource_packages/1", "INVALID_TYPE"),
        ({"resource_packages": "a"}, "/resource_packages", "INVALID_TYPE"),
        ({"expires_at": "tomorrow"}, "/expires_at", "INVALID_TYPE"),
        ({"expires_at": "2030-01-01T00:00:00"}, "/expires_at", "INVALID_TYPE"),
        ({"expires_at": "2001-01-01T00:00:00Z"}, "/expires_at", "INVALID_VALUE"),
        ({"name": "No"}, "/name", "INVALID_NAME"),
        ({"a/b~c": 1}, "/a~1b~0c", "UNKNOWN_FIELD"),
    ],
)
async def test_a_wrong_field_is_pointed_at(
    client: httpx.AsyncClient, change: dict[str, object], pointer: str, code: str
) -> None:
    answer = await client.post("/tokens", json={**TOKEN, **change})
    problem = answer.json()
    assert (answer.status_code, problem["code"]) == (422, code), problem
    assert [(error["pointer"], error["code"]) for error in problem["errors"]] == [(pointer, code)]


@pytest.mark.parametrize(
    ("value", "detail"),
    [
        (4, 'The value is not of the type string ("4").'),
        (True, 'The value is not of the type string ("true").'),
        ({"a": 1}, 'The value is not of the type string ("{\\"a\\": 1}").'),
        (None, "The value is not of the type string."),
        ([1] * 100, "The value is not of the type string."),
    ],
)
async def test_of_what_should_be_a_string_the_string_is_told(
    client: httpx.AsyncClient, value: object, detail: str
) -> None:
    body = {"name": "c1", "advanced_parameters": {"RAY_ROTATION_MAX_BYTES": value}}
    problem = (await client.post("/clusters", json=body)).json()
    assert (problem["code"], problem["detail"]) == ("INVALID_TYPE", detail)
    assert problem["errors"][0]["pointer"] == "/advanced_parameters/RAY_ROTATION_MAX_BYTES"


async def test_a_missing_field_is_pointed_at(client: httpx.AsyncClient) -> None:
    answer = await client.post("/tokens", json={"name": "ci", "user": "ci"})
    assert (answer.json()["code"], answer.json()["errors"][0]["pointer"]) == ("FIELD_REQUIRED", "/role")


async def test_several_wrong_fields_come_together(client: httpx.AsyncClient) -> None:
    problem = (await client.post("/tokens", json={"name": 1, "colour": "red"})).json()
    assert (problem["code"], problem["params"]) == ("VALIDATION_FAILED", {"count": 4})
    assert {(error["pointer"], error["code"]) for error in problem["errors"]} == {
        ("/name", "INVALID_TYPE"),
        ("/user", "FIELD_REQUIRED"),
        ("/role", "FIELD_REQUIRED"),
        ("/colour", "UNKNOWN_FIELD"),
    }


@pytest.mark.parametrize(
    ("query", "pointer", "code"),
    [
        ("limit=0", "/limit", "INVALID_VALUE"),
        ("limit=501", "/limit", "INVALID_VALUE"),
        ("limit=ten", "/limit", "INVALID_TYPE"),
        ("cursor=%21", "/cursor", "INVALID_CURSOR"),
        ("sort=digest", "/sort", "INVALID_SORT"),
        ("limt=5", "/limt", "UNKNOWN_PARAMETER"),
    ],
)
async def test_wrong_list_queries(client: httpx.AsyncClient, query: str, pointer: str, code: str) -> None:
    answer = await client.get(f"/tokens?{query}")
    problem = answer.json()
    assert (answer.status_code, problem["code"], problem["errors"][0]["pointer"]) == (422, code, pointer)


async def test_addresses_that_are_none(client: httpx.AsyncClient) -> None:
    unknown = await client.get("/nothing-here")
    assert (unknown.status_code, unknown.json()["params"]["ref"]) == (404, "/api/v1/nothing-here")
    for nul in ("/tokens/a%00b", "/audit?target=%00"):
        assert (await client.get(nul)).json()["code"] == "MALFORMED_REQUEST"


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PUT", "/whoami", "GET, HEAD"),
        ("PUT", "/jobs/some", "DELETE, GET, HEAD, PATCH"),
        ("DELETE", "/jobs", "GET, HEAD, POST"),
        ("GET", "/jobs/some/runs", "POST"),
        ("PUT", "http://muster/docs", "GET, HEAD"),
    ],
)
async def test_methods_an_address_does_not_take(
    client: httpx.AsyncClient, method: str, path: str, allowed: str
) -> None:
    answer = await client.request(method, path)
    problem = answer.json()
    assert (answer.status_code, problem["code"], answer.headers["allow"]) == (405, "METHOD_NOT_ALLOWED", allowed)
    assert problem["detail"].endswith(f"possible are: {allowed}.")


@pytest.mark.parametrize("path", ["/whoami", "/jobs", "/jobs/none", "http://muster/healthz", "http://muster/metrics"])
async def test_head_is_get_without_a_body(client: httpx.AsyncClient, path: str) -> None:
    head, get = await client.head(path), await client.get(path)
    assert (head.status_code, head.headers["content-type"]) == (get.status_code, get.headers["content-type"])
    assert get.content
    assert head.content == b""


@pytest.mark.parametrize(
    ("query", "allowed"),
    [
        ("runs?state=FOO", RunState),
        ("runs?state=RUNNING&state=running", RunState),
        ("clusters?state=FOO", ClusterState),
        ("clusters?kind=FOO", ClusterKind),
        ("jobs?run_mode=FOO", RunMode),
    ],
)
async def test_filters_by_what_does_not_exist(client: httpx.AsyncClient, query: str, allowed: type[StrEnum]) -> None:
    problem = (await client.get(f"/{query}")).json()
    assert (problem["status"], problem["code"]) == (422, "INVALID_VALUE")
    assert problem["params"]["allowed"] == [str(member) for member in allowed]


async def test_a_misspelt_parameter_stores_nothing(client: httpx.AsyncClient) -> None:
    problem = (await client.post("/tokens?dryrun=true", json=TOKEN)).json()
    assert (problem["status"], problem["code"]) == (422, "UNKNOWN_PARAMETER")
    assert problem["params"] == {"parameter": "dryrun", "known": ["dry_run"]}
    assert (await client.get("/tokens/ci")).status_code == 404


async def test_what_nobody_expected_is_logged_and_not_told(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    mistake = ZeroDivisionError("secret detail")

    async def fail(*_: object) -> None:
        raise mistake

    monkeypatch.setattr("api.auth.Tokens.get", fail)
    with structlog.testing.capture_logs() as logs:
        answer = await client.get("/tokens/x")
    assert (answer.status_code, answer.json()["code"]) == (500, "INTERNAL_ERROR")
    assert "secret detail" not in answer.text
    assert [(line["event"], line["exc_info"]) for line in logs] == [("request_failed", mistake)]
