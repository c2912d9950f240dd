"""Advanced parameters with the nodes, volumes and backend they are given with."""

from typing import Any

import pytest

from cluster_groups.check_parameters import Given, check_on_backend, check_on_nodes
from cluster_groups.model.cluster import NodeSpec, WorkerGroup
from runtime_envs.volumes.model import Mount

GIB = 2**30


def found(parameters: dict[str, str], **changes: Any) -> list[tuple[str, str | None]]:
    given = {"head": NodeSpec(memory_gib=8), "worker_groups": (WorkerGroup(name="w", memory_gib=4),), **changes}
    return [(one.code, one.pointer) for one in check_on_nodes(Given(parameters=parameters, **given))]


class TestObjectStore:
    def test_half_of_the_smallest_node(self) -> None:
        assert found({"object-store-memory": str(2 * GIB)}) == []
        too_large = ("OBJECT_STORE_TOO_LARGE", "/advanced_parameters/object-store-memory")
        assert found({"object-store-memory": str(2 * GIB + 1)}) == [too_large]
        assert found({"object-store-memory": str(2 * GIB)}, head=NodeSpec(memory_gib=2)) == [too_large]


class TestSpilling:
    @pytest.mark.parametrize("folder", ["/data", "/data/spill"])
    def test_inside_a_volume(self, folder: str) -> None:
        mounts = (Mount(volume="v", mount_path="/data"),)
        assert found({"object-spilling-directory": folder}, mounts=mounts) == []

    @pytest.mark.parametrize(
        "mount", [None, Mount(volume="v", mount_path="/dat"), Mount(volume="v", mount_path="/data", read_only=True)]
    )
    def test_nowhere_else(self, mount: Mount | None) -> None:
        mounts = (mount,) if mount else ()
        refused = ("SPILLING_NOT_IN_VOLUME", "/advanced_parameters/object-spilling-directory")
        assert found({"object-spilling-directory": "/data/spill"}, mounts=mounts) == [refused]


class TestPorts:
    def test_both_and_enough_of_them(self) -> None:
        assert found({"min-worker-port": "15000", "max-worker-port": "15099"}) == []
        assert found({"min-worker-port": "15000", "max-worker-port": "15098"}) == [
            ("WORKER_PORTS_INVALID", "/advanced_parameters/max-worker-port")
        ]
        assert found({"min-worker-port": "15000"}) == [("WORKER_PORTS_INVALID", "/advanced_parameters/min-worker-port")]
        assert found({"max-worker-port": "15000"}) == [("WORKER_PORTS_INVALID", "/advanced_parameters/max-worker-port")]


class TestLabels:
    def test_those_of_the_form_are_not_changed(self) -> None:
        group = WorkerGroup(name="w", memory_gib=4, labels={"tier": "gold"})
        given = Given(parameters={"labels": "a=b,tier=tin"}, head=NodeSpec(), worker_groups=(group,))
        (one,) = check_on_nodes(given)
        assert (one.code, one.params["form_item"]) == ("ADVANCED_PARAM_PROTECTED", "worker_groups[].labels")


class TestBackend:
    @pytest.mark.parametrize(
        "key", ["idle_timeout_s", "upscaling_mode", "upscaling_speed", "object-spilling-directory"]
    )
    def test_local_clusters_say_what_they_cannot(self, key: str) -> None:
        value = {"upscaling_mode": "Default", "object-spilling-directory": "/data"}.get(key, "60")
        (one,) = check_on_backend({key: value, "labels": "a=b"}, "local")
        assert (one.code, one.pointer) == ("ADVANCED_PARAM_NOT_ON_BACKEND", f"/advanced_parameters/{key}")
        assert check_on_backend({key: value}, "kuberay") == []
