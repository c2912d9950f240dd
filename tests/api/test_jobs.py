"""Jobs over HTTP: shapes, statuses, revisions, words. The rules themselves are tested below."""

import io
import zipfile
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from kernel.actor import Role
from tests.api.conftest import SignIn

ON_DEMAND = {
    "name": "训练 1",
    "run_mode": "on_demand",
    "resource_package": "default",
    "resource_group": "default",
    "entrypoint": "python main.py",
    "worker_groups": [{"name": "w1"}],
}


@pytest.fixture
async def package(client: httpx.AsyncClient) -> str:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("main.py", "print(1)")
    answer = await client.post("/packages", files={"file": ("job.zip", out.getvalue())})
    return str(answer.json()["id"])


async def make(client: httpx.AsyncClient, **fields: Any) -> dict[str, Any]:
    answer = await client.post("/jobs", json={**ON_DEMAND, **fields})
    assert answer.status_code == 201, answer.text
    return dict(answer.json())


async def test_a_job_in_full(client: httpx.AsyncClient, package: str) -> None:
    answer = await client.post("/jobs", json={**ON_DEMAND, "package": package, "tags": {"team": "vision"}})
    job = answer.json()
    assert (answer.status_code, answer.headers["etag"]) == (201, '"1"')
    assert answer.headers["location"] == f"/api/v1/jobs/{job['id']}"
    filled_in = {
        "priority": 5,
        "head": {"cpu": 2, "memory_gib": 4, "gpu": 0, "gpu_type": None, "labels": {}},
        "retry": {"max_attempts": 1, "on": ["platform", "placement", "lost"]},
        "run_counts": {"waiting": 0, "starting": 0, "running": 0, "total": 0},
        "warnings": [],
        "inherited": None,
        "revision": 1,
    }
    assert {name: job[name] for name in filled_in} == filled_in
    for ref in (job["id"], quote("训练 1")):
        seen = await client.get(f"/jobs/{ref}")
        assert (seen.json(), seen.headers["etag"]) == (job, '"1"')
    assert (await client.get("/jobs?tag=team:vision")).json() == {"items": [job], "next_cursor": None}
    assert (await client.get("/jobs?tag=team:sound")).json()["items"] == []


async def test_what_a_cluster_gives_is_shown(client: httpx.AsyncClient, package: str) -> None:
    await client.post("/clusters", json={"name": "c1", "worker_groups": [{"name": "w1"}], "head": {}})
    await client.post("/cluster-groups", json={"name": "g", "members": [{"cluster": "c1"}]})
    common = {"entrypoint": "true", "package": package}
    to_cluster = await client.post("/jobs", json={**common, "name": "a", "run_mode": "cluster", "cluster": "c1"})
    inherited = to_cluster.json()["inherited"]
    assert [one["name"] for one in inherited["clusters"]] == ["c1"]
    assert (inherited["clusters"][0]["head"]["cpu"], inherited["policy"]) == (2, None)
    assert [warning["code"] for warning in to_cluster.json()["warnings"]] == ["TARGET_NOT_RUNNING"]
    to_group = await client.post(
        "/jobs", json={**common, "name": "b", "run_mode": "cluster_group", "cluster_group": "g"}
    )
    inherited = to_group.json()["inherited"]
    assert (inherited["policy"]["preset"], [one["name"] for one in inherited["clusters"]]) == ("failover", ["c1"])
    await client.delete("/clusters/c1")


async def test_a_warning_speaks_the_language_asked_for(client: httpx.AsyncClient, package: str) -> None:
    await client.post("/cluster-groups", json={"name": "empty"})
    body = {"name": "a", "run_mode": "cluster_group", "cluster_group": "empty", "entrypoint": "x", "package": package}
    answer = await client.post("/jobs", json=body, headers={"Accept-Language": "zh"})
    (warning,) = answer.json()["warnings"]
    assert (warning["code"], warning["pointer"]) == ("GROUP_EMPTY", "/cluster_group")
    assert any("\u4e00" <= character <= "\u9fff" for character in warning["detail"])


async def test_an_edit_makes_a_revision(client: httpx.AsyncClient, package: str) -> None:
    job = await make(client, package=package)
    at = f"/jobs/{job['id']}"
    edited = await client.patch(at, json={"entrypoint": "python other.py"}, headers={"If-Match": '"1"'})
    assert (edited.status_code, edited.headers["etag"], edited.json()["revision"]) == (200, '"2"', 2)
    stale = await client.patch(at, json={"entrypoint": "x"}, headers={"If-Match": '"1"'})
    assert (stale.status_code, stale.json()["params"]["revision"]) == (412, 2)
    fixed = await client.patch(at, json={"run_mode": "cluster", "cluster": "c1"})
    assert (fixed.status_code, fixed.json()["code"]) == (409, "FIELD_IMMUTABLE")
    revisions = (await client.get(f"{at}/revisions")).json()["items"]
    assert [(one["revision"], one["entrypoint"]) for one in revisions] == [
        (2, "python other.py"),
        (1, "python main.py"),
    ]


async def test_a_dry_run_of_an_edit(client: httpx.AsyncClient, package: str) -> None:
    job = await make(client, package=package)
    answer = await client.patch(f"/jobs/{job['id']}?dry_run=true", json={"priority": 9})
    assert (answer.status_code, answer.json()["priority"]) == (200, 9)
    assert (await client.get(f"/jobs/{job['id']}")).json() == job


async def test_a_copy_is_a_body_for_create(client: httpx.AsyncClient, package: str) -> None:
    job = await make(client, package=package, description="d")
    copy = await client.post(f"/jobs/{job['id']}/copy")
    assert (copy.status_code, copy.json()["name"]) == (200, "训练 1-copy")
    made = await client.post("/jobs", json=copy.json())
    assert (made.status_code, made.json()["description"]) == (201, "d")


async def test_names_are_checked_before(client: httpx.AsyncClient, package: str) -> None:
    await make(client, package=package)
    assert (await client.get("/jobs/name-check?name=free")).json() == {"available": True, "reason": None}
    taken = (await client.get("/jobs/name-check", params={"name": "训练 1"})).json()
    assert (taken["available"], taken["reason"]["code"]) == (False, "NAME_TAKEN")
    assert (await client.get("/jobs/name-check?name=a/b")).json()["reason"]["code"] == "NAME_INVALID"


async def test_delete(client: httpx.AsyncClient, package: str) -> None:
    job = await make(client, package=package)
    assert (await client.delete(f"/packages/{package}")).json()["code"] == "PACKAGE_IN_USE"
    assert (await client.delete(f"/jobs/{job['id']}")).status_code == 204
    assert (await client.get(f"/jobs/{job['id']}")).status_code == 404
    assert (await client.delete(f"/packages/{package}")).status_code == 204


async def test_everything_wrong_at_once(client: httpx.AsyncClient) -> None:
    body = {**ON_DEMAND, "name": " x", "priority": 10, "cluster": "c1", "worker_groups": [{"name": "head"}]}
    problem = (await client.post("/jobs", json=body)).json()
    found = {(error["pointer"], error["code"]) for error in problem["errors"]}
    assert problem["code"] == "VALIDATION_FAILED"
    assert {
        ("/name", "NAME_HAS_BLANKS"),
        ("/priority", "PRIORITY_OUT_OF_RANGE"),
        ("/cluster", "FIELD_NOT_FOR_MODE"),
        ("/package", "PACKAGE_REQUIRED"),
    } <= found


@pytest.mark.parametrize(
    ("change", "pointer", "code"),
    [
        ({"run_mode": "magic"}, "/run_mode", "INVALID_VALUE"),
        ({"worker_groups": [{"name": "w", "max_instances": "2"}]}, "/worker_groups/0/max_instances", "INVALID_TYPE"),
        ({"worker_groups": [{"nam": "w"}]}, "/worker_groups/0/name", "FIELD_REQUIRED"),
        ({"runtime_env": []}, "/runtime_env", "INVALID_TYPE"),
        ({"tags": {"a": 1}}, "/tags/a", "INVALID_TYPE"),
        ({"retry": {"on": "lost"}}, "/retry/on", "INVALID_TYPE"),
        ({"task_groups": [{"count": 1, "entrypoint": "x", "gpus": 1}]}, "/task_groups/0/gpus", "UNKNOWN_FIELD"),
        ({"task_groups": [{"count": 1}]}, "/task_groups/0/entrypoint", "FIELD_REQUIRED"),
        ({"task_groups": [{"count": 1.5, "entrypoint": "x"}]}, "/task_groups/0/count", "INVALID_TYPE"),
        ({"placement_strategy": "RANDOM"}, "/placement_strategy", "INVALID_VALUE"),
    ],
)
async def test_wrong_types_are_pointed_at(
    client: httpx.AsyncClient, change: dict[str, Any], pointer: str, code: str
) -> None:
    problem = (await client.post("/jobs", json={**ON_DEMAND, **change})).json()
    assert (pointer, code) in {(error["pointer"], error["code"]) for error in problem["errors"]}


async def test_who_may_do_what(client: httpx.AsyncClient, package: str, sign_in: SignIn) -> None:
    ann, bob, eve = (
        await sign_in(Role.SUBMITTER, "ann"),
        await sign_in(Role.SUBMITTER, "bob"),
        await sign_in(Role.VIEWER),
    )
    job = await make(ann, package=package)
    assert job["created_by"] == "ann"
    assert (await eve.get(f"/jobs/{job['id']}")).status_code == 200
    assert (await eve.post("/jobs", json=ON_DEMAND)).json()["code"] == "ROLE_REQUIRED"
    assert (await bob.patch(f"/jobs/{job['id']}", json={"priority": 1})).json()["code"] == "NOT_YOURS"
    assert (await bob.delete(f"/jobs/{job['id']}")).json()["code"] == "NOT_YOURS"
    poor = await sign_in(Role.SUBMITTER, "poor", resource_packages=("gold",))
    denied = await poor.post("/jobs", json={**ON_DEMAND, "name": "other", "package": package})
    assert (denied.status_code, denied.json()["code"]) == (403, "RESOURCE_PACKAGE_DENIED")
