import json
from dataclasses import replace
from typing import Any

import pytest
from ray._common.utils import import_attr

from cluster_groups.backends.local_command import (
    LocalSettings,
    head_command,
    node_environment,
    plan_nodes,
    worker_command,
)
from cluster_groups.backends.local_state import LocalCluster, LocalNode
from cluster_groups.model.cluster import ClusterSpec, NodeSpec, WorkerGroup

SETTINGS = LocalSettings(environment={}, python="/venv/bin/python")
NODE = LocalNode(name="head", group="head", ip="127.0.0.2", folder="/tmp/m/0")


def spec(*groups: WorkerGroup, **head: Any) -> ClusterSpec:
    return ClusterSpec(id="clu_1", name="c", head=NodeSpec(**head), worker_groups=groups)


def options(command: list[str]) -> dict[str, str]:
    """The `--name=value` words; a name given twice would be an ambiguity."""
    pairs = [(name, value) for name, _, value in (word.removeprefix("--").partition("=") for word in command) if value]
    assert len({name for name, _ in pairs}) == len(pairs)
    return dict(pairs)


def head(wanted: ClusterSpec) -> dict[str, str]:
    nodes = plan_nodes(wanted)
    cluster = LocalCluster(id="clu_1", folder="/tmp/m", token="t", dashboard_port=20001, nodes=nodes)
    return options(head_command(wanted, cluster, SETTINGS))


def worker(wanted: ClusterSpec) -> dict[str, str]:
    return options(worker_command(wanted, plan_nodes(wanted)[1], "127.0.0.2:6379", SETTINGS))


class TestPlan:
    def test_head_first_then_every_groups_least_each_with_its_own_address(self) -> None:
        nodes = plan_nodes(spec(WorkerGroup(name="a", min_instances=2), WorkerGroup(name="b", min_instances=1)))
        assert [(node.name, node.group, node.ip) for node in nodes] == [
            ("head", "head", "127.0.0.2"),
            ("a-0", "a", "127.0.0.3"),
            ("a-1", "a", "127.0.0.4"),
            ("b-0", "b", "127.0.0.5"),
        ]

    def test_one_worker_where_all_groups_start_at_none(self) -> None:
        closed = WorkerGroup(name="closed", min_instances=0, max_instances=0)
        growing = WorkerGroup(name="growing", min_instances=0, max_instances=3)
        assert [node.name for node in plan_nodes(spec(closed, growing))] == ["head", "growing-0"]
        assert spec(closed, growing).minimum == NodeSpec().resources + growing.resources  # all that starts is charged
        assert [node.name for node in plan_nodes(spec(closed))] == ["head"]
        assert [node.name for node in plan_nodes(spec(growing, WorkerGroup(name="a")))] == ["head", "a-0"]

    def test_addresses_go_on_beyond_255_nodes(self) -> None:
        nodes = plan_nodes(spec(WorkerGroup(name="a", min_instances=300, max_instances=300)))
        assert nodes[-1].ip == "127.0.1.46"
        assert len({node.ip for node in nodes}) == 301


class TestCommands:
    def test_the_head_runs_no_tasks_whatever_it_is_given(self) -> None:
        given = head(spec(cpu=8, gpu=2, gpu_type="A100", memory_gib=1.5))
        assert (given["num-cpus"], given["num-gpus"], given["memory"]) == ("0", "0", str(3 * 2**29))
        assert json.loads(given["resources"]) == {}
        assert given["labels"] == "muster.io/group=head"
        assert (given["dashboard-host"], given["dashboard-port"]) == ("127.0.0.1", "20001")

    def test_a_worker_offers_its_size_and_names_its_accelerators_as_ray_does(self) -> None:
        given = worker(spec(WorkerGroup(name="g", cpu=4, gpu=2, gpu_type="A100", labels={"rack": "r1"})))
        assert (given["num-cpus"], given["num-gpus"], given["memory"]) == ("4", "2", str(4 * 2**30))
        assert given["labels"] == "rack=r1,muster.io/group=g,ray.io/accelerator-type=A100"
        assert json.loads(given["resources"]) == {"accelerator_type:A100": 1}
        assert (given["address"], given["node-ip-address"]) == ("127.0.0.2:6379", "127.0.0.3")

    def test_a_part_of_a_cpu_is_offered_as_one(self) -> None:
        assert worker(spec(WorkerGroup(name="g", cpu=0.5)))["num-cpus"] == "1"

    def test_a_label_of_the_user_cannot_move_a_node_to_another_group(self) -> None:
        given = worker(spec(WorkerGroup(name="g", labels={"muster.io/group": "head"})))
        assert given["labels"] == "muster.io/group=g"


class TestEnvironment:
    def test_only_what_is_named_passes(self) -> None:
        own = {"PATH": "/usr/bin", "HOME": "/home/u", "PIP_CERT": "c", "AWS_SECRET_ACCESS_KEY": "s", "RAY_ADDRESS": "x"}
        given = node_environment(LocalSettings(environment=own, python="/venv/bin/python"), "/tmp/m/token", NODE)
        assert {"HOME", "PIP_CERT"} <= set(given)
        assert not {"AWS_SECRET_ACCESS_KEY", "RAY_ADDRESS"} & set(given)
        assert given["PATH"] == "/venv/bin:/usr/bin"

    def test_the_token_is_a_file_and_its_use_is_not_left_to_chance(self) -> None:
        given = node_environment(SETTINGS, "/tmp/m/token", NODE)
        assert (given["RAY_AUTH_MODE"], given["RAY_AUTH_TOKEN_PATH"]) == ("token", "/tmp/m/token")

    def test_nodes_have_the_plugins_and_a_folder_for_them(self) -> None:
        given = node_environment(SETTINGS, "/tmp/m/token", NODE)
        plugins = [import_attr(one["class"]) for one in json.loads(given["RAY_RUNTIME_ENV_PLUGINS"])]
        assert [plugin.name for plugin in plugins] == ["muster_mounts", "muster_package"]
        assert given["RAY_RUNTIME_ENV_MUSTER_MOUNTS_CACHE_SIZE_GB"] == "0"
        assert given["MUSTER_NODE_ROOT"] == "/tmp/m/0.own"

    def test_nodes_are_told_how_long_a_volume_may_take(self) -> None:
        told = LocalSettings(environment={}, mount_timeout_s=3)
        assert node_environment(told, "/tmp/m/token", NODE)["MUSTER_NODE_MOUNT_TIMEOUT_S"] == "3"

    @pytest.mark.parametrize("text", [repr(SETTINGS), repr(LocalSettings(environment={"KEY": "secret"}))])
    def test_settings_do_not_print_the_environment(self, text: str) -> None:
        assert "environment" not in text


class TestAdvancedParameters:
    def given(self, **parameters: str) -> ClusterSpec:
        group = WorkerGroup(name="g", labels={"rack": "r1"})
        return replace(
            spec(group), advanced_parameters={name.replace("__", "-"): one for name, one in parameters.items()}
        )

    def test_those_of_nodes_are_options_of_all(self) -> None:
        wanted = self.given(object__store__memory="90000000", labels="tier=gold", include__log__monitor="false")
        for told in (head(wanted), worker(wanted)):
            assert (told["object-store-memory"], told["include-log-monitor"]) == ("90000000", "False")
            assert "tier=gold" in told["labels"]
            assert "system-config" not in told

    def test_custom_resources_are_of_workers(self) -> None:
        wanted = self.given(resources='{"licence": 2}')
        assert json.loads(worker(wanted)["resources"]) == {"licence": 2}
        assert json.loads(head(wanted)["resources"]) == {}

    def test_the_head_is_told_rays_own_configuration(self) -> None:
        wanted = self.given(memory_usage_threshold="0.9", max_io_workers="2")
        assert json.loads(head(wanted)["system-config"]) == {"memory_usage_threshold": 0.9, "max_io_workers": 2}
        assert "system-config" not in worker(wanted)

    @pytest.mark.parametrize(("told", "is_private"), [({}, True), ({"disable__usage__stats": "false"}, False)])
    def test_usage_is_told_to_nobody_unless_asked_for(self, told: dict[str, str], is_private: bool) -> None:
        wanted = self.given(**told)
        command = worker_command(wanted, plan_nodes(wanted)[1], "127.0.0.2:6379", SETTINGS)
        assert ("--disable-usage-stats" in command) == is_private
