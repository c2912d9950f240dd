"""Credentials over HTTP: made, given other secrets, deleted; their data goes in only."""

from typing import Any

import httpx
import pytest

from api.wiring import Services
from kernel.actor import Role
from runtime_envs.credentials import CredentialType
from tests.api.conftest import SignIn

pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)  # nothing here is about the database

DATA = {
    "cos": {"secret_id": "i", "secret_key": "k"},
    "s3": {"access_key_id": "i", "secret_access_key": "k", "session_token": "t"},
    "ray_token": {"token": "t"},
    "registry": {"server": "registry.example", "username": "u", "password": "p"},
}


async def make(client: httpx.AsyncClient, kind: str = "cos", name: str = "store") -> httpx.Response:
    return await client.post("/credentials", json={"name": name, "type": kind, "data": DATA[kind]})


@pytest.mark.parametrize("kind", DATA)
async def test_made_and_shown_without_its_data(client: httpx.AsyncClient, services: Services, kind: str) -> None:
    made = await make(client, kind)
    assert made.status_code == 201, made.text
    shown = (await client.get("/credentials/store")).json()
    assert set(shown) == {"id", "name", "type", "created_at", "created_by"}
    assert (await client.get("/credentials")).json()["items"] == [shown]
    assert await services.credentials.data("store", CredentialType(kind)) == DATA[kind]


async def test_other_secrets_under_the_same_name(client: httpx.AsyncClient, services: Services) -> None:
    made = (await make(client)).json()
    new = {"secret_id": "i2", "secret_key": "k2", "token": "t2"}
    assert (await client.patch("/credentials/store?dry_run=true", json={"data": new})).json() == made
    assert await services.credentials.data("store", CredentialType.COS) == DATA["cos"]
    assert (await client.patch("/credentials/store", json={"data": new})).json() == made
    assert await services.credentials.data("store", CredentialType.COS) == new
    audit = (await client.get("/audit", params={"target": "store"})).json()["items"]
    assert [(one["action"], one["detail"]) for one in audit] == [("update", {}), ("create", {})]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"data": {"secret_id": "i"}}, "CREDENTIAL_DATA_INVALID"),
        ({"data": DATA["s3"]}, "CREDENTIAL_DATA_INVALID"),
        ({"data": {"secret_id": "i", "secret_key": " k"}}, "CREDENTIAL_DATA_INVALID"),
        ({"data": {"secret_id": "i", "secret_key": "k\tk"}}, "CREDENTIAL_DATA_INVALID"),
        ({"data": {"secret_id": "i", "secret_key": 7}}, "INVALID_TYPE"),
        ({"data": DATA["cos"], "type": "cos"}, "UNKNOWN_FIELD"),
        ({}, "FIELD_REQUIRED"),
    ],
)
async def test_secrets_that_are_none(
    client: httpx.AsyncClient, services: Services, body: dict[str, Any], code: str
) -> None:
    await make(client)
    answer = await client.patch("/credentials/store", json=body)
    assert (answer.status_code, answer.json()["code"]) == (422, code)
    assert await services.credentials.data("store", CredentialType.COS) == DATA["cos"]


async def test_who_may(client: httpx.AsyncClient, sign_in: SignIn) -> None:
    await make(client)
    submitter = await sign_in(Role.SUBMITTER)
    assert (await make(submitter, name="other")).status_code == 403
    assert (await submitter.patch("/credentials/store", json={"data": DATA["cos"]})).status_code == 403
    assert (await submitter.delete("/credentials/store")).status_code == 403
    assert (await client.patch("/credentials/none", json={"data": DATA["cos"]})).status_code == 404
    assert (await client.delete("/credentials/store")).status_code == 204


@pytest.mark.parametrize("token", ["to ken", "tok\u00e9n", "t\tk"])
async def test_a_token_that_no_header_carries(client: httpx.AsyncClient, token: str) -> None:
    answer = await client.post("/credentials", json={"name": "t", "type": "ray_token", "data": {"token": token}})
    assert (answer.status_code, answer.json()["code"]) == (422, "CREDENTIAL_DATA_INVALID")
