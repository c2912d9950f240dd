"""The dashboards of clusters behind Muster: what passes either way, for whom, and what is said when nothing can."""

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from sqlalchemy import select, update
from starlette.responses import (
    HTMLResponse,
    JSONResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)

from api.dashboard import forward, passes
from api.dashboard.tables import DashboardPassRow
from api.wiring import Services
from cluster_groups.model.cluster import ClusterState, Endpoint
from tests.api.dashboard_world import CLUSTER_TOKEN, ROOT, V1, DashboardWorld, Ray, dashboard_world, serving

SECRET = "hunter2"
SERVE = "api/v1/applications/app/deployments/model/scale"


@pytest.fixture
def ray() -> Ray:
    return Ray()


@pytest.fixture
async def world(services: Services, ray: Ray) -> AsyncIterator[DashboardWorld]:
    async with (
        serving(ray) as address,
        dashboard_world(services, Endpoint(address=address, token=CLUSTER_TOKEN)) as world,
    ):
        yield world


def code(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["code"]


class TestWhatPasses:
    async def test_the_page(self, world: DashboardWorld, ray: Ray) -> None:
        ray.answers[""] = HTMLResponse("<html>Ray</html>")
        async with world.client() as eve:
            answer = await eve.get("")
            assert (answer.status_code, answer.text) == (200, "<html>Ray</html>")
            assert answer.headers["content-type"].startswith("text/html")
            outside = await eve.get(world.address + ROOT.rstrip("/"))
            assert (outside.status_code, str(outside.next_request and outside.next_request.url)) == (
                307,
                world.address + ROOT,
            )
            assert (await eve.head("")).status_code == 200

    async def test_nothing_of_the_visitor_reaches_the_cluster(self, world: DashboardWorld, ray: Ray) -> None:
        told = {
            "Cookie": "muster_dashboard=x; ray-authentication-token=y",
            "X-Ray-Authorization": "Bearer mine",
            "Referer": world.address + ROOT,
            "Origin": world.address,
            "Sec-Fetch-Site": "same-origin",
            "Sec-Fetch-Mode": "cors",
            "Access-Control-Request-Method": "POST",
            "X-Forwarded-For": "10.1.1.1",
            "Proxy-Authorization": "Basic x",
            "TE": "trailers",
            "User-Agent": "Mozilla/5.0 (X11)",
            "Accept": "application/json",
        }
        async with world.client(**told) as eve:
            await eve.get("api/v0/nodes?detail=1&filter_values=a%26b")
        (received,) = ray.received
        assert received.target == "/api/v0/nodes?detail=1&filter_values=a%26b"
        assert received.headers.pop("host") != world.address.removeprefix("http://")
        assert received.headers == {
            "authorization": f"Bearer {CLUSTER_TOKEN}",
            "accept": "application/json",
            "accept-encoding": "identity",
            "user-agent": "Mozilla/5.0 (compatible; Muster)",
        }

    async def test_little_of_the_cluster_reaches_the_visitor(self, world: DashboardWorld, ray: Ray) -> None:
        sent = {
            "Set-Cookie": f"ray-authentication-token={CLUSTER_TOKEN}; Path=/",
            "Content-Disposition": "attachment",
            "Access-Control-Allow-Origin": "*",
            "Content-Security-Policy": "default-src *",
            "Cache-Control": "max-age=31536000",
            "X-Request-Id": "its own",
        }
        ray.answers["events"] = PlainTextResponse("text", headers=sent)
        async with world.client() as eve:
            answer = await eve.get("events")
        assert answer.headers["content-disposition"] == "attachment"
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["content-security-policy"].startswith("default-src 'self';")
        assert not {"set-cookie", "access-control-allow-origin"} & set(answer.headers)
        assert CLUSTER_TOKEN not in str(answer.headers.raw)

    async def test_values_of_environment_variables_stay(self, world: DashboardWorld, ray: Ray) -> None:
        environment = {"env_vars": {"KEY": SECRET}, "pip": ["x"]}
        rows = [{"runtime_env": environment}, {"serialized_runtime_env": json.dumps(environment)}, {"name": "a"}]
        ray.answers["api/v0/tasks"] = JSONResponse({"result": rows})
        async with world.client("root") as root:
            answer = await root.get("api/v0/tasks")
        first, second, third = answer.json()["result"]
        masked = {"env_vars": {"KEY": "<redacted>"}, "pip": ["x"]}
        assert (first["runtime_env"], json.loads(second["serialized_runtime_env"]), third) == (
            masked,
            masked,
            {"name": "a"},
        )

    async def test_few_are_read_whole_at_once(
        self, world: DashboardWorld, ray: Ray, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        at_once = most = 0

        def slowly(body: bytes) -> bytes:
            nonlocal at_once, most
            with counting:
                at_once += 1
                most = max(most, at_once)
            time.sleep(0.1)
            with counting:
                at_once -= 1
            return body

        counting = threading.Lock()
        monkeypatch.setattr(forward, "masked", slowly)
        ray.answers["api/v0/tasks"] = JSONResponse({})
        async with world.client() as eve:
            answers = await asyncio.gather(*(eve.get("api/v0/tasks") for _ in range(8)))
        assert {answer.status_code for answer in answers} == {200}
        assert most == forward.MAX_WHOLE_AT_ONCE

    async def test_a_long_answer_passes_piece_by_piece(self, world: DashboardWorld, ray: Ray) -> None:
        more = asyncio.Event()

        async def pieces() -> AsyncIterator[str]:
            yield "first"
            await more.wait()
            yield "second"

        ray.answers["api/v0/logs/file"] = StreamingResponse(pieces(), media_type="text/plain")
        async with world.client() as eve, eve.stream("GET", "api/v0/logs/file?filename=raylet.out") as answer:
            text = answer.aiter_text()
            assert await anext(text) == "first"
            more.set()
            assert await anext(text) == "second"

    async def test_a_visitor_who_leaves_ends_it_at_the_cluster_too(self, world: DashboardWorld, ray: Ray) -> None:
        ended, never = asyncio.Event(), asyncio.Event()

        async def pieces() -> AsyncIterator[bytes]:
            yield b"first"
            try:
                await never.wait()
            finally:
                ended.set()

        ray.answers["api/v0/logs/file"] = StreamingResponse(pieces(), media_type="text/plain")
        async with world.client() as eve, eve.stream("GET", "api/v0/logs/file") as answer:
            assert answer.status_code == 200
        async with asyncio.timeout(10):
            await ended.wait()

    async def test_what_the_page_asks_about_signing_in_is_answered_here(self, world: DashboardWorld, ray: Ray) -> None:
        async with world.client() as eve:
            assert (await eve.get("api/authentication_mode")).json() == {"authentication_mode": "disabled"}
        assert ray.received == []


class TestWhatDoesNot:
    async def test_not_even_for_an_administrator(self, world: DashboardWorld, ray: Ray) -> None:
        calls = [
            ("POST", "api/jobs/"),
            ("PUT", "api/packages/gcs/a.zip"),
            ("PATCH", "nodes"),
            ("GET", "api/v0/logs/file?filename=.%2Fruntime_env_agent.log"),
            ("GET", "static/js/..%2f..%2fapi%2fjobs%2f"),
            ("GET", "%2e%2e/%2e%2e/jobs"),
        ]
        async with world.client("root") as root:
            answers = [code(await root.request(method, path)) for method, path in calls]
        assert set(answers) == {(403, "DASHBOARD_NOT_ALLOWED")}
        assert ray.received == []

    async def test_operators_may_a_little_more(self, world: DashboardWorld, ray: Ray) -> None:
        for path in (SERVE, "worker/traceback?pid=1", "memory_profile?pid=1", "api/serve/applications/"):
            ray.answers[path.split("?")[0]] = PlainTextResponse("done")
        calls = [
            ("POST", SERVE, {"target_num_replicas": 2}),
            ("GET", "worker/traceback?pid=1", None),
            ("GET", "memory_profile?pid=1", None),
            ("DELETE", "api/serve/applications/", None),
        ]
        async with world.client("eve") as eve, world.client("ops") as ops:
            for method, path, body in calls:
                assert code(await eve.request(method, path, json=body)) == (403, "ROLE_REQUIRED")
            assert ray.received == []
            for method, path, body in calls:
                assert (await ops.request(method, path, json=body)).text == "done"
        scaled = ray.received[0]
        assert (scaled.body, scaled.headers["content-type"]) == (b'{"target_num_replicas":2}', "application/json")
        assert scaled.headers["user-agent"] == "Muster"
        async with world.client("root", V1) as root:
            rows = (await root.get("/audit?target=far&actor=ops&action=use_dashboard&sort=at")).json()["items"]
        assert [row["detail"]["call"] for row in rows] == [f"{one} {path.split('?')[0]}" for one, path, _ in calls]

    async def test_no_more_than_a_little_is_sent(self, world: DashboardWorld) -> None:
        async with world.client("ops") as ops:
            answer = await ops.post(SERVE, content=b"x" * (forward.MAX_SENT_BYTES + 1))
        assert code(answer) == (413, "BODY_TOO_LARGE")

    async def test_no_other_page(self, world: DashboardWorld, ray: Ray) -> None:
        others: list[dict[str, str]] = [
            {"Sec-Fetch-Site": "cross-site"},
            {"Sec-Fetch-Site": "same-site"},
            {"Origin": "http://evil.example"},
            {"Origin": "null"},
            {"Origin": "http://muster.example:8266", "Host": "rebound.example:8266"},
        ]
        async with world.client() as eve:
            answers = [code(await eve.get("nodes", headers=headers)) for headers in others]
        assert set(answers) == {(403, "DASHBOARD_FOREIGN_PAGE")}
        assert ray.received == []


class TestWhenItCannot:
    async def test_strangers_learn_nothing(self, world: DashboardWorld) -> None:
        async with world.client(None) as stranger:
            for path in ("", f"{world.address}{V1}/clusters/nobody/dashboard/"):
                assert code(await stranger.get(path)) == (401, "DASHBOARD_LINK_NEEDED")

    async def test_no_such_cluster(self, world: DashboardWorld) -> None:
        async with world.client(base=V1) as eve:
            assert code(await eve.get("/clusters/nobody/dashboard/")) == (404, "NOT_FOUND")
            assert code(await eve.post("/clusters/nobody/dashboard-tickets")) == (404, "NOT_FOUND")

    async def test_a_cluster_that_does_not_run(self, world: DashboardWorld) -> None:
        await world.set_cluster(state=ClusterState.STOPPED)
        async with world.client(base=V1) as eve:
            assert code(await eve.get("/clusters/far/dashboard/")) == (503, "DASHBOARD_NOT_RUNNING")
            assert code(await eve.post("/clusters/far/dashboard-tickets")) == (503, "DASHBOARD_NOT_RUNNING")

    async def test_nobody_listens(self, world: DashboardWorld) -> None:
        await world.set_cluster(address="http://127.0.0.1:1")
        async with world.client() as eve:
            assert code(await eve.get("")) == (503, "DASHBOARD_UNREACHABLE")

    async def test_it_does_not_answer_in_time(
        self, world: DashboardWorld, ray: Ray, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        never = asyncio.Event()

        class Silent(Response):
            async def __call__(self, *_: Any) -> None:
                await never.wait()

        ray.answers["nodes"] = Silent()
        monkeypatch.setattr(forward, "ANSWER_S", 0.2)
        async with world.client() as eve:
            assert code(await eve.get("nodes")) == (503, "DASHBOARD_UNREACHABLE")
        never.set()

    async def test_answers_that_are_none(self, world: DashboardWorld, ray: Ray) -> None:
        none = [
            PlainTextResponse("Forbidden: Invalid authentication token", 403),
            RedirectResponse("http://elsewhere.example/"),
            RedirectResponse("//elsewhere.example/"),
            Response("{env_vars", media_type="application/json"),
            Response('"env_vars' + "[" * 100_000, media_type="application/json"),
        ]
        async with world.client() as eve:
            for answer in none:
                ray.answers["nodes"] = answer
                assert code(await eve.get("nodes")) == (503, "DASHBOARD_UNREACHABLE"), answer.body[:40]

    async def test_an_answer_too_large_to_be_masked(
        self, world: DashboardWorld, ray: Ray, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(forward, "MAX_JSON_BYTES", 100)
        ray.answers["nodes"] = JSONResponse("x" * 100)
        async with world.client() as eve:
            assert code(await eve.get("nodes")) == (503, "DASHBOARD_ANSWER_TOO_LARGE")

    async def test_redirects_stay_on_this_side(self, world: DashboardWorld, ray: Ray) -> None:
        ray.answers["api/jobs/"] = RedirectResponse("/nodes?view=summary")
        async with world.client() as eve:
            answer = await eve.get("api/jobs/")
        assert (answer.status_code, answer.headers["location"]) == (307, ROOT + "nodes?view=summary")
        assert [one.target for one in ray.received] == ["/api/jobs/"]

    async def test_errors_of_ray_are_shown(self, world: DashboardWorld) -> None:
        async with world.client() as eve:
            answer = await eve.get("nodes")
        assert (answer.status_code, answer.text) == (404, "nothing here")


class TestInABrowser:
    async def test_a_link_opens_it_once(self, world: DashboardWorld, ray: Ray) -> None:
        ray.answers[""] = HTMLResponse("the page")
        link = await world.link()
        async with world.client(None) as browser:
            opened = await browser.get(world.address + link)
            assert (opened.status_code, opened.headers["location"]) == (303, "./")
            cookie, *traits = opened.headers["set-cookie"].split("; ")
            assert set(traits) == {"HttpOnly", f"Max-Age={passes.SESSION_S}", "SameSite=strict"}
            (kept,) = browser.cookies.jar
            assert kept.path == ROOT.rstrip("/")
            assert (await browser.get("")).text == "the page"
            assert "cookie" not in ray.received[-1].headers
            assert code(await browser.get(world.address + link)) == (401, "DASHBOARD_LINK_USED")
        async with world.services.database.read() as session:
            rows = (await session.scalars(select(DashboardPassRow))).all()
        assert [row.is_ticket for row in rows] == [False]
        assert cookie.split("=")[1] not in str(vars(rows[0]))

    async def test_it_may_only_look_whoever_opened_it(self, world: DashboardWorld, ray: Ray) -> None:
        async with self.browser(world, "root") as browser:
            assert code(await browser.get("worker/traceback?pid=1")) == (403, "ROLE_REQUIRED")
            assert code(await browser.post(SERVE, json={})) == (403, "ROLE_REQUIRED")
            assert code(await browser.post("api/jobs/", json={})) == (403, "DASHBOARD_NOT_ALLOWED")
            assert (await browser.get(f"{world.address}{V1}/whoami")).status_code == 401
        assert ray.received == []

    async def test_it_is_for_one_cluster(self, world: DashboardWorld) -> None:
        async with world.client("ops", V1) as ops:
            other = {"name": "other", "kind": "attached", "address": "http://127.0.0.1:1"}
            assert (await ops.post("/clusters", json=other)).status_code == 201
        elsewhere = f"{world.address}{V1}/clusters/other/dashboard/"
        async with self.browser(world) as browser:
            (kept,) = browser.cookies.jar
            cookie = {"Cookie": f"{kept.name}={kept.value}"}
            assert code(await browser.get(elsewhere, headers=cookie)) == (401, "DASHBOARD_LINK_NEEDED")
            link = await world.link()
            query = link.partition("?")[2]
            assert code(await browser.get(f"{elsewhere}?{query}")) == (401, "DASHBOARD_LINK_NEEDED")
            assert (await browser.get(world.address + link)).status_code == 303  # it was not used up

    async def test_it_is_for_the_host_it_was_made_at(self, world: DashboardWorld) -> None:
        async with world.client(None, Host="rebound.example") as browser:
            answer = await browser.get(world.address + await world.link())
            assert code(answer) == (401, "DASHBOARD_LINK_USED")
        async with self.browser(world) as browser:
            assert code(await browser.get("", headers={"Host": "rebound.example"})) == (401, "DASHBOARD_LINK_NEEDED")

    async def test_behind_tls_the_cookie_is_for_tls_only(self, world: DashboardWorld) -> None:
        async with world.client(None, **{"X-Forwarded-Proto": "https"}) as browser:
            opened = await browser.get(world.address + await world.link())
        assert "; Secure" in opened.headers["set-cookie"]

    async def test_it_ends_in_time(self, world: DashboardWorld) -> None:
        link = await world.link()
        async with self.browser(world) as browser:
            await self.age(world)
            assert code(await browser.get("nodes")) == (401, "DASHBOARD_LINK_NEEDED")
            assert code(await browser.get(world.address + link)) == (401, "DASHBOARD_LINK_USED")
        await world.link()
        async with world.services.database.read() as session:
            assert len((await session.scalars(select(DashboardPassRow))).all()) == 1

    async def test_it_ends_with_the_token(self, world: DashboardWorld) -> None:
        async with self.browser(world) as browser, world.client("root", V1) as root:
            assert (await browser.get("nodes")).status_code == 404
            assert (await root.delete("/tokens/eve")).status_code == 204
            assert code(await browser.get("nodes")) == (401, "UNAUTHENTICATED")

    async def test_a_link_from_another_page_is_not_used_up(self, world: DashboardWorld) -> None:
        link = world.address + await world.link()
        async with world.client(None) as browser:
            followed = await browser.get(link, headers={"Sec-Fetch-Site": "cross-site"})
            assert code(followed) == (403, "DASHBOARD_FOREIGN_PAGE")
            assert (await browser.get(link, headers={"Sec-Fetch-Site": "none"})).status_code == 303

    async def test_who_opened_one_is_kept(self, world: DashboardWorld) -> None:
        await world.link()
        async with world.client("root", V1) as root:
            (row,) = (await root.get("/audit?action=open_dashboard")).json()["items"]
        assert (row["actor"], row["target_type"], row["target"]) == ("eve", "cluster", "far")

    @asynccontextmanager
    async def browser(self, world: DashboardWorld, user: str = "eve") -> AsyncIterator[httpx.AsyncClient]:
        async with world.client(None) as browser:
            assert (await browser.get(world.address + await world.link(user))).status_code == 303
            yield browser

    async def age(self, world: DashboardWorld) -> None:
        now = world.services.clock.now()
        async with world.services.database.write() as session:
            await session.execute(update(DashboardPassRow).values(expires_at=now))
