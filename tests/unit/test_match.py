"""Whether a cluster is of the kind and the size that a run asks for (policy.md §2)."""

from dataclasses import replace

import pytest

from cluster_groups.decide.match import accelerator_of, match_cluster
from cluster_groups.model.demand import Demand
from kernel.resources import ANY_GPU, Resources
from tests.builders.clusters import a_node, a_view


class TestMatch:
    GPU = a_view(
        "a",
        nodes=(a_node(gpu={"H100": 4}), a_node(gpu={"A100": 2}), a_node(alive=False, gpu={"L4": 9})),
        volumes=frozenset({"data"}),
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
            (Demand(volumes=("data",)), None),
            (Demand(volumes=("data", "more")), "MOUNT_UNAVAILABLE"),
            (Demand(volumes=("more",), labels={"zone": "a"}), "REQUIREMENT_MISMATCH"),
            (Demand(volumes=("more",), resources=Resources(cpu=99)), "MOUNT_UNAVAILABLE"),
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

    def test_an_unknown_version_is_none(self) -> None:
        unknown = replace(self.GPU, ray_version=None)
        assert match_cluster(unknown, Demand(ray_version="2.60")) is not None
        assert match_cluster(unknown, Demand()) is None

    def test_the_first_accelerator_it_could_have_enough_of(self) -> None:
        four = Resources(gpu={"A100": 4})
        assert accelerator_of(self.GPU, Demand(resources=four, gpu_types=("A100", "H100"))) == "H100"
        assert accelerator_of(self.GPU, Demand(resources=Resources(gpu={"A100": 1}), gpu_types=("A100",))) == "A100"
        assert accelerator_of(self.GPU, Demand(resources=four)) is None
