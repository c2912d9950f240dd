"""The Ray Jobs endpoint: its answers' shapes, its refusals, and the runs that submissions become."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from ray.dashboard.modules.job.pydantic_models import JobDetails
from sqlalchemy import func, select, update

from cluster_groups.model.cluster import ClusterState
from cluster_groups.tables import ClusterRow
from rayjobs.model.job import RunMode
from rayjobs.model.run import End, EndClass, EndCode, RunState
from rayjobs.tables import JobRow
from tests.api.ray_world import RayWorld, ray_world

DONE = End(end_class=EndClass.COMPLETED, code=EndCode.ALL_TASKS_DONE, exit_code=0)

REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"submission_id": "a/b"}, "RAY_SUBMISSION_ID_INVALID"),
    ({"submission_id": ".."}, "RAY_SUBMISSION_ID_INVALID"),
    ({"submission_id": "x" * 101}, "RAY_SUBMISSION_ID_INVALID"),
    ({"submission_id": 7}, "INVALID_TYPE (/submission_id)"),
    ({"metadata": {"job_name": "n"}}, "RAY_METADATA_RESERVED (/metadata/job_name)"),
    ({"metadata": {"job_submission_id": "n"}}, "RAY_METADATA_RESERVED (/metadata/job_submission_id)"),
    ({"metadata": {"n": 1}}, "INVALID_TYPE (/metadata/n)"),
    ({"entrypoint": None}, "FIELD_REQUIRED (/entrypoint)"),
    ({"entrypoint_num_cpus": True}, "INVALID_TYPE (/entrypoint_num_cpus)"),
    ({"entrypoint_num_cpus": -1}, "INVALID_VALUE (/entrypoint_num_cpus)"),
    ({"entrypoint_num_cpus": 0.00001}, "ADVANCED_PARAM_NOT_AMOUNT"),
    ({"entrypoint_num_gpus": 1e300}, "INVALID_VALUE (/entrypoint_num_gpus)"),
    ({"entrypoint_memory": 1.5}, "INVALID_TYPE (/entrypoint_memory)"),
    ({"gang": 1}, "UNKNOWN_FIELD (/gang)"),
    ({"runtime_env": {"image_uri": "x"}}, "IMAGE_URI_NOT_ALLOWED (/runtime_env/image_uri)"),
    ({"runtime_env": {"py_executable": "x"}}, "RUNTIME_ENV_KEY_DENIED (/runtime_env/py_executable)"),
    ({"runtime_env": {"env_vars": {"LD_PRELOAD": "x"}}}, "RESERVED_VARIABLE"),
    ({"runtime_env": {"env_vars": 1}}, "INVALID_TYPE (/runtime_env/env_vars)"),
    ({"runtime_env": {"working_dir": "gcs://_ray_pkg_0.zip"}}, "RAY_UPLOAD_MISSING"),
    ({"runtime_env": {"py_modules": ["gcs://a.whl"]}}, "RAY_UPLOAD_MISSING"),
]


@pytest.fixture
async def world(database_url: str, tmp_path: Path) -> AsyncIterator[RayWorld]:
    async with ray_world(database_url, tmp_path) as world:
        yield world


@pytest.fixture
async def ann(world: RayWorld) -> AsyncIterator[httpx.AsyncClient]:
    async with world.client() as client:
        yield client


async def submit(client: httpx.AsyncClient, **fields: Any) -> httpx.Response:
    return await client.post("/api/jobs/", json={"entrypoint": "python x.py", "submission_id": "s1"} | fields)


async def details(client: httpx.AsyncClient, client_id: str = "s1") -> dict[str, Any]:
    """Only what Ray's own model takes."""
    answer = await client.get(f"/api/jobs/{client_id}")
    assert answer.status_code == 200, answer.text
    JobDetails(**answer.json())
    return dict(answer.json())


class TestSubmit:
    async def test_it_becomes_a_run_of_a_hidden_job(self, world: RayWorld, ann: httpx.AsyncClient) -> None:
        answer = await submit(ann, metadata={"team": "v"}, runtime_env={"env_vars": {"A": "1"}})
        assert (answer.status_code, answer.json()) == (200, {"job_id": "s1", "submission_id": "s1"})
        run, spec = await world.run_of("s1"), await world.spec_of("s1")
        assert (run.origin, run.state, run.created_by, run.cluster) == ("ray_jobs", "SUBMITTED", "ann", "c1")
        assert (spec.entrypoint, spec.run_mode, spec.metadata) == ("python x.py", RunMode.CLUSTER, {"team": "v"})
        assert spec.runtime_env == {"env_vars": {"A": "1"}}
        assert spec.requirements is None

    async def test_without_an_id_it_gets_one_as_ray_makes_them(self, ann: httpx.AsyncClient) -> None:
        first, second = [(await submit(ann, submission_id=None)).json()["submission_id"] for _ in range(2)]
        assert first != second
        for client_id in (first, second):
            assert client_id.removeprefix("raysubmit_").isalnum()
            assert len(client_id) == len("raysubmit_") + 16

    async def test_the_old_name_of_the_id_still_counts(self, ann: httpx.AsyncClient) -> None:
        assert (await submit(ann, submission_id=None, job_id="old")).json()["submission_id"] == "old"

    async def test_what_the_driver_reserves_is_handed_on_and_charged(
        self, world: RayWorld, ann: httpx.AsyncClient
    ) -> None:
        reserved = {
            "entrypoint_num_cpus": 1.0,
            "entrypoint_num_gpus": 0.5,
            "entrypoint_memory": 2**29,
            "entrypoint_resources": {"fast": 2},
            "entrypoint_label_selector": {"rack": "!r1"},
        }
        assert (await submit(ann, **reserved)).status_code == 200
        spec = await world.spec_of("s1")
        assert spec.advanced_parameters == {
            "entrypoint_num_cpus": "1",
            "entrypoint_num_gpus": "0.5",
            "entrypoint_memory": str(2**29),
            "entrypoint_resources": '{"fast": 2.0}',
            "entrypoint_label_selector": '{"rack": "!r1"}',
        }
        needs = spec.requirements
        assert needs is not None
        assert (needs.cpu, needs.gpu, needs.memory_gib) == (1, 1, 0.5)

    async def test_what_is_refused_says_what_to_do_on_its_first_line(
        self, world: RayWorld, ann: httpx.AsyncClient
    ) -> None:
        for fields, said in REFUSED:
            answer = await submit(ann, **fields)
            assert (answer.status_code, answer.headers["content-type"]) == (400, "text/plain; charset=utf-8"), fields
            assert answer.text.startswith(said)
        async with world.services.database.read() as session:
            assert await session.scalar(select(func.count()).select_from(JobRow)) == 0

    async def test_every_problem_has_its_own_line(self, ann: httpx.AsyncClient) -> None:
        answer = await submit(ann, runtime_env={"image_uri": "x", "container": {}})
        assert [line.split(" ")[0] for line in answer.text.splitlines()] == [
            "IMAGE_URI_NOT_ALLOWED",
            "RUNTIME_ENV_KEY_DENIED",
        ]

    async def test_what_is_no_json_object(self, ann: httpx.AsyncClient) -> None:
        for body in (b"", b"{", b"[]", b'{"entrypoint": NaN}', b"\xff"):
            assert (await ann.post("/api/jobs/", content=body)).status_code == 400

    async def test_a_target_nobody_has_made(self, world: RayWorld) -> None:
        async with world.client(address="/ray/clusters/nope") as client:
            assert (await client.get("/api/version")).status_code == 200
            answer = await submit(client)
        assert answer.status_code == 400
        assert answer.text.startswith("REFERENCE_NOT_FOUND (/cluster): There is no cluster nope.")

    async def test_notes_of_the_client_about_itself_are_taken(self, ann: httpx.AsyncClient) -> None:
        env = {"pip": {"packages": ["six"], "pip_check": False}, "_ray_commit": "0" * 40, "excludes": ["*.bin"]}
        assert (await submit(ann, runtime_env=env)).status_code == 200


class TestIds:
    async def test_a_second_one_is_refused_as_ray_does(self, ann: httpx.AsyncClient) -> None:
        await submit(ann)
        answer = await submit(ann)
        assert answer.status_code == 500
        assert answer.text.endswith("Job with submission_id s1 already exists. Please use a different submission_id.")

    async def test_of_two_at_once_one_wins(self, ann: httpx.AsyncClient) -> None:
        answers = await asyncio.gather(*(submit(ann) for _ in range(5)))
        assert sorted(answer.status_code for answer in answers) == [200, 500, 500, 500, 500]

    async def test_each_target_has_its_own(self, world: RayWorld, ann: httpx.AsyncClient) -> None:
        await submit(ann)
        async with world.client(address="/ray/groups/g1") as group:
            assert (await group.get("/api/jobs/s1")).status_code == 404
            assert (await submit(group)).status_code == 200
            assert [one["submission_id"] for one in (await group.get("/api/jobs/")).json()] == ["s1"]

    async def test_unknown_ones(self, ann: httpx.AsyncClient) -> None:
        for client_id in ("none", "a b", "x" * 200):
            for answer in (
                await ann.get(f"/api/jobs/{client_id}"),
                await ann.get(f"/api/jobs/{client_id}/logs"),
                await ann.post(f"/api/jobs/{client_id}/stop"),
                await ann.delete(f"/api/jobs/{client_id}"),
            ):
                assert (answer.status_code, answer.text) == (404, f"Job {client_id} does not exist")


class TestTargets:
    async def test_by_default_a_cluster_of_its_own(self, world: RayWorld) -> None:
        async with world.client(address="/ray") as client:
            assert (await submit(client, entrypoint_num_cpus=2.5, entrypoint_memory=3 * 2**30)).status_code == 200
            spec = await world.spec_of("s1", "default")
            assert [one["submission_id"] for one in (await client.get("/api/jobs/")).json()] == ["s1"]
        assert (spec.run_mode, spec.resource_group, spec.resource_package) == (
            RunMode.ON_DEMAND,
            "default",
            "default",
        )
        (worker,) = spec.worker_groups
        assert (worker.cpu, worker.memory_gib, worker.gpu) == (3, 4, 0)

    async def test_the_default_may_be_set(self, database_url: str, tmp_path: Path) -> None:
        async with (
            ray_world(database_url, tmp_path, ray_default_target="groups/g1") as world,
            world.client(address="/ray") as bare,
            world.client(address="/ray/groups/g1") as named,
        ):
            assert (await submit(bare)).status_code == 200
            assert (await details(named))["submission_id"] == "s1"

    async def test_a_stored_job_with_the_request_on_top(self, world: RayWorld, ann: httpx.AsyncClient) -> None:
        await submit(ann, metadata={"a": "1"}, entrypoint_num_cpus=1, runtime_env={"env_vars": {"A": "1", "B": "1"}})
        stored = (await world.run_of("s1")).job_name
        async with world.client(address=f"/ray/jobs/{stored}") as client:
            answer = await submit(
                client, entrypoint="python y.py", metadata={"b": "2"}, runtime_env={"env_vars": {"B": "2"}}
            )
            assert answer.status_code == 200, answer.text
        spec = await world.spec_of("s1", f"jobs/{stored}")
        assert (spec.entrypoint, spec.cluster, spec.metadata) == ("python y.py", "c1", {"a": "1", "b": "2"})
        assert spec.runtime_env["env_vars"] == {"A": "1", "B": "2"}
        assert spec.advanced_parameters == {"entrypoint_num_cpus": "1"}
        assert spec.name != stored

    async def test_a_stored_job_of_somebody_else(self, world: RayWorld, ann: httpx.AsyncClient) -> None:
        await submit(ann)
        stored = (await world.run_of("s1")).job_name
        async with world.client("bob", f"/ray/jobs/{stored}") as bob, world.client("ops", f"/ray/jobs/{stored}") as ops:
            refused = await submit(bob)
            assert refused.status_code == 400
            assert refused.text.startswith("NOT_YOURS: This belongs to ann. Ask ann")
            assert (await submit(ops)).status_code == 200

    async def test_an_address_with_nothing_behind_it(self, ann: httpx.AsyncClient) -> None:
        for path in ("/api/jobs", "/api/v0/nodes", "/api"):
            answer = await ann.get(path)
            assert (answer.status_code, answer.headers["content-type"]) == (404, "text/plain; charset=utf-8")
        assert (await ann.patch("/api/jobs/")).status_code == 405


class TestDetails:
    async def test_all_keys_of_a_waiting_run(self, world: RayWorld, ann: httpx.AsyncClient) -> None:
        await submit(ann, metadata={"a": "1"}, runtime_env={"env_vars": {"A": "1"}})
        found = await details(ann)
        run = await world.run_of("s1")
        assert found.pop("start_time") == int(run.created_at.timestamp() * 1000)
        assert found.pop("message").startswith("Accepted; the queue has not looked at it yet. Place 1 in the queue.")
        assert found == {
            "type": "SUBMISSION",
            "job_id": None,
            "submission_id": "s1",
            "driver_info": None,
            "status": "PENDING",
            "entrypoint": "python x.py",
            "error_type": None,
            "end_time": None,
            "metadata": {"a": "1"},
            "runtime_env": {"env_vars": {"A": "1"}},
            "driver_agent_http_address": None,
            "driver_node_id": None,
            "driver_exit_code": None,
        }

    async def test_a_waiting_run_says_for_what_and_where_it_stands(
        self, world: RayWorld, ann: httpx.AsyncClient
    ) -> None:
        await submit(ann, submission_id="s0")
        await submit(ann)
        condition = {
            "code": "HEAD_BUSY",
            "owner": "platform",
            "params": {"drivers": 3, "limit": 3},
            "since": world.services.clock.now().isoformat(),
        }
        await world.move("s1", RunState.WAITING, condition=condition)
        found = await details(ann)
        assert found["status"] == "PENDING"
        assert found["message"].startswith("The head already bears 3 drivers of at most 3.")
        assert found["message"].endswith("Place 2 in the queue.")

    @pytest.mark.parametrize(
        ("state", "status"),
        [
            (RunState.STARTING, "PENDING"),
            (RunState.RUNNING, "RUNNING"),
            (RunState.STOPPING, "RUNNING"),
        ],
    )
    async def test_states_on_the_way(
        self, world: RayWorld, ann: httpx.AsyncClient, state: RunState, status: str
    ) -> None:
        await submit(ann)
        await world.move("s1", state)
        found = await details(ann)
        assert found["status"] == status
        assert found["message"]

    @pytest.mark.parametrize(
        ("end_class", "code", "exit_code", "status", "error_type", "said"),
        [
            ("completed", "ALL_TASKS_DONE", 0, "SUCCEEDED", None, "exit code 0"),
            ("stopped", "BY_USER", None, "STOPPED", None, "stopped the run"),
            ("user", "EXIT_NONZERO", 3, "FAILED", "JOB_ENTRYPOINT_COMMAND_ERROR", "exit code 3"),
            ("user", "SIGNAL", -9, "FAILED", "JOB_ENTRYPOINT_COMMAND_ERROR", "Exit code -9."),
            ("environment", "RUNTIME_ENV_FAILED", None, "FAILED", "RUNTIME_ENV_SETUP_FAILURE", "no such wheel"),
            ("placement", "DRIVER_NOT_STARTED", None, "FAILED", "JOB_SUPERVISOR_ACTOR_UNSCHEDULABLE", "no such wheel"),
            ("lost", "NODE_LOST", None, "FAILED", "JOB_SUPERVISOR_ACTOR_DIED", "node"),
            ("timeout", "MAX_RUNTIME", 1, "FAILED", "MAX_RUNTIME", "Exit code 1."),
            ("timeout", "MAX_WAIT", None, "FAILED", "MAX_WAIT", "did not start within"),
        ],
    )
    async def test_ends(  # noqa: PLR0917 - a row of a table
        self,
        world: RayWorld,
        ann: httpx.AsyncClient,
        end_class: str,
        code: str,
        exit_code: int | None,
        status: str,
        error_type: str | None,
        said: str,
    ) -> None:
        await submit(ann)
        params = {"message": "no such wheel", "signal": "SIGKILL"}
        await world.end(
            "s1", End(end_class=EndClass(end_class), code=EndCode(code), exit_code=exit_code, params=params)
        )
        found = await details(ann)
        assert (found["status"], found["error_type"], found["driver_exit_code"]) == (status, error_type, exit_code)
        assert said in found["message"]
        assert found["end_time"] >= found["start_time"]

    async def test_words_in_the_language_asked_for(self, world: RayWorld) -> None:
        async with world.client(**{"Accept-Language": "zh"}) as client:
            await submit(client)
            assert "第 1 位" in (await details(client))["message"]

    async def test_the_list_is_the_newest_first_and_of_everybody(self, world: RayWorld, ann: httpx.AsyncClient) -> None:
        await submit(ann)
        async with world.client("bob") as bob:
            await submit(bob, submission_id="s2")
        await world.end("s1", DONE)
        found = (await ann.get("/api/jobs/")).json()
        assert [(one["submission_id"], one["status"]) for one in found] == [("s2", "PENDING"), ("s1", "SUCCEEDED")]
        for one in found:
            JobDetails(**one)

    @pytest.mark.parametrize("address", ["clusters", "groups", "jobs"])
    async def test_nothing_is_listed_of_what_nobody_has_made(self, world: RayWorld, address: str) -> None:
        async with world.client(address=f"/ray/{address}/nope") as client:
            answer = await client.get("/api/jobs/")
        assert answer.status_code == 404
        assert answer.text.startswith("NOT_FOUND: There is no ")

    async def test_no_submissions_are_an_empty_list(self, world: RayWorld) -> None:
        for address in ("/ray", "/ray/clusters/c1", "/ray/groups/g1"):
            async with world.client(address=address) as client:
                assert (await client.get("/api/jobs/")).json() == []

    async def test_what_was_submitted_to_a_cluster_that_is_gone_is_listed(
        self, world: RayWorld, ann: httpx.AsyncClient
    ) -> None:
        await submit(ann)
        async with world.services.database.write() as session:
            gone = {"version": ClusterRow.version + 1, "state": ClusterState.DELETED}
            await session.execute(update(ClusterRow).values(gone))
        assert [one["submission_id"] for one in (await ann.get("/api/jobs/")).json()] == ["s1"]


class TestStopAndDelete:
    async def test_a_waiting_run_is_stopped_at_once(self, ann: httpx.AsyncClient) -> None:
        await submit(ann)
        assert (await ann.post("/api/jobs/s1/stop")).json() == {"stopped": True}
        assert (await details(ann))["status"] == "STOPPED"
        again = await ann.post("/api/jobs/s1/stop")
        assert (again.status_code, again.json()) == (200, {"stopped": False})

    async def test_only_what_is_over_can_be_deleted(self, ann: httpx.AsyncClient) -> None:
        await submit(ann)
        answer = await ann.delete("/api/jobs/s1")
        assert answer.status_code == 500
        assert "non-terminal state PENDING" in answer.text

    async def test_a_deleted_one_is_gone_here_and_kept_in_muster(self, world: RayWorld, ann: httpx.AsyncClient) -> None:
        await submit(ann)
        run = await world.run_of("s1")
        await ann.post("/api/jobs/s1/stop")
        assert (await ann.delete("/api/jobs/s1")).json() == {"deleted": True}
        assert (await ann.get("/api/jobs/s1")).status_code == 404
        assert (await ann.get("/api/jobs/")).json() == []
        async with world.services.database.read() as session:
            kept = await session.get(type(run), run.id)
        assert kept is not None
        assert kept.state == "STOPPED"
        assert (await submit(ann)).status_code == 200

    async def test_only_by_its_owner_or_an_operator(self, world: RayWorld, ann: httpx.AsyncClient) -> None:
        await submit(ann)
        async with world.client("bob") as bob, world.client("ops") as ops:
            assert (await bob.post("/api/jobs/s1/stop")).status_code == 400
            assert (await ops.post("/api/jobs/s1/stop")).json() == {"stopped": True}
            assert (await bob.delete("/api/jobs/s1")).status_code == 400
            assert (await ops.delete("/api/jobs/s1")).json() == {"deleted": True}
