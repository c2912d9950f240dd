"""Tokens, roles and the audit."""

from datetime import UTC, datetime, timedelta

import httpx
import pytest
from sqlalchemy import select, update

from api.auth import digest
from api.tables import TokenRow
from api.wiring import Services, prepare
from kernel.actor import Role
from tests.api.conftest import ADMIN_SECRET, SignIn

CI = {"name": "ci", "user": "ann", "role": "submitter", "resource_packages": ["gold"]}


async def test_a_token_is_made_shown_once_and_used(client: httpx.AsyncClient, anonymous: httpx.AsyncClient) -> None:
    made = await client.post("/tokens", json=CI)
    token = made.json()
    assert made.status_code == 201
    assert made.headers["location"] == f"/api/v1/tokens/{token['id']}"
    assert len(token["secret"]) == len("mst_") + 43
    seen = (await client.get("/tokens/ci")).json()
    assert seen == {name: value for name, value in token.items() if name not in {"secret", "warnings"}}
    me = await anonymous.get("/whoami", headers={"Authorization": f"Bearer {token['secret']}"})
    assert me.json() == {"user": "ann", "role": "submitter", "resource_packages": ["gold"], "token": "ci"}


async def test_a_package_that_is_none_is_warned_of(client: httpx.AsyncClient) -> None:
    answer = await client.post("/tokens", json={**CI, "resource_packages": ["default", "golld"]})
    (warning,) = answer.json()["warnings"]
    assert (answer.status_code, warning["code"]) == (201, "REFERENCE_NOT_FOUND")
    assert warning["pointer"] == "/resource_packages/1"
    of_all = await client.post("/tokens", json={**CI, "name": "all", "resource_packages": ["*"]})
    assert of_all.json()["warnings"] == []


async def test_only_the_digest_is_stored(client: httpx.AsyncClient, services: Services) -> None:
    secret = (await client.post("/tokens", json=CI)).json()["secret"]
    async with services.database.read() as session:
        row = (await session.execute(select(TokenRow).where(TokenRow.name == "ci"))).scalar_one()
    assert row.digest == digest(secret)
    assert secret not in str(vars(row))


@pytest.mark.parametrize(
    "header", [None, "", "Bearer", "Bearer ", "Bearer mst_wrong", f"Basic {ADMIN_SECRET}", ADMIN_SECRET]
)
async def test_without_a_valid_token(anonymous: httpx.AsyncClient, header: str | None) -> None:
    answer = await anonymous.get("/whoami", headers={} if header is None else {"Authorization": header})
    assert (answer.status_code, answer.json()["code"]) == (401, "UNAUTHENTICATED")
    assert answer.headers["www-authenticate"] == "Bearer"


async def test_a_deleted_token_is_refused_at_once(client: httpx.AsyncClient, sign_in: SignIn) -> None:
    viewer = await sign_in(Role.VIEWER)
    assert (await viewer.get("/whoami")).status_code == 200
    assert (await client.delete("/tokens/viewer")).status_code == 204
    assert (await viewer.get("/whoami")).status_code == 401
    assert (await client.delete("/tokens/viewer")).status_code == 404


async def test_an_expired_token_is_refused(client: httpx.AsyncClient, sign_in: SignIn, services: Services) -> None:
    viewer = await sign_in(Role.VIEWER, expires_at=datetime.now(UTC) + timedelta(hours=1))
    assert (await viewer.get("/whoami")).status_code == 200
    async with services.database.write() as session:
        past = datetime.now(UTC) - timedelta(seconds=1)
        await session.execute(update(TokenRow).where(TokenRow.name == "viewer").values(expires_at=past))
    services.tokens._known.clear()
    assert (await viewer.get("/whoami")).status_code == 401


async def test_names_are_unique(client: httpx.AsyncClient) -> None:
    await client.post("/tokens", json=CI)
    answer = await client.post("/tokens", json=CI)
    assert (answer.status_code, answer.json()["code"]) == (409, "NAME_TAKEN")


async def test_the_last_admin_token_stays(client: httpx.AsyncClient) -> None:
    answer = await client.delete("/tokens/admin")
    assert (answer.status_code, answer.json()["code"]) == (409, "LAST_ADMIN_TOKEN")
    assert (await client.get("/whoami")).status_code == 200
    await client.post("/tokens", json={"name": "second", "user": "eve", "role": "admin"})
    assert (await client.delete("/tokens/admin")).status_code == 204


@pytest.mark.parametrize("role", [Role.VIEWER, Role.SUBMITTER, Role.OPERATOR])
async def test_only_admins_see_tokens_and_audit(sign_in: SignIn, role: Role) -> None:
    someone = await sign_in(role)
    requests = [("GET", "/tokens"), ("GET", "/tokens/admin"), ("DELETE", "/tokens/admin"), ("GET", "/audit")]
    answers = [await someone.request(method, path) for method, path in requests]
    answers.append(await someone.post("/tokens", json=CI))
    assert {(answer.status_code, answer.json()["code"]) for answer in answers} == {(403, "ROLE_REQUIRED")}


async def test_pages_of_tokens(client: httpx.AsyncClient) -> None:
    for number in range(5):
        await client.post("/tokens", json={**CI, "name": f"ci-{number}"})
    names, cursor = [], ""
    while cursor is not None:
        page = (await client.get(f"/tokens?limit=2&sort=name{cursor and '&cursor=' + cursor}")).json()
        names += [token["name"] for token in page["items"]]
        cursor = page["next_cursor"]
    assert names == ["admin", "ci-0", "ci-1", "ci-2", "ci-3", "ci-4"]


async def test_the_audit_tells_who_did_what(client: httpx.AsyncClient) -> None:
    await client.post("/tokens", json=CI)
    await client.delete("/tokens/ci")
    items = (await client.get("/audit?target_type=token&target=ci&actor=admin")).json()["items"]
    assert [(item["action"], item["target"]) for item in items] == [("delete", "ci"), ("create", "ci")]
    assert items[1]["detail"] == {"user": "ann", "role": "submitter"}
    assert (await client.get("/audit?action=nothing")).json() == {"items": [], "next_cursor": None}


class TestFirstAdminToken:
    async def test_is_kept_for_the_local_command_line(self, services: Services) -> None:
        file = services.settings.admin_token_file
        assert file.read_text() == f"{ADMIN_SECRET}\n"
        assert file.stat().st_mode & 0o777 == 0o600

    async def test_is_not_told_again(self, services: Services) -> None:
        assert await prepare(services) is None

    async def test_the_setting_always_holds(self, services: Services) -> None:
        async with services.database.write() as session:
            assert await services.tokens.ensure_admin(session, "mst_other", ADMIN_SECRET) == "mst_other"
        assert (await services.tokens.authenticate("Bearer mst_other")).role is Role.ADMIN

    async def test_none_is_made_while_another_admin_has_one(
        self, client: httpx.AsyncClient, services: Services
    ) -> None:
        await client.post("/tokens", json={"name": "second", "user": "eve", "role": "admin"})
        await client.delete("/tokens/admin")
        async with services.database.write() as session:
            assert await services.tokens.ensure_admin(session, None, ADMIN_SECRET) is None
