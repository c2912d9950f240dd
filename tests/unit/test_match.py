"""Whether a cluster is of the kind and the size that a run asks for (policy.md §2)."""

from dataclasses import replace

import pytest

from cluster_groups.decide.match import accelerator_of, match_cluster
from cluster_groups.model.cluster import ClusterKind
from cluster_groups.model.demand import Demand
from kernel.resources import ANY_GPU, Resources
from runtime_envs.volumes.available import WantedMount
from runtime_envs.volumes.model import Mount, VolumeType
from tests.builders.clusters import a_node, a_view

LOW = WantedMount(mount=Mount(volume="data", mount_path="/mnt/muster/data"), type=VolumeType.NFS)
HIGH = WantedMount(mount=Mount(volume="data", mount_path="/data"), type=VolumeType.NFS)
CLAIM = WantedMount(mount=Mount(volume="claim", mount_path="/mnt/muster/claim"), type=VolumeType.PVC)


class TestMatch:
    GPU = a_view(
        "a",
        nodes=(a_node(gpu={"H100": 4}), a_node(gpu={"A100": 2}), a_node(alive=False, gpu={"L4": 9})),
        mounts=(Mount(volume="data", mount_path="/data"),),
    )

    @pytest.mark.parametrize(
        ("demand", "code"),
        [
            (Demand(), None),
            (Demand(gpu_types=("L4",)), "REQUIREMENT_MISMATCH"),
            (Demand(gpu_types=("L4", "A100")), None),
            (Demand(resources=Resources(gpu={"H100": 4}), gpu_types=("H100",)), None),
            (Demand(resources=Resources(gpu={"H100": 5}), gpu_types=("H100",)), "NEVER_FITS"),
            (Demand(resources=Resources(gpu={"A100": 3}), gpu_types=("A100", "H100")), None),
            (Demand(resources=Resources(gpu={ANY_GPU: 4})), None),
            (Demand(resources=Resources(gpu={ANY_GPU: 5})), "NEVER_FITS"),
            (Demand(resources=Resources(cpu=4, memory_gib=8)), None),
            (Demand(resources=Resources(cpu=4.5)), "NEVER_FITS"),
            (Demand(resources=Resources(memory_gib=9)), "NEVER_FITS"),
            (Demand(labels={"zone": "a"}), "REQUIREMENT_MISMATCH"),
            (Demand(ray_version="2.60"), None),
            (Demand(ray_version="2.6"), "REQUIREMENT_MISMATCH"),
            (Demand(python_version="3.11.7"), None),
            (Demand(python_version="3.12"), "REQUIREMENT_MISMATCH"),
            (Demand(mounts=(LOW,)), None),
            (Demand(mounts=(LOW, HIGH)), "MOUNT_UNAVAILABLE"),
            (Demand(mounts=(HIGH,), labels={"zone": "a"}), "REQUIREMENT_MISMATCH"),
            (Demand(mounts=(HIGH,), resources=Resources(cpu=99)), "MOUNT_UNAVAILABLE"),
        ],
    )
    def test_what_the_cluster_has(self, demand: Demand, code: str | None) -> None:
        reason = match_cluster(self.GPU, demand)
        assert (reason.code if reason else None) == code

    @pytest.mark.parametrize(
        ("demand", "code"),
        [
            (Demand(resources=Resources(cpu=8, memory_gib=16, gpu={"H100": 4}), gpu_types=("H100",)), None),
            (Demand(resources=Resources(gpu={"H100": 5}), gpu_types=("H100",)), "NEVER_FITS"),
            (Demand(resources=Resources(gpu={"A100": 2}), gpu_types=("A100",)), None),
            (Demand(resources=Resources(cpu=8.5)), "NEVER_FITS"),
        ],
    )
    def test_what_is_lost_for_the_moment_counts(self, demand: Demand, code: str | None) -> None:
        configured = Resources(cpu=8, memory_gib=16, gpu={"H100": 4})
        left = replace(self.GPU, nodes=(a_node(gpu={"A100": 2}),), maximum=configured)
        reason = match_cluster(left, demand)
        assert (reason.code if reason else None) == code

    def test_mounts_by_the_rule_of_the_kind_of_cluster(self) -> None:
        """The same as when a job is saved: see `test_volumes_available`."""
        attached = replace(self.GPU, kind=ClusterKind.ATTACHED)
        reason = match_cluster(attached, Demand(mounts=(LOW, HIGH, CLAIM)))
        assert reason is not None
        assert (reason.code, reason.params["volumes"]) == ("MOUNT_UNAVAILABLE", ["claim", "data"])
        assert match_cluster(attached, Demand(mounts=(HIGH,))) is None
        only_reading = replace(HIGH, mount=replace(HIGH.mount, read_only=True))
        assert match_cluster(attached, Demand(mounts=(only_reading,))) is not None
        assert match_cluster(self.GPU, Demand(mounts=(CLAIM,))) is not None

    def test_an_unknown_version_is_none(self) -> None:
        unknown = replace(self.GPU, ray_version=None)
        assert match_cluster(unknown, Demand(ray_version="2.60")) is not None
        assert match_cluster(unknown, Demand()) is None

    def test_the_first_accelerator_it_could_have_enough_of(self) -> None:
        four = Resources(gpu={"A100": 4})
        assert accelerator_of(self.GPU, Demand(resources=four, gpu_types=("A100", "H100"))) == "H100"
        assert accelerator_of(self.GPU, Demand(resources=Resources(gpu={"A100": 1}), gpu_types=("A100",))) == "A100"
        assert accelerator_of(self.GPU, Demand(resources=four)) is None
