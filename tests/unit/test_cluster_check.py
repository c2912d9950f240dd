"""What makes a cluster, a pool or a policy acceptable in itself."""

from dataclasses import replace
from typing import Any

import pytest

from cluster_groups.check import (
    check_cluster,
    check_group,
    check_labels,
    check_name,
    check_nodes,
    check_package,
    warnings_about_image,
)
from cluster_groups.model.cluster import ClusterConfig, NodeSpec, WorkerGroup
from cluster_groups.model.quota import GpuCapacity, GroupConfig, PackageConfig
from kernel.errors import Problem
from kernel.resources import Resources
from tests.builders.clusters import a_config, an_attached_config

HEAD = NodeSpec()
WORKER = WorkerGroup(name="w1")


def found(problems: list[Problem]) -> list[tuple[str, str | None]]:
    return [(one.code, one.pointer) for one in problems]


def groups(count: int) -> tuple[WorkerGroup, ...]:
    return tuple(WorkerGroup(name=f"w{index}") for index in range(count))


class TestNames:
    @pytest.mark.parametrize("name", ["a", "a-1", "a" * 40])
    def test_good(self, name: str) -> None:
        assert check_name(name) == []

    @pytest.mark.parametrize("name", ["", "1a", "-a", "A", "a_b", "a.b", "a" * 41, "a\n", "ä"])
    def test_bad(self, name: str) -> None:
        assert found(check_name(name)) == [("INVALID_NAME", "/name")]


class TestNodes:
    @pytest.mark.parametrize("count", [1, 7])
    def test_one_to_seven_worker_groups(self, count: int) -> None:
        assert check_nodes(HEAD, groups(count)) == []

    @pytest.mark.parametrize("count", [0, 8])
    def test_no_other_number(self, count: int) -> None:
        assert found(check_nodes(HEAD, groups(count))) == [("WORKER_GROUP_COUNT", "/worker_groups")]

    @pytest.mark.parametrize(
        ("worker", "problem"),
        [
            ({"cpu": 0.5}, ("NODE_CPU_TOO_SMALL", "cpu")),
            ({"cpu": float("inf")}, ("VALUE_OUT_OF_RANGE", "cpu")),
            ({"cpu": float("nan")}, ("VALUE_OUT_OF_RANGE", "cpu")),
            ({"memory_gib": 1.99}, ("NODE_MEMORY_TOO_SMALL", "memory_gib")),
            ({"gpu_type": "H100"}, ("GPU_COUNT_REQUIRED", "gpu")),
            ({"gpu": 1, "gpu_type": "H 100"}, ("GPU_TYPE_INVALID", "gpu_type")),
            ({"gpu": -1}, ("VALUE_OUT_OF_RANGE", "gpu")),
            ({"labels": {"a/b": "-"}}, ("LABEL_INVALID", "labels/a~1b")),
            ({"min_instances": 2}, ("INSTANCE_RANGE_INVALID", "min_instances")),
            ({"min_instances": -1}, ("INSTANCE_RANGE_INVALID", "min_instances")),
            ({"min_instances": 0, "max_instances": 0}, ("INSTANCE_RANGE_INVALID", "max_instances")),
            ({"max_instances": 1001}, ("INSTANCE_RANGE_INVALID", "max_instances")),
            ({"name": "1a"}, ("NODE_GROUP_NAME_INVALID", "name")),
            ({"name": "a" * 21}, ("NODE_GROUP_NAME_INVALID", "name")),
            ({"name": "a.b"}, ("NODE_GROUP_NAME_INVALID", "name")),
        ],
    )
    def test_each_rule_has_its_code_and_place(self, worker: dict[str, Any], problem: tuple[str, str]) -> None:
        code, field = problem
        assert found(check_nodes(HEAD, (replace(WORKER, **worker),), "/x")) == [(code, f"/x/worker_groups/0/{field}")]

    @pytest.mark.parametrize(
        "worker",
        [
            {"cpu": 1, "memory_gib": 2},
            {"gpu": 2},
            {"gpu": 1, "gpu_type": "H100"},
            {"min_instances": 0, "max_instances": 1000},
            {"name": "W_1-" + "a" * 16},
        ],
    )
    def test_what_is_still_allowed(self, worker: dict[str, Any]) -> None:
        assert check_nodes(HEAD, (replace(WORKER, **worker),)) == []

    def test_the_head_has_the_same_rules(self) -> None:
        small = NodeSpec(cpu=0, memory_gib=1)
        codes = [("NODE_CPU_TOO_SMALL", "/head/cpu"), ("NODE_MEMORY_TOO_SMALL", "/head/memory_gib")]
        assert found(check_nodes(small, (WORKER,))) == codes
        assert found(check_nodes(None, (WORKER,))) == [("FIELD_REQUIRED", "/head")]

    @pytest.mark.parametrize("names", [("head",), ("HEAD",), ("w", "W")])
    def test_names_are_unique_in_any_case(self, names: tuple[str, ...]) -> None:
        same = tuple(WorkerGroup(name=name) for name in names)
        assert found(check_nodes(HEAD, same)) == [("DUPLICATE_NODE_GROUP", f"/worker_groups/{len(names) - 1}/name")]


class TestLabels:
    @pytest.mark.parametrize("labels", [{"a": ""}, {"zone": "eu-1.b_c"}, {"example.com/a": "b"}, {"a" * 63: "b" * 63}])
    def test_good(self, labels: dict[str, str]) -> None:
        assert check_labels(labels, "/labels") == []

    @pytest.mark.parametrize(
        "labels",
        [
            {"": "a"},
            {"-a": "b"},
            {"a": "b-"},
            {"a" * 64: "b"},
            {"a": "b" * 64},
            {"/a": "b"},
            {"A_b/c": "d"},
            {"ray.io/x": "y"},
        ],
    )
    def test_bad(self, labels: dict[str, str]) -> None:
        assert [one.code for one in check_labels(labels, "/labels")] == ["LABEL_INVALID"]


class TestKinds:
    def test_both_are_fine_as_they_are(self) -> None:
        assert check_cluster(a_config()) == check_cluster(an_attached_config()) == []

    @pytest.mark.parametrize(
        ("config", "problem"),
        [
            (a_config(name="od-1"), ("NAME_RESERVED", "/name")),
            (a_config(address="http://h"), ("FIELD_NOT_FOR_KIND", "/address")),
            (a_config(credential="tok"), ("FIELD_NOT_FOR_KIND", "/credential")),
            (a_config(allow_open=True), ("FIELD_NOT_FOR_KIND", "/allow_open")),
            (an_attached_config(image="ray:2"), ("FIELD_NOT_FOR_KIND", "/image")),
            (an_attached_config(head=HEAD), ("FIELD_NOT_FOR_KIND", "/head")),
            (an_attached_config(worker_groups=(WORKER,)), ("FIELD_NOT_FOR_KIND", "/worker_groups")),
            (an_attached_config(autostart=True), ("FIELD_NOT_FOR_KIND", "/autostart")),
            (an_attached_config(address=None), ("FIELD_REQUIRED", "/address")),
            (a_config(idle_stop_s=0), ("VALUE_OUT_OF_RANGE", "/idle_stop_s")),
            (a_config(max_runs=0), ("VALUE_OUT_OF_RANGE", "/max_runs")),
            (a_config(image="bad image"), ("IMAGE_INVALID", "/image")),
            (a_config(advanced_parameters={"head": "x"}), ("ADVANCED_PARAM_PROTECTED", "/advanced_parameters/head")),
        ],
    )
    def test_each_rule_has_its_code_and_place(self, config: ClusterConfig, problem: tuple[str, str]) -> None:
        assert found(check_cluster(config)) == [problem]

    @pytest.mark.parametrize(
        "address",
        [
            "http://h:8265",
            "https://ray.example",
            "http://127.0.0.1:8265/prefix/",
            "http://[::1]:8265",
            "http://10.0.0.7",
        ],
    )
    def test_addresses(self, address: str) -> None:
        assert check_cluster(an_attached_config(address=address)) == []

    @pytest.mark.parametrize(
        "address",
        [
            "h:8265",
            "ray://h:10001",
            "http://",
            "http://u:p@h",
            "http://h?x=1",
            "http://h#x",
            "http://h:99999",
            "http://a b",
        ],
    )
    def test_no_addresses(self, address: str) -> None:
        assert found(check_cluster(an_attached_config(address=address))) == [("ADDRESS_INVALID", "/address")]

    @pytest.mark.parametrize(
        "host",
        [
            "169.254.169.254",
            "169.254.0.23:80",
            "0xa9fea9fe",
            "2852039166",
            "169.16689662",
            "[fe80::1]",
            "[fe80::1%25eth0]",
            "[::ffff:169.254.169.254]",
            "224.0.0.1",
            "[ff02::1]",
            "0.0.0.0:8265",
            "0",
            "[::]",
        ],
    )
    def test_addresses_that_muster_does_not_fetch_from(self, host: str) -> None:
        config = an_attached_config(address=f"http://{host}/prefix")
        assert found(check_cluster(config)) == [("ADDRESS_NOT_ALLOWED", "/address")]

    def test_an_image_is_of_no_use_to_local_processes(self) -> None:
        assert found(warnings_about_image("ray:2", "local")) == [("IMAGE_NOT_USED", "/image")]
        assert warnings_about_image("ray:2", "kubernetes") == warnings_about_image(None, "local") == []


class TestPools:
    def test_amounts(self) -> None:
        package = PackageConfig(name="p", cpu=-1, memory_gib=1, gpu={"a b": GpuCapacity(count=-1)})
        assert found(check_package(package)) == [
            ("VALUE_OUT_OF_RANGE", "/capacity/cpu"),
            ("VALUE_OUT_OF_RANGE", "/capacity/gpu/a b"),
            ("GPU_TYPE_INVALID", "/capacity/gpu/a b"),
        ]
        group = GroupConfig(name="g", resource_package="p", quota=Resources(memory_gib=-1))
        assert found(check_group(group)) == [("VALUE_OUT_OF_RANGE", "/quota/memory_gib")]
