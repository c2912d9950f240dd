"""Multi-task jobs over HTTP (api.md §2): shapes, statuses, words."""

from typing import Any

import httpx
import pytest

GANG: dict[str, Any] = {
    "name": "ddp",
    "run_mode": "on_demand",
    "resource_package": "default",
    "resource_group": "default",
    "head": {"cpu": 1, "memory_gib": 2},
    "task_groups": [{"name": "Trainer_1", "count": 2, "entrypoint": "python train.py --rank ${PAI_TASK_INDEX}"}],
}


async def test_a_job_in_full(client: httpx.AsyncClient) -> None:
    answer = await client.post("/jobs", json=GANG)
    assert answer.status_code == 201, answer.text
    job = answer.json()
    assert job["task_groups"] == [
        {
            "name": "Trainer_1",
            "count": 2,
            "cpu": 1,
            "memory_gib": 1,
            "gpu": 0,
            "gpu_type": None,
            "entrypoint": "python train.py --rank ${PAI_TASK_INDEX}",
            "min_succeeded": None,
            "min_failed": None,
        }
    ]
    assert (job["entrypoint"], job["package"], job["warnings"]) == ("", None, [])
    assert (job["placement_strategy"], job["gang_timeout_s"]) == ("STRICT_SPREAD", 600)
    (worker,) = job["worker_groups"]
    assert (worker["name"], worker["cpu"], worker["memory_gib"]) == ("trainer-1", 1, 2)
    assert (worker["min_instances"], worker["max_instances"]) == (2, 2)
    assert (await client.get("/jobs/ddp")).json() == job
    copy = (await client.post("/jobs/ddp/copy")).json()
    assert (await client.post("/jobs", json=copy)).json()["worker_groups"] == job["worker_groups"]


async def test_the_first_group_need_not_be_named(client: httpx.AsyncClient) -> None:
    answer = await client.post("/jobs?dry_run=true", json={**GANG, "task_groups": [{"count": 1, "entrypoint": "true"}]})
    assert (answer.status_code, answer.json()["task_groups"][0]["name"]) == (200, "TaskG1")
    assert (await client.get("/jobs")).json()["items"] == []
    await client.post("/jobs", json={**GANG, "task_groups": [{"count": 1, "entrypoint": "true"}]})
    edited = await client.patch("/jobs/ddp", json={"task_groups": [{"count": 1, "entrypoint": "false"}]})
    assert (edited.status_code, edited.json()["task_groups"][0]["entrypoint"]) == (200, "false")


async def test_commands_are_edited_and_nothing_else(client: httpx.AsyncClient) -> None:
    job = (await client.post("/jobs", json=GANG)).json()
    group = job["task_groups"][0]
    edited = await client.patch("/jobs/ddp", json={"task_groups": [{**group, "entrypoint": "true"}]})
    assert (edited.status_code, edited.json()["revision"]) == (200, 2)
    assert edited.json()["task_groups"][0]["entrypoint"] == "true"
    fixed = await client.patch("/jobs/ddp", json={"task_groups": [{**group, "count": 3}]})
    assert (fixed.status_code, fixed.json()["code"]) == (409, "FIELD_IMMUTABLE")
    assert fixed.json()["errors"][0]["pointer"] == "/task_groups/0/count"
    assert "task_groups/0/count" in fixed.json()["detail"]


@pytest.mark.parametrize(
    ("change", "pointer", "code"),
    [
        ({"entrypoint": "true"}, "/entrypoint", "ENTRYPOINT_AND_TASK_GROUPS"),
        ({"gang_timeout_s": 5}, "/gang_timeout_s", "GANG_TIMEOUT_OUT_OF_RANGE"),
        ({"task_groups": [{"count": 0, "entrypoint": "x"}]}, "/task_groups/0/count", "TASK_COUNT_OUT_OF_RANGE"),
        (
            {"task_groups": [{"name": "a", "count": 1, "entrypoint": "x"}, {"count": 1, "entrypoint": "x"}]},
            "/task_groups/1/name",
            "TASK_GROUP_NAME_REQUIRED",
        ),
        (
            {"task_groups": [{"count": 2, "entrypoint": "x", "min_failed": 3}]},
            "/task_groups/0/min_failed",
            "THRESHOLD_OUT_OF_RANGE",
        ),
        (
            {"task_groups": [{"count": 1, "entrypoint": "x", "cpu": 9999}]},
            "/task_groups/0/cpu",
            "TASK_SIZE_OUT_OF_RANGE",
        ),
        ({"task_groups": [{"count": 999, "entrypoint": "x"}]}, "/task_groups", "QUOTA_NEVER_FITS"),
        ({"worker_groups": [{"name": "w"}]}, "/task_groups", "GANG_NEVER_FITS"),
        (
            {"worker_groups": [{"name": "w", "cpu": 1}], "task_groups": [{"count": 1, "entrypoint": "x", "cpu": 2}]},
            "/task_groups/0/cpu",
            "TASK_TOO_LARGE",
        ),
    ],
)
async def test_what_is_refused(client: httpx.AsyncClient, change: dict[str, Any], pointer: str, code: str) -> None:
    answer = await client.post("/jobs", json={**GANG, **change})
    assert (answer.status_code, answer.json()["code"]) == (422, code), answer.text
    assert answer.json()["errors"][0]["pointer"] == pointer


async def test_numbers_are_in_the_words_of_both_languages(client: httpx.AsyncClient) -> None:
    body = {**GANG, "worker_groups": [{"name": "w"}]}
    english = (await client.post("/jobs", json=body)).json()
    assert english["detail"] == (
        "All 2 tasks must have their place at once, placed STRICT_SPREAD; worker_groups could hold 1 at most, "
        "however long the run waits."
    )
    chinese = (await client.post("/jobs", json=body, headers={"Accept-Language": "zh"})).json()
    assert "全部 2 个子任务" in chinese["detail"]
    task = {**body, "task_groups": [{"count": 1, "entrypoint": "x", "cpu": 3}]}
    assert (await client.post("/jobs", json=task)).json()["detail"] == (
        "A task of TaskG1 asks for cpu: 3, memory_gib: 1; the largest node of worker_groups has cpu: 2, memory_gib: 4."
    )


async def test_thresholds_of_one_task_are_kept_and_warned_of(client: httpx.AsyncClient) -> None:
    group = {"count": 1, "entrypoint": "true", "min_succeeded": 1, "min_failed": -1}
    job = (await client.post("/jobs", json={**GANG, "task_groups": [group]})).json()
    assert [one["code"] for one in job["warnings"]] == ["THRESHOLD_NOT_USED", "THRESHOLD_NOT_USED"]
    assert (job["task_groups"][0]["min_succeeded"], job["task_groups"][0]["min_failed"]) == (1, -1)


async def test_rays_own_client_has_one_command_and_no_tasks(client: httpx.AsyncClient) -> None:
    await client.post("/jobs", json=GANG)
    answer = await client.post("http://muster/ray/jobs/ddp/api/jobs/", json={"entrypoint": "python main.py"})
    assert answer.status_code == 400
    assert "ENTRYPOINT_AND_TASK_GROUPS" in answer.text
