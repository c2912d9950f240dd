"""What a job's definition may say: R40-R46, R53-R58, A15-A27, A37, requirements §4.2."""

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster_groups.model.cluster import NodeSpec, WorkerGroup
from rayjobs.job_check import check_job, with_defaults
from rayjobs.job_command import starts_in
from rayjobs.model.job import JobSpec, Origin, Requirements, Retry, RunMode
from runtime_envs.check_uri import UriPolicy

WORKERS = (WorkerGroup(name="w1", cpu=4, memory_gib=8),)
ON_DEMAND = JobSpec(
    name="a",
    run_mode=RunMode.ON_DEMAND,
    resource_package="p",
    resource_group="g",
    priority=5,
    head=NodeSpec(),
    worker_groups=WORKERS,
    package="pkg",
    entrypoint="python main.py --config config.yaml",
)
CLUSTER = JobSpec(name="a", run_mode=RunMode.CLUSTER, cluster="c", package="pkg", entrypoint="true")
GROUP = JobSpec(name="a", run_mode=RunMode.CLUSTER_GROUP, cluster_group="g", package="pkg", entrypoint="true")


def problems(spec: JobSpec, origin: Origin = Origin.API) -> list[tuple[str, str | None]]:
    return [(one.code, one.pointer) for one in check_job(with_defaults(spec), UriPolicy(), origin)]


class TestRunModes:
    @pytest.mark.parametrize("spec", [ON_DEMAND, CLUSTER, GROUP])
    def test_each_mode_has_its_fields(self, spec: JobSpec) -> None:
        assert problems(spec) == []

    @pytest.mark.parametrize(
        ("spec", "field", "value"),
        [
            *[(spec, "resource_package", "p") for spec in (CLUSTER, GROUP)],
            *[(spec, "resource_group", "g") for spec in (CLUSTER, GROUP)],
            *[(spec, "priority", 5) for spec in (CLUSTER, GROUP)],
            *[(spec, "image", "a:1") for spec in (CLUSTER, GROUP)],
            *[(spec, "head", NodeSpec()) for spec in (CLUSTER, GROUP)],
            *[(spec, "worker_groups", WORKERS) for spec in (CLUSTER, GROUP)],
            (ON_DEMAND, "cluster", "c"),
            (ON_DEMAND, "cluster_group", "g"),
            (ON_DEMAND, "requirements", Requirements()),
        ],
    )
    def test_a_field_of_another_mode(self, spec: JobSpec, field: str, value: Any) -> None:
        (found,) = check_job(replace(spec, **{field: value}), UriPolicy())
        assert (found.code, found.pointer) == ("FIELD_NOT_FOR_MODE", f"/{field}")
        assert found.params == {"field": field, "run_mode": str(spec.run_mode)}

    @pytest.mark.parametrize(
        ("spec", "field", "code"),
        [
            (ON_DEMAND, "resource_package", "RESOURCE_PACKAGE_REQUIRED"),
            (ON_DEMAND, "resource_group", "RESOURCE_GROUP_REQUIRED"),
            (CLUSTER, "cluster", "CLUSTER_REQUIRED"),
            (GROUP, "cluster_group", "CLUSTER_GROUP_REQUIRED"),
        ],
    )
    def test_what_a_mode_asks_for(self, spec: JobSpec, field: str, code: str) -> None:
        assert problems(replace(spec, **{field: None})) == [(code, f"/{field}")]
        assert problems(replace(spec, **{field: ""})) == [(code, f"/{field}")]

    @pytest.mark.parametrize(
        ("spec", "pointer"), [(CLUSTER, "/cluster_group"), (GROUP, "/cluster"), (ON_DEMAND, "/cluster_group")]
    )
    def test_cluster_and_group_together(self, spec: JobSpec, pointer: str) -> None:
        both = replace(spec, cluster="c", cluster_group="g")
        assert problems(both) == [("CLUSTER_AND_GROUP_CONFLICT", pointer)]


class TestDefaults:
    def test_on_demand_gets_priority_and_head(self) -> None:
        spec = with_defaults(replace(ON_DEMAND, priority=None, head=None))
        assert (spec.priority, spec.head) == (5, NodeSpec(cpu=2, memory_gib=4))

    def test_what_is_given_stays(self) -> None:
        assert with_defaults(replace(ON_DEMAND, priority=0)).priority == 0
        assert with_defaults(replace(ON_DEMAND, head=NodeSpec(cpu=9))).head == NodeSpec(cpu=9)

    @pytest.mark.parametrize("spec", [CLUSTER, GROUP])
    def test_other_modes_inherit(self, spec: JobSpec) -> None:
        assert with_defaults(spec) == spec
        assert spec.priority is None


class TestNodes:
    """The rules themselves are of cluster_groups; here: they apply, to on_demand only, with the job's pointers."""

    def test_one_to_seven_worker_groups(self) -> None:
        assert problems(replace(ON_DEMAND, worker_groups=())) == [("WORKER_GROUP_COUNT", "/worker_groups")]
        seven = tuple(WorkerGroup(name=f"w{index}") for index in range(7))
        assert problems(replace(ON_DEMAND, worker_groups=seven)) == []
        eight = (*seven, WorkerGroup(name="w8"))
        assert problems(replace(ON_DEMAND, worker_groups=eight)) == [("WORKER_GROUP_COUNT", "/worker_groups")]

    def test_a_group_named_like_the_head(self) -> None:
        named = (WorkerGroup(name="Head"),)
        assert problems(replace(ON_DEMAND, worker_groups=named)) == [("DUPLICATE_NODE_GROUP", "/worker_groups/0/name")]

    def test_too_small_a_head(self) -> None:
        assert problems(replace(ON_DEMAND, head=NodeSpec(cpu=0.5))) == [("NODE_CPU_TOO_SMALL", "/head/cpu")]

    @pytest.mark.parametrize("image", ["ray", "registry.example.com:5000/team/ray:2.60.0@sha256:ab"])
    def test_images(self, image: str) -> None:
        assert problems(replace(ON_DEMAND, image=image)) == []

    @pytest.mark.parametrize("image", ["", "a b", "a\n", "-a", "a" * 513])
    def test_no_images(self, image: str) -> None:
        assert problems(replace(ON_DEMAND, image=image)) == [("IMAGE_INVALID", "/image")]


class TestText:
    def test_the_name_is_checked(self) -> None:
        assert problems(replace(CLUSTER, name="x" * 101)) == [("NAME_TOO_LONG", "/name")]

    def test_nobody_chose_the_name_of_a_hidden_job(self) -> None:
        assert problems(replace(CLUSTER, name="a/b"), Origin.RAY_JOBS) == []

    @pytest.mark.parametrize(
        ("description", "code"),
        [
            ("x" * 2000, None),
            ("一\n二\t三", None),
            ("x" * 2001, "DESCRIPTION_TOO_LONG"),
            ("a\0", "DESCRIPTION_INVALID"),
        ],
    )
    def test_description(self, description: str, code: str | None) -> None:
        expected = [(code, "/description")] if code else []
        assert problems(replace(CLUSTER, description=description)) == expected

    @pytest.mark.parametrize(
        ("key", "value", "code", "pointer"),
        [
            ("团队", "视觉", None, None),
            ("a" * 63, "x" * 256, None, None),
            ("team/sub.x-1", "", None, None),
            ("a" * 64, "", "TAG_KEY_INVALID", "/tags/" + "a" * 64),
            ("", "", "TAG_KEY_INVALID", "/tags/"),
            ("a:b", "", "TAG_KEY_INVALID", "/tags/a:b"),
            ('a"b', "", "TAG_KEY_INVALID", '/tags/a"b'),
            ("/a", "", "TAG_KEY_INVALID", "/tags/~1a"),
            ("a", "x" * 257, "TAG_INVALID", "/tags/a"),
            ("a", "x\n", "TAG_INVALID", "/tags/a"),
        ],
    )
    def test_tags(self, key: str, value: str, code: str | None, pointer: str | None) -> None:
        expected = [(code, pointer)] if code else []
        assert problems(replace(CLUSTER, tags={key: value})) == expected

    def test_at_most_fifty_tags(self) -> None:
        assert problems(replace(CLUSTER, tags={f"k{index}": "" for index in range(50)})) == []
        tags = {f"k{index}": "" for index in range(51)}
        assert problems(replace(CLUSTER, tags=tags)) == [("TOO_MANY_TAGS", "/tags")]


class TestCommand:
    def test_package_and_command_are_both_required(self) -> None:
        missing = replace(CLUSTER, package=None, entrypoint="")
        assert problems(missing) == [("PACKAGE_REQUIRED", "/package"), ("ENTRYPOINT_REQUIRED", "/entrypoint")]

    def test_rays_own_client_may_come_without_a_package(self) -> None:
        assert problems(replace(CLUSTER, package=None), Origin.RAY_JOBS) == []

    @pytest.mark.parametrize(
        ("entrypoint", "code"),
        [
            ("x" * 8192, None),
            ("echo \"$X\" '$X'; cat <<E\n训练\nE", None),
            (" \n", "ENTRYPOINT_REQUIRED"),
            ("x" * 8193, "ENTRYPOINT_TOO_LONG"),
            ("a\0b", "ENTRYPOINT_INVALID"),
            ("a\ud800", "ENTRYPOINT_INVALID"),
        ],
    )
    def test_entrypoint(self, entrypoint: str, code: str | None) -> None:
        expected = [(code, "/entrypoint")] if code else []
        assert problems(replace(CLUSTER, entrypoint=entrypoint)) == expected

    @pytest.mark.parametrize(
        "entrypoint",
        [
            "cd app && python main.py",
            "python app/main.py",
            "python ./app/main.py",
            "bash -c 'cd \"app\"; x'",
            "app/run",
        ],
    )
    def test_a_command_that_goes_into_the_folder(self, entrypoint: str) -> None:
        assert starts_in(entrypoint, "app")

    @pytest.mark.parametrize(
        "entrypoint",
        ["python main.py", "python happy/main.py", "python app2/main.py", "python x/app/main.py", "python app.py"],
    )
    def test_a_command_that_stays_beside_it(self, entrypoint: str) -> None:
        assert not starts_in(entrypoint, "app")

    def test_a_folder_name_is_no_pattern(self) -> None:
        assert not starts_in("cd abc", "a.c")
        assert starts_in("cd 'a (1)'", "a (1)")


class TestBounds:
    @pytest.mark.parametrize(
        ("field", "code", "minimum", "maximum"),
        [
            ("priority", "PRIORITY_OUT_OF_RANGE", 1, 9),
            ("start_timeout_s", "START_TIMEOUT_OUT_OF_RANGE", 10, 86_400),
            ("stop_grace_s", "STOP_GRACE_OUT_OF_RANGE", 0, 600),
            ("max_wait_s", "MAX_WAIT_OUT_OF_RANGE", 1, 2**31 - 1),
            ("max_runtime_s", "MAX_RUNTIME_OUT_OF_RANGE", 1, 2**31 - 1),
        ],
    )
    def test_numbers(self, field: str, code: str, minimum: int, maximum: int) -> None:
        for value in (minimum, maximum):
            assert problems(replace(ON_DEMAND, **{field: value})) == []
        for value in (minimum - 1, maximum + 1):
            (found,) = check_job(replace(ON_DEMAND, **{field: value}), UriPolicy())
            assert (found.code, found.pointer) == (code, f"/{field}")
            assert found.params == {"minimum": minimum, "maximum": maximum}

    def test_retry(self) -> None:
        assert problems(replace(CLUSTER, retry=Retry(max_attempts=10, on=("user",)))) == []
        assert problems(replace(CLUSTER, retry=Retry(on=()))) == []
        for count in (0, 11):
            retry = Retry(max_attempts=count)
            assert problems(replace(CLUSTER, retry=retry)) == [("MAX_ATTEMPTS_OUT_OF_RANGE", "/retry/max_attempts")]
        for name in ("completed", "stopped", "timeout", "Lost"):
            retry = Retry(on=("lost", name))
            assert problems(replace(CLUSTER, retry=retry)) == [("RETRY_CLASS_UNKNOWN", "/retry/on/1")]

    @pytest.mark.parametrize("spec", [CLUSTER, GROUP])
    @pytest.mark.parametrize(
        ("needs", "code", "pointer"),
        [
            ({}, None, ""),
            ({"cpu": 0.1, "memory_gib": 1.5, "gpu": 8, "gpu_types": ("H100",)}, None, ""),
            ({"labels": {"a.b/c": "x_1"}, "ray_version": "2.60.0rc1", "python_version": "3.11"}, None, ""),
            ({"cpu": -0.1}, "REQUIREMENT_OUT_OF_RANGE", "/cpu"),
            ({"memory_gib": math.nan}, "REQUIREMENT_OUT_OF_RANGE", "/memory_gib"),
            ({"gpu": 10**9}, "REQUIREMENT_OUT_OF_RANGE", "/gpu"),
            ({"gpu_types": ("H100", "H 100")}, "GPU_TYPE_INVALID", "/gpu_types/1"),
            ({"labels": {"a b": ""}}, "LABEL_INVALID", "/labels/a b"),
            ({"ray_version": "latest"}, "VERSION_INVALID", "/ray_version"),
            ({"python_version": ">=3.9"}, "VERSION_INVALID", "/python_version"),
        ],
    )
    def test_requirements(self, spec: JobSpec, needs: dict[str, Any], code: str | None, pointer: str) -> None:
        expected = [(code, f"/requirements{pointer}")] if code else []
        assert problems(replace(spec, requirements=Requirements(**needs))) == expected


class TestEnvironment:
    """The rules themselves are of runtime_envs and `advanced`; here: they apply, with the job's pointers."""

    def test_runtime_env(self) -> None:
        assert problems(replace(CLUSTER, runtime_env={"pip": ["emoji"], "env_vars": {"A": "1"}})) == []
        reserved = {"env_vars": {"PAI_X": "1"}}
        assert problems(replace(CLUSTER, runtime_env=reserved)) == [
            ("RESERVED_VARIABLE", "/runtime_env/env_vars/PAI_X")
        ]

    @pytest.mark.parametrize("text", ["a\0b", "a\ud800b"])
    def test_text_no_database_takes(self, text: str) -> None:
        ((_, pointer),) = problems(replace(CLUSTER, runtime_env={"excludes": [text]}))
        assert pointer in {"/runtime_env", "/runtime_env/excludes/0"}

    def test_only_rays_own_client_brings_a_working_dir(self) -> None:
        spec = replace(CLUSTER, runtime_env={"working_dir": "gcs://_ray_pkg_0123456789abcdef.zip"})
        assert problems(spec) == [("WORKING_DIR_NOT_ALLOWED", "/runtime_env/working_dir")]
        assert problems(spec, Origin.RAY_JOBS) == []

    def test_advanced_parameters(self) -> None:
        spec = replace(CLUSTER, advanced_parameters={"num-cpus": "1"})
        assert problems(spec) == [("ADVANCED_PARAM_PROTECTED", "/advanced_parameters/num-cpus")]

    @pytest.mark.parametrize(
        ("parameters", "fits"),
        [
            ({"entrypoint_num_cpus": "4"}, True),
            ({"entrypoint_num_cpus": "4.5"}, False),
            ({"entrypoint_num_gpus": "1"}, False),
            ({"entrypoint_memory": str(8 << 30)}, True),
            ({"entrypoint_memory": str((8 << 30) + 1)}, False),
            ({"entrypoint_memory": str(16 << 30)}, False),
            ({"entrypoint_resources": '{"license": 1}'}, False),
            ({"entrypoint_num_cpus": "0", "log_level": "info"}, True),
        ],
    )
    def test_the_driver_must_fit_on_a_node_of_its_own_cluster(self, parameters: dict[str, str], *, fits: bool) -> None:
        spec = replace(ON_DEMAND, advanced_parameters=parameters, head=NodeSpec(cpu=64, memory_gib=4))
        assert problems(spec) == ([] if fits else [("DRIVER_NEVER_FITS", "/advanced_parameters")])

    def test_on_a_shared_cluster_its_nodes_decide_later(self) -> None:
        assert problems(replace(CLUSTER, advanced_parameters={"entrypoint_num_gpus": "8"})) == []


@given(
    st.text(max_size=110), st.text(max_size=40), st.dictionaries(st.text(max_size=70), st.text(max_size=10), max_size=3)
)
def test_every_problem_points_at_the_field_it_is_about(name: str, entrypoint: str, tags: dict[str, str]) -> None:
    fields = {"name": name, "entrypoint": entrypoint, "tags": tags}
    for one in check_job(replace(CLUSTER, **fields), UriPolicy()):
        assert one.pointer is not None
        assert one.pointer.split("/")[1] in fields


class TestImageOfTheRuntimeEnv:
    """What it has in it is all that its container sees."""

    POLICY = UriPolicy(images=("plain:1",))

    def test_it_takes_the_place_of_the_package(self) -> None:
        alone = replace(CLUSTER, package=None, runtime_env={"image_uri": "plain:1"})
        assert check_job(alone, self.POLICY) == []
        (found,) = check_job(replace(alone, package="pkg_1"), self.POLICY)
        assert (found.code, found.pointer) == ("RUNTIME_ENV_CONFLICT", "/package")
