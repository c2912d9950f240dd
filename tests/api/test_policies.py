"""Policies of cluster groups over HTTP: revisions, edits at the same time, restore, and what a policy would do."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest
from sqlalchemy import update

from api.wiring import Services
from cluster_groups.model.cluster import Node
from cluster_groups.model.health import Health, HealthStatus
from cluster_groups.store import clusters as cluster_store
from cluster_groups.tables import ClusterRow
from kernel.actor import Role
from kernel.resources import Resources
from tests.api.conftest import SignIn
from tests.api.test_runs import admit, make
from tests.builders.targets import store_cluster, store_package

GROUP = "/cluster-groups/g"
SIMULATE = f"{GROUP}/simulate"
At = Callable[[str], Awaitable[dict[str, Any]]]
NIGHT = {"start": "01:00", "end": "04:00"}


@pytest.fixture
async def clusters(services: Services) -> None:
    """Two that take work."""
    async with services.database.write() as session:
        for name in ("c1", "c2"):
            size = Resources(cpu=4, memory_gib=8)
            node = Node(
                id=f"n-{name}", ip="127.0.0.2", group="w", alive=True, total=size, available=size, is_head=False
            )
            await store_cluster(session, name, nodes=[node])
        health = Health(status=HealthStatus.HEALTHY, since=services.clock.now())
        await session.execute(
            update(ClusterRow).values(version=ClusterRow.version + 1, health=cluster_store.health_column(health))
        )


@pytest.fixture
async def group(client: httpx.AsyncClient, clusters: None) -> dict[str, Any]:
    return await make(client, "/cluster-groups", {"name": "g", "members": [{"cluster": "c1"}, {"cluster": "c2"}]})


@pytest.fixture
async def li(sign_in: SignIn) -> httpx.AsyncClient:
    return await sign_in(Role.OPERATOR, "li")


@pytest.fixture
async def wang(sign_in: SignIn) -> httpx.AsyncClient:
    return await sign_in(Role.OPERATOR, "wang")


@pytest.fixture
async def job(client: httpx.AsyncClient, services: Services, group: dict[str, Any]) -> str:
    async with services.database.write() as session:
        package = await store_package(session)
    body = {"name": "j", "run_mode": "cluster_group", "cluster_group": "g", "entrypoint": "true", "package": package}
    return str((await make(client, "/jobs", body))["id"])


async def put(client: httpx.AsyncClient, revision: int, **body: Any) -> httpx.Response:
    present = (await client.get(f"{GROUP}/policy")).json()
    content = {name: present[name] for name in ("timezone", "members", "policy")} | body
    return await client.put(f"{GROUP}/policy", json=content, headers={"If-Match": f'"{revision}"'})


async def restore(client: httpx.AsyncClient, number: int, revision: int | None, **more: Any) -> httpx.Response:
    headers = {} if revision is None else {"If-Match": f'"{revision}"'}
    return await client.post(
        f"{GROUP}/policy/revisions/{number}/restore", headers=headers | more.pop("headers", {}), **more
    )


async def history(client: httpx.AsyncClient) -> list[dict[str, Any]]:
    return list((await client.get(f"{GROUP}/policy/revisions?sort=revision")).json()["items"])


@pytest.mark.usefixtures("group")
class TestRevisions:
    async def test_each_says_who_why_and_what_changed(self, client: httpx.AsyncClient, li: httpx.AsyncClient) -> None:
        members = [{"cluster": "c2", "order": 1}, {"cluster": "c1", "enabled": False}]
        await put(li, 1, members=members, timezone="Asia/Shanghai", comment="moved")
        await put(client, 2, members=members[:1])
        first, second, third = await history(client)
        assert (first["changes"], first["comment"]) == ([], "")
        assert (second["created_by"], second["comment"]) == ("li", "moved")
        changes = {one["field"]: (one["before"], one["after"]) for one in second["changes"]}
        assert changes == {
            "timezone": ("UTC", "Asia/Shanghai"),
            "members.c1.enabled": (True, False),
            "members.c1.order": (0, 1),
        }
        (gone,) = third["changes"]
        assert (gone["field"], gone["before"]["enabled"], gone["after"]) == ("members.c1", False, None)
        assert (await client.get(f"{GROUP}/policy")).json()["changes"] == third["changes"]
        assert (await client.get(f"{GROUP}/policy/revisions/2")).json() == second

    async def test_audit_and_timeline_say_what_changed(self, client: httpx.AsyncClient, li: httpx.AsyncClient) -> None:
        await put(li, 1, policy={"lost_timeout_s": 60}, comment="sooner")
        await li.patch(GROUP, json={"description": "nights"})
        edit, revise, _ = (await client.get("/audit?target=g")).json()["items"]
        told = {"revision": 2, "comment": "sooner"}
        told |= {"changes": [{"field": "policy.lost_timeout_s", "before": 900, "after": 60}]}
        assert (revise["action"], revise["actor"], revise["detail"]) == ("revise", "li", told)
        change = {"field": "description", "before": "", "after": "nights"}
        assert (edit["action"], edit["detail"]) == ("edit", {"changes": [change]})
        events = (await client.get(f"{GROUP}/events?sort=at")).json()["items"]
        assert [event["type"] for event in events] == ["CREATED", "POLICY_REVISED", "EDITED"]
        assert events[1]["params"] == told

    async def test_of_two_at_once_one_is_told_of_the_other(
        self, client: httpx.AsyncClient, li: httpx.AsyncClient, wang: httpx.AsyncClient
    ) -> None:
        edits = [put(li, 1, timezone="Asia/Tokyo"), put(wang, 1, timezone="Asia/Seoul")]
        answers = await asyncio.gather(*edits)
        won, lost = sorted(answers, key=lambda answer: answer.status_code)
        assert (won.status_code, lost.status_code, lost.json()["code"]) == (200, 412, "REVISION_CONFLICT")
        stored = won.json()
        params = lost.json()["params"]
        assert (params["changed_by"], params["revision"]) == (stored["created_by"], 2)
        assert params["changed_at"] == stored["created_at"]
        assert [one["timezone"] for one in await history(client)] == ["UTC", stored["timezone"]]

    async def test_what_is_wrong_is_pointed_at(self, client: httpx.AsyncClient) -> None:
        windows = [NIGHT | {"timezone": "Mars"}, NIGHT | {"end": "24:00"}, NIGHT | {"days": []}]
        members = [{"cluster": "c1", "weight": 1001, "windows": windows}, {"cluster": "c1", "tier": 10}]
        members += [{"cluster": "ghost"}]
        answer = await put(client, 1, timezone="Nowhere", members=members, policy={"rank": "best", "spill_after_s": -1})
        assert (answer.status_code, answer.json()["code"]) == (422, "VALIDATION_FAILED")
        assert {one["pointer"]: one["code"] for one in answer.json()["errors"]} == {
            "/timezone": "UNKNOWN_TIMEZONE",
            "/members/0/weight": "VALUE_OUT_OF_RANGE",
            "/members/0/windows/0/timezone": "UNKNOWN_TIMEZONE",
            "/members/0/windows/1/end": "WINDOW_TIME_INVALID",
            "/members/0/windows/2/days": "WINDOW_DAYS_INVALID",
            "/members/1/cluster": "DUPLICATE_MEMBER",
            "/members/1/tier": "VALUE_OUT_OF_RANGE",
            "/members/2/cluster": "REFERENCE_NOT_FOUND",
            "/policy/rank": "POLICY_VALUE_NOT_AVAILABLE",
            "/policy/spill_after_s": "VALUE_OUT_OF_RANGE",
        }
        draft = {"timezone": "Nowhere", "members": members[1:2]}
        simulated = await client.post(SIMULATE, json={"policy": draft})
        pointers = [one["pointer"] for one in simulated.json()["errors"]]
        assert pointers == ["/policy/timezone", "/policy/members/0/tier"]

    async def test_a_policy_that_never_chooses_is_saved_with_a_warning(self, client: httpx.AsyncClient) -> None:
        past = NIGHT | {"date_to": "2020-01-01"}
        members = [{"cluster": "c1", "enabled": False}, {"cluster": "c2", "windows": [past]}]
        (warning,) = (await put(client, 1, members=members)).json()["warnings"]
        assert (warning["code"], warning["pointer"]) == ("POLICY_NEVER_CHOOSES", "/members")
        assert warning["params"]["members"] == {"c1": "DISABLED", "c2": "WINDOW_CLOSED"}
        assert (await client.patch(GROUP, json={"description": "x"})).json()["warnings"] == [warning]
        assert (await put(client, 2, members=[{"cluster": "c1"}])).json()["warnings"] == []

    async def test_a_run_is_not_given_up_before_it_may_start_elsewhere(self, client: httpx.AsyncClient) -> None:
        answer = await put(client, 1, policy={"on_cluster_loss": "redispatch", "lost_timeout_s": 60})
        assert answer.json()["code"] == "LOST_TIMEOUT_TOO_SHORT"
        assert answer.json()["params"]["minimum"] == 690

    async def test_a_dry_run_stores_nothing(self, client: httpx.AsyncClient) -> None:
        body = {"timezone": "Asia/Tokyo"}
        url = f"{GROUP}/policy?dry_run=true"
        answer = await client.put(url, json=body, headers={"If-Match": '"1"'})
        assert (answer.status_code, answer.json()["timezone"]) == (200, "Asia/Tokyo")
        assert answer.json()["changes"][0] == {"field": "timezone", "before": "UTC", "after": "Asia/Tokyo"}
        assert (await client.put(url, json=body, headers={"If-Match": '"9"'})).status_code == 412
        assert len(await history(client)) == 1


@pytest.mark.usefixtures("group")
async def test_failback_by_hand(client: httpx.AsyncClient, services: Services) -> None:
    """Saving the policy as it is takes back what was ill, with a comment; a simulation says so before."""

    async def chosen(**draft: Any) -> str:
        present = (await client.get(f"{GROUP}/policy")).json()
        content = {name: present[name] for name in ("timezone", "members", "policy")}
        body = {} if draft.pop("as_it_is", False) else {"policy": content | draft}
        return str((await client.post(SIMULATE, json=body)).json()["chosen"])

    members = [{"cluster": "c1"}, {"cluster": "c2", "tier": 1}]
    await put(client, 1, members=members, policy={"failback": "manual"})
    async with services.database.write() as session:
        now = services.clock.now()
        health = cluster_store.health_column(Health(status=HealthStatus.HEALTHY, since=now, recovered_at=now))
        of_c1 = update(ClusterRow).where(ClusterRow.name == "c1")
        await session.execute(of_c1.values(version=ClusterRow.version + 1, health=health))
    assert [await chosen(as_it_is=True), await chosen(), await chosen(comment="back")] == ["c2", "c2", "c1"]
    assert (await put(client, 2)).json()["revision"] == 2
    assert await chosen(as_it_is=True) == "c2"
    taken = (await put(client, 2, comment="back")).json()
    assert (taken["revision"], taken["changes"], taken["comment"]) == (3, [], "back")
    assert await chosen(as_it_is=True) == "c1"
    await put(client, 3, policy={"failback": "auto"})
    assert (await put(client, 4, comment="nothing else")).json()["revision"] == 4


@pytest.mark.usefixtures("group")
class TestRestore:
    async def test_it_is_a_new_revision_with_the_old_content(
        self, client: httpx.AsyncClient, li: httpx.AsyncClient
    ) -> None:
        await put(client, 1, members=[], policy={"preset": "off_peak"})
        answer = await restore(li, 1, 2)
        assert (answer.status_code, answer.headers["etag"]) == (200, '"3"')
        first, _, third = await history(client)
        content = ("timezone", "members", "policy")
        assert [third[name] for name in content] == [first[name] for name in content]
        assert (third["comment"], third["created_by"]) == ("restored revision 1", "li")

    async def test_its_comment(self, client: httpx.AsyncClient) -> None:
        await put(client, 1, timezone="Asia/Tokyo")
        chinese = await restore(client, 1, 2, headers={"Accept-Language": "zh"})
        assert chinese.json()["comment"] == "恢复修订 1"
        assert (await restore(client, 2, 3, json={"comment": "no, later"})).json()["comment"] == "no, later"

    async def test_what_there_is_already_makes_no_revision(self, client: httpx.AsyncClient) -> None:
        await put(client, 1, timezone="Asia/Tokyo")
        await put(client, 2, timezone="UTC")
        for number in (1, 3):
            answer = await restore(client, number, 3)
            assert (answer.status_code, answer.headers["etag"], answer.json()["revision"]) == (200, '"3"', 3)
        assert len(await history(client)) == 3

    async def test_only_by_who_has_seen_what_there_is(self, client: httpx.AsyncClient, sign_in: SignIn) -> None:
        await put(client, 1, timezone="Asia/Tokyo")
        blind = await restore(client, 1, None)
        assert (blind.status_code, blind.json()["code"]) == (428, "IF_MATCH_REQUIRED")
        assert (await restore(client, 1, 1)).status_code == 412
        assert (await restore(client, 9, 2)).status_code == 404
        submitter = await sign_in(Role.SUBMITTER)
        assert (await restore(submitter, 1, 2)).json()["code"] == "ROLE_REQUIRED"
        dry = await client.post(f"{GROUP}/policy/revisions/1/restore?dry_run=true", headers={"If-Match": '"2"'})
        assert (dry.status_code, dry.json()["timezone"]) == (200, "UTC")
        assert len(await history(client)) == 2

    async def test_a_repetition_gets_the_first_answer(self, client: httpx.AsyncClient) -> None:
        await put(client, 1, timezone="Asia/Tokyo")
        key = {"Idempotency-Key": "once"}
        first, again = [await restore(client, 1, 2, headers=key) for _ in range(2)]
        assert (first.json(), first.headers["etag"]) == (again.json(), again.headers["etag"])
        assert len(await history(client)) == 3

    async def test_a_member_whose_cluster_is_gone_comes_back(
        self, client: httpx.AsyncClient, services: Services
    ) -> None:
        await put(client, 1, members=[{"cluster": "c1"}])
        async with services.database.write() as session:
            await session.execute(
                update(ClusterRow)
                .where(ClusterRow.name == "c2")
                .values(version=ClusterRow.version + 1, state="DELETED")
            )
        answer = await restore(client, 1, 2)
        assert (answer.status_code, answer.json()["members"][1]["cluster"]) == (200, "c2")


@pytest.mark.usefixtures("group")
class TestSimulate:
    async def test_which_member_and_why(self, client: httpx.AsyncClient) -> None:
        told = (await client.post(SIMULATE, json={})).json()
        assert (told["outcome"], told["chosen"], told["tier"], told["revision"]) == ("dispatched", "c1", 0, 1)
        assert [(one["cluster"], one["eligible"], one["fits_now"]) for one in told["candidates"]] == [
            ("c1", True, True),
            ("c2", True, True),
        ]
        assert (told["waiting_runs"], told["run"]) == ([], None)

    async def test_requirements_and_words(self, client: httpx.AsyncClient) -> None:
        body = {"requirements": {"cpu": 99}}
        for language, word in (("en", "asks for more than cluster c1"), ("zh", "超出")):
            told = (await client.post(SIMULATE, json=body, headers={"Accept-Language": language})).json()
            assert (told["outcome"], told["reason"]["code"]) == ("waiting", "GROUP_NO_COMPATIBLE_MEMBER")
            assert [one["reason"] for one in told["candidates"]] == ["NEVER_FITS", "NEVER_FITS"]
            assert word in told["candidates"][0]["message"]
            assert told["reason"]["detail"]

    async def test_what_cannot_be_asked(self, client: httpx.AsyncClient, job: str) -> None:
        for body, code, pointer in (
            ({"job": "ghost"}, "REFERENCE_NOT_FOUND", "/job"),
            ({"job": job, "requirements": {"cpu": 1}}, "JOB_OR_REQUIREMENTS", "/requirements"),
            ({"requirements": {"cpu": -1}}, "REQUIREMENT_OUT_OF_RANGE", "/requirements/cpu"),
            ({"at": "yesterday"}, "INVALID_TYPE", "/at"),
            ({"at": "2026-03-08T02:30:00"}, "INVALID_TYPE", "/at"),
            ({"at": "0001-01-01T00:00:00Z"}, "INVALID_VALUE", "/at"),
            ({"when": "now"}, "UNKNOWN_FIELD", "/when"),
            ({"policy": {"timezone": "Mars"}}, "UNKNOWN_TIMEZONE", "/policy/timezone"),
            ({"policy": {"members": [{"cluster": "ghost"}]}}, "REFERENCE_NOT_FOUND", "/policy/members/0/cluster"),
            ({"policy": {"revision": 1}}, "UNKNOWN_FIELD", "/policy/revision"),
        ):
            answer = await client.post(SIMULATE, json=body)
            assert (answer.status_code, answer.json()["code"]) == (422, code), answer.text
            assert answer.json()["errors"][0]["pointer"] == pointer
        assert (await client.post("/cluster-groups/ghost/simulate", json={})).status_code == 404

    async def test_a_draft_is_for_those_who_may_edit(self, sign_in: SignIn) -> None:
        viewer = await sign_in(Role.VIEWER)
        assert (await viewer.post(SIMULATE, json={"at": "2027-01-01T00:00:00Z"})).status_code == 200
        draft = {"policy": {"members": [{"cluster": "c2"}]}}
        assert (await viewer.post(SIMULATE, json=draft)).json()["code"] == "ROLE_REQUIRED"
        told = (await (await sign_in(Role.OPERATOR)).post(SIMULATE, json=draft)).json()
        assert (told["chosen"], told["revision"]) == ("c2", None)

    async def test_the_effect_on_runs_that_wait(self, client: httpx.AsyncClient, services: Services, job: str) -> None:
        await put(client, 1, members=[{"cluster": "c1", "cordoned": True}])
        run = (await make(client, f"/jobs/{job}/runs", {}))["id"]
        await admit(services)
        stored = (await client.get(f"/runs/{run}/decisions")).json()["items"]
        (fate,) = (await client.post(SIMULATE, json={"job": "j"})).json()["waiting_runs"]
        waits = {"outcome": "waiting", "cluster": None, "code": "GROUP_NO_HEALTHY_MEMBER"}
        assert fate == {"run": run, "before": waits, "after": waits}
        (fate,) = (await client.post(SIMULATE, json={"policy": {"members": [{"cluster": "c2"}]}})).json()[
            "waiting_runs"
        ]
        assert fate == {"run": run, "before": waits, "after": {"outcome": "dispatched", "cluster": "c2", "code": None}}
        late = (
            await client.post(SIMULATE, json={"policy": {"policy": {"max_wait_s": 60}}, "at": "2100-01-01T00:00:00Z"})
        ).json()
        assert late["waiting_runs"][0]["after"] == {"outcome": "failed", "cluster": None, "code": "MAX_WAIT"}
        assert (await client.get(f"/runs/{run}/decisions")).json()["items"] == stored
        assert (await client.get(f"/runs/{run}")).json()["state"] == "WAITING"
        assert len(await history(client)) == 2


class TestWindows:
    """01:00 to 04:00 in New York, where the clocks jump at 02:00."""

    @pytest.fixture
    async def at(self, client: httpx.AsyncClient, group: dict[str, Any]) -> At:
        assert group["revision"] == 1
        members = [{"cluster": "c1", "windows": [NIGHT]}]
        assert (await put(client, 1, timezone="America/New_York", members=members)).status_code == 200

        async def at(time: str) -> dict[str, Any]:
            return dict((await client.post(SIMULATE, json={"at": time})).json())

        return at

    @pytest.mark.parametrize(
        ("opens", "closes"),
        [
            ("2026-03-07T06:00:00Z", "2026-03-07T09:00:00Z"),  # 180 minutes
            ("2026-03-08T06:00:00Z", "2026-03-08T08:00:00Z"),  # 120: the clocks go forward
            ("2026-11-01T05:00:00Z", "2026-11-01T09:00:00Z"),  # 240: they go back
        ],
    )
    async def test_the_clocks_of_the_group_count(self, at: At, opens: str, closes: str) -> None:
        told = await at(opens)
        window = told["candidates"][0]["window"]
        assert (told["outcome"], window) == ("dispatched", {"state": "open", "id": 0, "until": closes})
        assert told["next_window_change_at"] == closes
        last = closes.replace(":00:00Z", ":00:00.000Z")
        assert (await at(last))["outcome"] == "waiting"

    async def test_a_closed_one_says_when_it_opens(self, at: At) -> None:
        told = await at("2026-03-08T05:59:59Z")
        assert (told["outcome"], told["reason"]["code"]) == ("waiting", "GROUP_WINDOW_CLOSED")
        assert told["reason"]["params"]["next_open_at"] == "2026-03-08T06:00:00Z"
        (candidate,) = told["candidates"]
        assert (candidate["reason"], candidate["window"]["until"]) == ("WINDOW_CLOSED", "2026-03-08T06:00:00Z")
        assert candidate["message"]


async def test_decisions_on_all_runs_of_a_group(client: httpx.AsyncClient, services: Services, job: str) -> None:
    runs = [(await make(client, f"/jobs/{job}/runs", {}))["id"] for _ in range(2)]
    await admit(services)
    page = (await client.get(f"{GROUP}/decisions?limit=1")).json()
    rest = (await client.get(f"{GROUP}/decisions?cursor={page['next_cursor']}")).json()
    told = [*page["items"], *rest["items"]]
    assert ([one["run"] for one in told], rest["next_cursor"]) == (runs[::-1], None)
    assert {(one["outcome"], one["chosen"]) for one in told} == {("dispatched", "c1")}
    assert (await client.get("/cluster-groups/ghost/decisions")).status_code == 404
