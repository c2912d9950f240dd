"""What the definition of a multi-task job may say: R2-R6, R25-R32, A2-A12, R53-R56 and api.md §2."""

import random
import string
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster_groups.check import check_nodes
from cluster_groups.model.cluster import NodeSpec, WorkerGroup
from cluster_groups.model.demand import PlacementStrategy
from rayjobs.dispatch import entrypoint, runner_package, runner_spec
from rayjobs.job_check import check_job, with_defaults
from rayjobs.model.job import JobSpec, Origin, Requirements, RunMode, TaskGroup
from rayjobs.runner.spec import unpack
from rayjobs.task_groups import derive_worker_groups, fixed_differences, warnings_about_gang
from runtime_envs.check_uri import UriPolicy

GROUP = TaskGroup(name="TaskG1", count=3, entrypoint='echo "$PAI_TASK_INDEX"')
OTHER = TaskGroup(name="TaskG2", count=5, entrypoint="true")
SHARED = JobSpec(name="a", run_mode=RunMode.CLUSTER, cluster="c", task_groups=(GROUP, OTHER))
ON_DEMAND = JobSpec(
    name="a", run_mode=RunMode.ON_DEMAND, resource_package="p", resource_group="g", task_groups=(GROUP, OTHER)
)


def problems(spec: JobSpec, origin: Origin = Origin.API) -> list[tuple[str, str | None]]:
    return [(one.code, one.pointer) for one in check_job(with_defaults(spec), UriPolicy(), origin)]


def with_group(**fields: Any) -> JobSpec:
    return replace(SHARED, task_groups=(replace(GROUP, **fields), OTHER))


def named(*names: str) -> JobSpec:
    return replace(SHARED, task_groups=tuple(replace(GROUP, name=name) for name in names))


class TestCommand:
    def test_a_package_is_optional(self) -> None:
        assert problems(SHARED) == problems(ON_DEMAND) == []
        assert problems(replace(SHARED, package="pkg")) == []

    def test_either_a_command_or_task_groups(self) -> None:
        assert problems(replace(SHARED, entrypoint="true")) == [("ENTRYPOINT_AND_TASK_GROUPS", "/entrypoint")]
        assert problems(replace(SHARED, task_groups=(), package="pkg")) == [("ENTRYPOINT_REQUIRED", "/entrypoint")]

    @pytest.mark.parametrize(
        ("command", "code"),
        [
            ("x" * 8192, None),
            ("if [ 1 ]; then\n  echo '训练'; fi", None),
            (" \n", "ENTRYPOINT_REQUIRED"),
            ("x" * 8193, "ENTRYPOINT_TOO_LONG"),
            ("a\0b", "ENTRYPOINT_INVALID"),
        ],
    )
    def test_each_group_has_its_own(self, command: str, code: str | None) -> None:
        expected = [(code, "/task_groups/0/entrypoint")] if code else []
        assert problems(with_group(entrypoint=command)) == expected

    def test_all_together_fit_what_can_be_sent(self) -> None:
        """What is accepted can be put to Ray, even under the longest names of run and cluster there may be."""
        noise = random.Random(7)  # noqa: S311 - a program without pattern, no secret
        letters = string.ascii_letters + string.digits
        groups = tuple(
            replace(GROUP, name=f"g{index}", entrypoint="".join(noise.choices(letters, k=8192))) for index in range(14)
        )
        fitting = next(count for count in range(14, 0, -1) if not problems(replace(SHARED, task_groups=groups[:count])))
        assert fitting < 14
        assert problems(replace(SHARED, task_groups=groups)) == [("JOB_TOO_LARGE", "/task_groups")]
        spec = replace(SHARED, task_groups=groups[:fitting])
        assert len(entrypoint(runner_spec(spec, "run_" + "Z" * 26, 10), runner_package())) < 128 * 1024


class TestNames:
    @pytest.mark.parametrize("name", ["a", "A" * 20, "a1-_", "TaskG1"])
    def test_names(self, name: str) -> None:
        assert problems(named(name)) == []

    @pytest.mark.parametrize("name", ["A" * 21, "1a", "a.b", "-a", "a b", "任务", "a\n"])
    def test_no_names(self, name: str) -> None:
        assert problems(named(name)) == [("TASK_GROUP_NAME_INVALID", "/task_groups/0/name")]

    @pytest.mark.parametrize(
        ("names", "code"),
        [
            (("a", "b", "a"), "DUPLICATE_TASK_GROUP"),
            (("a-b", "x", "a_b"), "TASK_GROUP_NAMES_COLLIDE"),
            (("worker", "x", "Worker"), "TASK_GROUP_NAMES_COLLIDE"),
            (("A_b", "x", "a-B"), "TASK_GROUP_NAMES_COLLIDE"),
        ],
    )
    def test_unique_in_the_job(self, names: tuple[str, ...], code: str) -> None:
        assert problems(named(*names)) == [(code, "/task_groups/2/name")]
        (found,) = check_job(named(*names), UriPolicy())
        assert found.params["name"] == names[2]

    def test_the_same_once_more_is_a_duplicate_whatever_it_collides_with(self) -> None:
        assert [code for code, _ in problems(named("a-b", "a_b", "a_b"))] == [
            "TASK_GROUP_NAMES_COLLIDE",
            "DUPLICATE_TASK_GROUP",
        ]

    def test_one_group_need_not_be_named(self) -> None:
        assert problems(named("")) == []
        assert with_defaults(named("")).task_groups[0].name == "TaskG1"

    def test_of_several_each_is_named(self) -> None:
        missing = "TASK_GROUP_NAME_REQUIRED"
        assert problems(named("a", "")) == [(missing, "/task_groups/1/name")]
        assert problems(named("", "a", "")) == [(missing, "/task_groups/0/name"), (missing, "/task_groups/2/name")]


class TestNumbers:
    @pytest.mark.parametrize(
        ("field", "value", "code"),
        [
            ("count", 0, "TASK_COUNT_OUT_OF_RANGE"),
            ("count", -1, "TASK_COUNT_OUT_OF_RANGE"),
            ("count", 1001, "TASK_COUNT_OUT_OF_RANGE"),
            ("cpu", 0, "TASK_SIZE_OUT_OF_RANGE"),
            ("cpu", 5000, "TASK_SIZE_OUT_OF_RANGE"),
            ("memory_gib", 1e305, "TASK_SIZE_OUT_OF_RANGE"),
            ("memory_gib", 0, "TASK_SIZE_OUT_OF_RANGE"),
            ("memory_gib", 1e9, "TASK_SIZE_OUT_OF_RANGE"),
            ("gpu", -1, "TASK_SIZE_OUT_OF_RANGE"),
            ("min_succeeded", 0, "THRESHOLD_OUT_OF_RANGE"),
            ("min_succeeded", 4, "THRESHOLD_OUT_OF_RANGE"),
            ("min_succeeded", -2, "THRESHOLD_OUT_OF_RANGE"),
            ("min_failed", 4, "THRESHOLD_OUT_OF_RANGE"),
        ],
    )
    def test_out_of_range(self, field: str, value: Any, code: str) -> None:
        assert (code, f"/task_groups/0/{field}") in problems(with_group(**{field: value}))

    @pytest.mark.parametrize(
        "fields",
        [
            {"count": 995},
            {"cpu": 0.5, "memory_gib": 0.25},
            {"gpu": 8, "gpu_type": "H100"},
            {"gpu": 1},
            {"min_succeeded": 1, "min_failed": 3},
            {"min_succeeded": -1, "min_failed": -1},
        ],
    )
    def test_within(self, fields: dict[str, Any]) -> None:
        assert problems(with_group(**fields)) == []

    def test_tasks_of_all_groups(self) -> None:
        assert problems(with_group(count=996)) == [("TOO_MANY_TASKS", "/task_groups")]
        many = named(*(f"g{index}" for index in range(51)))
        assert problems(many) == [("TOO_MANY_TASK_GROUPS", "/task_groups")]

    def test_a_type_needs_a_card(self) -> None:
        assert problems(with_group(gpu_type="H100")) == [("GPU_COUNT_REQUIRED", "/task_groups/0/gpu")]
        assert problems(with_group(gpu=1, gpu_type="H 100")) == [("GPU_TYPE_INVALID", "/task_groups/0/gpu_type")]

    @pytest.mark.parametrize(("timeout_s", "fine"), [(10, True), (86_400, True), (9, False), (86_401, False)])
    def test_gang_timeout(self, timeout_s: int, *, fine: bool) -> None:
        expected = [] if fine else [("GANG_TIMEOUT_OUT_OF_RANGE", "/gang_timeout_s")]
        assert problems(replace(SHARED, gang_timeout_s=timeout_s)) == expected


class TestThresholds:
    def test_of_one_task_in_all_they_do_nothing(self) -> None:
        group = replace(GROUP, count=1, min_succeeded=1, min_failed=-1)
        spec = replace(SHARED, task_groups=(group,))
        assert problems(spec) == []
        warned = [(one.code, one.pointer) for one in warnings_about_gang(spec)]
        assert warned == [
            ("THRESHOLD_NOT_USED", "/task_groups/0/min_succeeded"),
            ("THRESHOLD_NOT_USED", "/task_groups/0/min_failed"),
        ]
        (sent,) = runner_spec(spec, "run_1", 1).groups
        assert (sent.min_succeeded, sent.min_failed) == (None, None)

    def test_of_a_group_of_one_among_others_they_count(self) -> None:
        master = replace(GROUP, count=1, min_succeeded=1, min_failed=1)
        spec = replace(SHARED, task_groups=(master, OTHER))
        assert warnings_about_gang(spec) == []
        sent, _ = runner_spec(spec, "run_1", 1).groups
        assert (sent.min_succeeded, sent.min_failed) == (1, 1)

    def test_what_a_plain_job_has_no_use_for(self) -> None:
        plain = replace(SHARED, task_groups=(), entrypoint="true", package="pkg")
        assert warnings_about_gang(plain) == []
        odd = replace(plain, placement_strategy=PlacementStrategy.PACK, gang_timeout_s=10)
        assert [one.pointer for one in warnings_about_gang(odd)] == ["/placement_strategy", "/gang_timeout_s"]


class TestOtherFields:
    @pytest.mark.parametrize("field", ["cpu", "memory_gib", "gpu"])
    def test_tasks_say_what_they_take(self, field: str) -> None:
        needs = Requirements(**{field: 1})
        expected = [("REQUIREMENT_NOT_FOR_TASK_GROUPS", f"/requirements/{field}")]
        assert problems(replace(SHARED, requirements=needs)) == expected

    def test_which_clusters_is_still_asked(self) -> None:
        needs = Requirements(gpu_types=("H100",), labels={"zone": "a"}, ray_version="2.60", python_version="3.11")
        assert problems(replace(SHARED, requirements=needs)) == []

    @pytest.mark.parametrize(
        ("key", "value", "item"),
        [
            ("entrypoint_num_cpus", "1", "task_groups[].cpu"),
            ("entrypoint_num_gpus", "1", "task_groups[].gpu"),
            ("entrypoint_memory", "1000", "task_groups[].memory_gib"),
            ("entrypoint_resources", '{"license": 1}', "task_groups[]"),
            ("entrypoint_label_selector", '{"zone": "a"}', "task_groups[]"),
        ],
    )
    def test_nobody_sizes_the_driver_of_a_gang(self, key: str, value: str, item: str) -> None:
        (found,) = check_job(replace(SHARED, advanced_parameters={key: value}), UriPolicy())
        assert (found.code, found.pointer) == ("ADVANCED_PARAM_NOT_FOR_TASK_GROUPS", f"/advanced_parameters/{key}")
        assert found.params["form_item"] == item

    @pytest.mark.parametrize(("key", "item"), [("num-cpus", "task_groups[].cpu"), ("args", "task_groups[].entrypoint")])
    def test_protected_parameters_name_the_items_of_task_groups(self, key: str, item: str) -> None:
        (found,) = check_job(replace(SHARED, advanced_parameters={key: "1"}), UriPolicy())
        assert (found.code, found.params["form_item"]) == ("ADVANCED_PARAM_PROTECTED", item)

    def test_reserved_variables_are_reserved_here_too(self) -> None:
        spec = replace(SHARED, runtime_env={"env_vars": {"PAI_TASK_INDEX": "1"}})
        assert problems(spec) == [("RESERVED_VARIABLE", "/runtime_env/env_vars/PAI_TASK_INDEX")]


class TestWorkerGroups:
    """api.md §2: a multi-task job may leave them out, and gets one for each task group, min = max = count."""

    def test_one_for_each_task_group(self) -> None:
        small = TaskGroup(name="Task_G1", count=3, cpu=0.5, memory_gib=0.25, entrypoint="true")
        large = TaskGroup(name="gpu", count=2, cpu=7.5, memory_gib=30, gpu=4, gpu_type="H100", entrypoint="true")
        assert with_defaults(replace(ON_DEMAND, task_groups=(small, large))).worker_groups == (
            WorkerGroup(name="task-g1", cpu=1, memory_gib=2, min_instances=3, max_instances=3),
            WorkerGroup(name="gpu", cpu=8, memory_gib=30, gpu=4, gpu_type="H100", min_instances=2, max_instances=2),
        )

    def test_what_is_given_stays(self) -> None:
        workers = (WorkerGroup(name="w", max_instances=8),)
        assert with_defaults(replace(ON_DEMAND, worker_groups=workers)).worker_groups == workers

    def test_existing_clusters_have_their_own(self) -> None:
        assert with_defaults(SHARED).worker_groups == ()

    def test_more_than_a_cluster_may_have(self) -> None:
        eight = tuple(replace(GROUP, name=f"g{index}") for index in range(8))
        spec = replace(ON_DEMAND, task_groups=eight)
        assert problems(spec) == [("WORKER_GROUPS_REQUIRED", "/worker_groups")]
        assert problems(replace(spec, worker_groups=(WorkerGroup(name="w", max_instances=24),))) == []
        assert problems(replace(spec, task_groups=eight[:7])) == []

    def test_a_mistake_in_a_task_group_is_told_once(self) -> None:
        wrong = replace(GROUP, name="1a", count=0, cpu=-1)
        assert {pointer for _, pointer in problems(replace(ON_DEMAND, task_groups=(wrong,)))} == {
            "/task_groups/0/name",
            "/task_groups/0/count",
            "/task_groups/0/cpu",
        }

    def test_those_that_are_given_are_checked(self) -> None:
        workers = (WorkerGroup(name="head"),)
        assert problems(replace(ON_DEMAND, worker_groups=workers)) == [
            ("DUPLICATE_NODE_GROUP", "/worker_groups/0/name")
        ]
        assert problems(replace(ON_DEMAND, head=NodeSpec(cpu=0.5))) == [("NODE_CPU_TOO_SMALL", "/head/cpu")]

    @given(
        st.lists(st.from_regex(r"[hH][eE][aA][dD]|[A-Za-z][A-Za-z_-]{0,19}", fullmatch=True), min_size=1, max_size=7)
    )
    def test_they_are_always_legal(self, names: list[str]) -> None:
        groups = tuple(replace(GROUP, name=name) for name in names)
        if problems(replace(SHARED, task_groups=groups)):
            return  # names that are refused before
        assert check_nodes(NodeSpec(), derive_worker_groups(groups)) == []


class TestEdits:
    def test_commands_may_change(self) -> None:
        assert fixed_differences((GROUP, OTHER), (replace(GROUP, entrypoint="x"), replace(OTHER, entrypoint="y"))) == []

    @pytest.mark.parametrize(
        ("field", "value"), [("name", "x"), ("count", 4), ("cpu", 2), ("gpu", 1), ("min_failed", 2)]
    )
    def test_nothing_else_may(self, field: str, value: Any) -> None:
        changed = replace(OTHER, entrypoint="y", **{field: value})
        assert fixed_differences((GROUP, OTHER), (GROUP, changed)) == [f"task_groups/1/{field}"]

    def test_nor_their_number(self) -> None:
        assert fixed_differences((GROUP,), (GROUP, OTHER)) == fixed_differences((GROUP,), ()) == ["task_groups"]


def test_the_runner_is_told_everything() -> None:
    spec = with_group(cpu=2, memory_gib=1.5, gpu=4, gpu_type="H100", min_failed=2)
    spec = replace(spec, placement_strategy=PlacementStrategy.PACK, gang_timeout_s=60, stop_grace_s=3, max_runtime_s=9)
    told = runner_spec(spec, "run_1", 2)
    assert (told.submission_id, told.run_id, told.attempt, told.command) == ("run_1-a2", "run_1", 2, "")
    assert (told.placement_strategy, told.gang_timeout_s, told.stop_grace_s, told.max_runtime_s) == ("PACK", 60, 3, 9)
    assert told.groups[0] == ("TaskG1", 3, 2, 3 * 2**29, 4, "H100", GROUP.entrypoint, None, 2)
    packed = entrypoint(told, runner_package()).rsplit(" ", 1)[1]
    assert unpack(packed) == told
