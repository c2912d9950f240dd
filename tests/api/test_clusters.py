"""Clusters, groups of them and resource pools over HTTP: shapes, statuses, revisions. Their rules are tested below."""

from typing import Any

import httpx
import pytest

from api.wiring import Services
from kernel.actor import Role
from tests.api.conftest import SignIn
from tests.builders.dashboard import a_dashboard
from tests.builders.targets import store_package

MANAGED = {"name": "c1", "head": {"cpu": 1, "memory_gib": 2}, "worker_groups": [{"name": "w1"}]}
ATTACHED = {"name": "far", "kind": "attached", "address": "http://127.0.0.1:9", "max_runs": 3}


async def make(client: httpx.AsyncClient, path: str, body: dict[str, Any]) -> dict[str, Any]:
    answer = await client.post(path, json=body)
    assert answer.status_code == 201, answer.text
    return dict(answer.json())


class TestClusters:
    async def test_a_managed_one_in_full(self, client: httpx.AsyncClient) -> None:
        answer = await client.post("/clusters", json=MANAGED)
        cluster = answer.json()
        assert (answer.status_code, answer.headers["etag"]) == (201, '"1"')
        assert answer.headers["location"] == f"/api/v1/clusters/{cluster['id']}"
        assert (cluster["state"], cluster["health"]["status"], cluster["backend"]) == ("CREATED", "PENDING", "local")
        assert cluster["head"] == {"cpu": 1, "memory_gib": 2, "gpu": 0, "gpu_type": None, "labels": {}}
        assert cluster["worker_groups"][0]["max_instances"] == 1
        assert cluster["load"] == {"runs": 0, "starting": 0, "used": {"cpu": 0, "memory_gib": 0, "gpu": {}}}
        assert cluster["endpoint"] == "/ray/clusters/c1"
        assert (await client.get("/clusters/c1")).json() == cluster
        assert (await client.get(f"/clusters/{cluster['id']}")).json() == cluster
        assert (await client.get("/clusters?kind=managed")).json() == {"items": [cluster], "next_cursor": None}
        assert (await client.get("/clusters?kind=attached")).json()["items"] == []

    async def test_an_edit_honours_its_revision(self, client: httpx.AsyncClient) -> None:
        await make(client, "/clusters", MANAGED)
        edited = await client.patch("/clusters/c1", json={"labels": {"site": "x"}}, headers={"If-Match": '"1"'})
        assert (edited.status_code, edited.headers["etag"], edited.json()["labels"]) == (200, '"2"', {"site": "x"})
        assert edited.json()["worker_groups"][0]["name"] == "w1"
        for stale in ('"1"', "nonsense"):
            answer = await client.patch("/clusters/c1", json={"labels": {}}, headers={"If-Match": stale})
            assert (answer.status_code, answer.json()["code"]) == (412, "REVISION_CONFLICT")
            assert (await client.delete("/clusters/c1", headers={"If-Match": stale})).status_code == 412
        assert (await client.patch("/clusters/c1", json={"labels": {}}, headers={"If-Match": "*"})).status_code == 200

    async def test_an_image_that_is_not_used_is_told(self, client: httpx.AsyncClient) -> None:
        (warning,) = (await make(client, "/clusters", MANAGED | {"image": "ray:2"}))["warnings"]
        assert (warning["code"], warning["pointer"]) == ("IMAGE_NOT_USED", "/image")
        assert (await client.patch("/clusters/c1", json={"image": None})).json()["warnings"] == []

    async def test_advanced_parameters_are_checked_and_kept(self, client: httpx.AsyncClient) -> None:
        given = {"labels": "zone=a", "memory_usage_threshold": "0.9"}
        assert (await make(client, "/clusters", MANAGED | {"advanced_parameters": given}))[
            "advanced_parameters"
        ] == given
        answer = await client.patch("/clusters/c1", json={"advanced_parameters": {"num-gpus": "1"}})
        problem = answer.json()
        assert (answer.status_code, problem["code"]) == (422, "ADVANCED_PARAM_PROTECTED")
        assert problem["params"]["form_item"] == "worker_groups[].gpu"
        assert "worker_groups[].gpu" in problem["advice"]
        for key, code in (("upscaling_speed", "NOT_ON_BACKEND"), ("log_level", "JOB_SCOPE"), ("nodes", "UNKNOWN")):
            body = {"advanced_parameters": {key: "1" if code != "JOB_SCOPE" else "info"}}
            answer = await client.patch("/clusters/c1", json=body)
            assert (answer.status_code, answer.json()["code"]) == (422, f"ADVANCED_PARAM_{code}")

    async def test_an_address_that_is_not_fetched_from(self, client: httpx.AsyncClient) -> None:
        answer = await client.post("/clusters", json=ATTACHED | {"address": "http://169.254.169.254"})
        assert (answer.status_code, answer.json()["code"]) == (422, "ADDRESS_NOT_ALLOWED")

    async def test_what_may_be_nothing_is_taken_away_by_null(self, client: httpx.AsyncClient) -> None:
        await make(client, "/clusters", ATTACHED)
        assert (await client.patch("/clusters/far", json={"max_runs": None})).json()["max_runs"] is None
        answer = await client.patch("/clusters/far", json={"labels": None})
        assert (answer.json()["code"], answer.json()["errors"][0]["pointer"]) == ("INVALID_TYPE", "/labels")

    async def test_fixed_fields(self, client: httpx.AsyncClient) -> None:
        await make(client, "/clusters", MANAGED)
        answer = await client.patch("/clusters/c1", json={"name": "c2"})
        assert (answer.status_code, answer.json()["code"]) == (409, "FIELD_IMMUTABLE")
        assert (await client.patch("/clusters/c1", json={"state": "RUNNING"})).json()["code"] == "UNKNOWN_FIELD"

    async def test_commands_answer_at_once(self, client: httpx.AsyncClient) -> None:
        await make(client, "/clusters", MANAGED)
        started = await client.post("/clusters/c1/start")
        assert (started.status_code, started.json()["state"]) == (202, "STARTING")
        assert (await client.post("/clusters/c1/cordon")).json()["cordoned"] is True
        assert (await client.post("/clusters/c1/uncordon")).json()["cordoned"] is False
        assert (await client.post("/clusters/c1/stop", json={"force": True})).json()["state"] == "STOPPING"
        deleted = await client.delete("/clusters/c1")
        assert (deleted.status_code, deleted.json()["state"]) == (202, "DELETING")
        types = [event["type"] for event in (await client.get("/clusters/c1/events?sort=at")).json()["items"]]
        assert types[:2] == ["CREATED", "STARTING"]

    async def test_an_attached_one_goes_at_once(self, client: httpx.AsyncClient) -> None:
        await make(client, "/clusters", ATTACHED)
        assert (await client.delete("/clusters/far")).status_code == 204

    async def test_who_still_names_a_deleted_one_is_told(self, client: httpx.AsyncClient, services: Services) -> None:
        async with services.database.write() as session:
            package = await store_package(session)
        await make(client, "/clusters", ATTACHED)
        await make(client, "/cluster-groups", {"name": "g", "members": [{"cluster": "far"}]})
        job = {"run_mode": "cluster", "cluster": "far", "entrypoint": "true", "package": package}
        for name in ("b", "a"):
            await make(client, "/jobs", {**job, "name": name})
        deleted = await client.delete("/clusters/far")
        assert (deleted.status_code, deleted.json()["state"]) == (202, "DELETED")
        warnings = {warning["code"]: warning["params"] for warning in deleted.json()["warnings"]}
        assert warnings["CLUSTER_NAMED_BY_JOBS"]["jobs"] == ["a", "b"]
        assert warnings["CLUSTER_NAMED_BY_GROUPS"]["cluster_groups"] == ["g"]
        assert (await client.get("/clusters/far")).status_code == 404

    async def test_how_many_runs_wait_for_a_deleted_one_is_told(
        self, client: httpx.AsyncClient, services: Services
    ) -> None:
        async with services.database.write() as session:
            package = await store_package(session)
        await make(client, "/clusters", ATTACHED)
        await make(
            client,
            "/jobs",
            {"name": "j", "run_mode": "cluster", "cluster": "far", "entrypoint": "true", "package": package},
        )
        for _ in range(3):
            run = await make(client, "/jobs/j/runs", {})
        await client.post(f"/runs/{run['id']}/stop")
        warnings = (await client.delete("/clusters/far")).json()["warnings"]
        assert [one["params"] for one in warnings if one["code"] == "CLUSTER_AWAITED_BY_RUNS"] == [
            {"cluster": "far", "count": 2}
        ]

    async def test_words_of_a_reason(self, client: httpx.AsyncClient) -> None:
        large = {**MANAGED, "head": {"cpu": 10_000, "memory_gib": 2}, "autostart": True}
        cluster = await make(client, "/clusters", large)
        assert cluster["state"] == "CREATED"
        answer = await client.post("/clusters/c1/start", headers={"Accept-Language": "zh"})
        assert (answer.status_code, answer.json()["code"]) == (409, "QUOTA_INSUFFICIENT")

    async def test_only_operators_change_them(self, client: httpx.AsyncClient, sign_in: SignIn) -> None:
        await make(client, "/clusters", MANAGED)
        ann = await sign_in(Role.SUBMITTER)
        answers = [
            await ann.post("/clusters", json=ATTACHED),
            await ann.patch("/clusters/c1", json={}),
            await ann.post("/clusters/c1/start"),
            await ann.delete("/clusters/c1"),
        ]
        assert {answer.json()["code"] for answer in answers} == {"ROLE_REQUIRED"}
        assert (await ann.get("/clusters/c1")).status_code == 200


class TestAttaching:
    """Over HTTP, to a stand-in of a Ray dashboard."""

    async def test_one_that_answers_anybody_is_refused(self, client: httpx.AsyncClient) -> None:
        async with a_dashboard() as address:
            answer = await client.post("/clusters", json=ATTACHED | {"address": address})
        assert (answer.status_code, answer.json()["code"]) == (422, "JOB_API_OPEN")
        assert answer.json()["errors"][0]["pointer"] == "/address"
        assert "allow_open" in answer.json()["advice"]

    async def test_an_administrator_takes_it_all_the_same_and_is_warned(
        self, client: httpx.AsyncClient, sign_in: SignIn
    ) -> None:
        operator = await sign_in(Role.OPERATOR)
        async with a_dashboard() as address:
            taken = ATTACHED | {"address": address, "allow_open": True}
            assert (await operator.post("/clusters", json=taken)).json()["code"] == "ROLE_REQUIRED"
            cluster = await make(client, "/clusters", taken)
        assert cluster["allow_open"] is True
        assert [warning["code"] for warning in cluster["warnings"]] == ["JOB_API_MAY_BE_OPEN"]

    async def test_one_that_asks_for_its_token_is_taken(self, client: httpx.AsyncClient) -> None:
        await make(client, "/credentials", {"name": "tok", "type": "ray_token", "data": {"token": "s3cret"}})
        async with a_dashboard("s3cret") as address:
            cluster = await make(client, "/clusters", ATTACHED | {"address": address, "credential": "tok"})
        assert (cluster["allow_open"], cluster["warnings"]) == (False, [])

    async def test_a_repetition_gets_the_first_answer_whatever_a_look_would_find_now(
        self, client: httpx.AsyncClient
    ) -> None:
        await make(client, "/credentials", {"name": "tok", "type": "ray_token", "data": {"token": "s3cret"}})
        key = {"Idempotency-Key": "k-1"}
        async with a_dashboard("s3cret") as address:
            body = ATTACHED | {"address": address, "credential": "tok"}
            first = await client.post("/clusters", json=body, headers=key)
        async with a_dashboard(port=httpx.URL(address).port or 0):
            second = await client.post("/clusters", json=body, headers=key)
            other = await client.post("/clusters", json=body | {"max_runs": 4}, headers=key)
        assert (first.status_code, second.status_code, second.json()) == (201, 201, first.json())
        assert second.headers["idempotency-replayed"] == "true"
        assert other.json()["code"] == "IDEMPOTENCY_KEY_REUSED"

    async def test_a_cookie_is_no_token(self, client: httpx.AsyncClient) -> None:
        await make(client, "/credentials", {"name": "tok", "type": "ray_token", "data": {"token": "s3cret"}})
        async with a_dashboard("s3cret", cookie="session=1") as address:
            for name in ("one", "two"):
                await make(client, "/clusters", ATTACHED | {"name": name, "address": address, "credential": "tok"})

    async def test_an_old_ray_is_refused_whoever_asks(self, client: httpx.AsyncClient) -> None:
        async with a_dashboard(ray_version="2.53.1") as address:
            answer = await client.post("/clusters", json=ATTACHED | {"address": address, "allow_open": True})
        assert (answer.status_code, answer.json()["code"]) == (422, "RAY_TOO_OLD")
        assert answer.json()["params"] == {"version": "2.53.1", "minimum": "2.54"}

    async def test_it_is_not_moved_to_such_a_one_either(self, client: httpx.AsyncClient) -> None:
        await make(client, "/clusters", ATTACHED)
        async with a_dashboard() as address:
            answer = await client.patch("/clusters/far", json={"address": address})
            assert (answer.status_code, answer.json()["code"]) == (422, "JOB_API_OPEN")
        assert (await client.get("/clusters/far")).json()["address"] == ATTACHED["address"]

    async def test_whoever_may_not_attach_clusters_has_nothing_looked_at(self, sign_in: SignIn) -> None:
        someone = await sign_in(Role.SUBMITTER)
        async with a_dashboard() as address:
            answer = await someone.post("/clusters", json=ATTACHED | {"address": address})
        assert (answer.status_code, answer.json()["code"]) == (403, "ROLE_REQUIRED")


class TestClusterGroups:
    async def test_a_group_and_its_policy(self, client: httpx.AsyncClient) -> None:
        await make(client, "/clusters", MANAGED)
        await make(client, "/clusters", ATTACHED)
        members = [{"cluster": "far"}, {"cluster": "c1", "enabled": False}]
        group = await make(client, "/cluster-groups", {"name": "g", "members": members})
        assert [(member["cluster"], member["order"]) for member in group["members"]] == [("far", 0), ("c1", 1)]
        assert (await client.get("/cluster-groups/g")).json() == group
        policy = await client.get("/cluster-groups/g/policy")
        assert (policy.headers["etag"], policy.json()["policy"]["preset"]) == ('"1"', "failover")

    async def test_a_policy_is_changed_only_by_who_has_seen_it(self, client: httpx.AsyncClient) -> None:
        await make(client, "/cluster-groups", {"name": "g"})
        new = {"policy": {"lost_timeout_s": 60}, "comment": "sooner"}
        blind = await client.put("/cluster-groups/g/policy", json=new)
        assert (blind.status_code, blind.json()["code"]) == (428, "IF_MATCH_REQUIRED")
        put = await client.put("/cluster-groups/g/policy", json=new, headers={"If-Match": '"1"'})
        assert (put.status_code, put.headers["etag"], put.json()["policy"]["lost_timeout_s"]) == (200, '"2"', 60)
        same = await client.put("/cluster-groups/g/policy", json=new, headers={"If-Match": '"2"'})
        assert same.headers["etag"] == '"2"'
        late = await client.put("/cluster-groups/g/policy", json=new, headers={"If-Match": '"1"'})
        assert late.status_code == 412
        history = (await client.get("/cluster-groups/g/policy/revisions")).json()["items"]
        assert {(one["revision"], one["comment"]) for one in history} == {(2, "sooner"), (1, "")}
        assert (await client.get("/cluster-groups/g/policy/revisions/1")).json()["policy"]["lost_timeout_s"] == 900
        assert (await client.get("/cluster-groups/g/policy/revisions/9")).status_code == 404

    async def test_edit_and_delete(self, client: httpx.AsyncClient) -> None:
        await make(client, "/cluster-groups", {"name": "g", "description": "old"})
        edited = await client.patch("/cluster-groups/g", json={"description": "new"})
        assert (edited.json()["description"], edited.headers["etag"]) == ("new", '"1"')
        assert (await client.delete("/cluster-groups/g", headers={"If-Match": '"2"'})).status_code == 412
        assert (await client.delete("/cluster-groups/g")).status_code == 204
        assert (await client.get("/cluster-groups")).json()["items"] == []

    async def test_a_member_that_is_none_is_pointed_at(self, client: httpx.AsyncClient) -> None:
        answer = await client.post("/cluster-groups", json={"name": "g", "members": [{"cluster": "ghost"}]})
        assert answer.status_code == 422
        assert answer.json()["errors"][0]["pointer"] == "/members/0/cluster"


class TestResources:
    async def test_packages_and_groups(self, client: httpx.AsyncClient) -> None:
        capacity = {"cpu": 8, "memory_gib": 16, "gpu": {"H100": {"count": 4}}}
        package = await make(client, "/resource-packages", {"name": "gold", "capacity": capacity})
        assert package["capacity"]["gpu"]["H100"]["resource_name"] == "nvidia.com/gpu"
        quota = {"cpu": 4, "memory_gib": 8, "gpu": {"H100": 2}}
        group = await make(client, "/resource-groups", {"name": "team", "resource_package": "gold", "quota": quota})
        assert (group["queue"], group["kind"]) == ({"aging_s": 600, "reserve_after_s": 900}, "exclusive")
        edited = await client.patch("/resource-groups/team", json={"queue": {"reserve_after_s": None}})
        assert edited.json()["queue"] == {"aging_s": 600, "reserve_after_s": None}
        assert edited.json()["quota"] == quota
        listed = (await client.get("/resource-groups?resource_package=gold")).json()["items"]
        assert [one["name"] for one in listed] == ["team"]
        assert (await client.delete("/resource-packages/gold")).status_code == 409
        assert (await client.delete("/resource-groups/team")).status_code == 204
        assert (await client.delete("/resource-packages/gold")).status_code == 204

    async def test_usage_by_cluster(self, client: httpx.AsyncClient) -> None:
        await make(client, "/clusters", MANAGED)
        await client.post("/clusters/c1/start")
        usage = (await client.get("/resource-groups/default/usage")).json()
        cpu = usage["resources"]["cpu"]
        assert (cpu["used"], cpu["reserved"]) == (0, 3)  # it is still starting
        assert cpu["max"] >= 4
        assert [holder["name"] for holder in usage["clusters"]] == ["c1"]
        assert usage["runs"] == []

    @pytest.mark.parametrize("role", [Role.VIEWER, Role.SUBMITTER, Role.OPERATOR])
    async def test_only_admins_sell_packages(self, sign_in: SignIn, role: Role) -> None:
        someone = await sign_in(role)
        answer = await someone.post(
            "/resource-packages", json={"name": "gold", "capacity": {"cpu": 1, "memory_gib": 1}}
        )
        assert answer.status_code == 403
