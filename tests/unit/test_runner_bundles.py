"""What a gang asks of Ray's scheduler, and how many of its tasks have no room."""

import pytest

from rayjobs.runner.bundles import Bundle, bundles, missing
from rayjobs.runner.spec import GroupSpec


def a_group(tasks: int = 1, **fields: float | str | None) -> GroupSpec:
    values = {"cpu": 1, "memory_bytes": 2**30, "gpu": 0, "gpu_type": None, **fields}
    return GroupSpec(name="g", tasks=tasks, command="", **values)  # type: ignore[arg-type]


def cpus(*amounts: float) -> list[Bundle]:
    return [{"CPU": amount} for amount in amounts]


class TestBundles:
    def test_are_one_a_task_in_the_order_of_groups(self) -> None:
        plain, large = {"CPU": 1, "memory": 2**30}, {"CPU": 2.5, "memory": 2**30}
        assert bundles([a_group(2), a_group(1, cpu=2.5)]) == [plain, plain, large]

    def test_ask_for_the_gpu_type_through_a_bit_of_its_resource(self) -> None:
        (typed, untyped) = bundles([a_group(gpu=4, gpu_type="A100"), a_group(gpu=1)])
        assert typed == {"CPU": 1, "memory": 2**30, "GPU": 4, "accelerator_type:A100": 0.001}
        assert untyped == {"CPU": 1, "memory": 2**30, "GPU": 1}

    def test_name_nothing_that_is_not_wanted(self) -> None:
        assert bundles([a_group(cpu=0, gpu_type="A100")]) == [{"memory": 2**30}]


class TestMissing:
    @pytest.mark.parametrize(
        ("wanted", "free", "strategy", "expected"),
        [
            (cpus(1, 1, 1), cpus(4, 4), "STRICT_SPREAD", 1),
            (cpus(1, 1, 1), cpus(4, 4, 0.5), "STRICT_SPREAD", 1),
            (cpus(1, 4), cpus(4, 1), "STRICT_SPREAD", 1),  # it fits; yet Ray did not place it
            (cpus(4, 1, 1), cpus(4, 1), "STRICT_SPREAD", 1),
            (cpus(2, 2, 2), cpus(4, 1), "SPREAD", 1),
            (cpus(2, 2, 2), cpus(1, 1), "PACK", 3),
            (cpus(2, 2, 2), cpus(5, 3), "STRICT_PACK", 1),
            (cpus(2, 2), [], "STRICT_PACK", 2),
            (cpus(2, 2), [], "PACK", 2),
            ([{"GPU": 1, "accelerator_type:H100": 0.001}], [{"GPU": 8, "accelerator_type:A100": 1}], "PACK", 1),
        ],
    )
    def test_counts_who_has_no_room(
        self, wanted: list[Bundle], free: list[Bundle], strategy: str, expected: int
    ) -> None:
        assert missing(wanted, free, strategy) == expected

    def test_leaves_its_arguments_alone(self) -> None:
        wanted, free = cpus(2, 2), cpus(3)
        missing(wanted, free, "PACK")
        assert (wanted, free) == (cpus(2, 2), cpus(3))
