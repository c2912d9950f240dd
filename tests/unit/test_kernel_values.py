"""The small values everything stands on."""

import pytest

from kernel.actor import Actor, Role
from kernel.errors import Conflict, Denied, InvalidInput, ValidationFailed, pointer_to, problem, raise_problems
from kernel.ids import looks_like_id, new_id
from kernel.resources import Resources, total
from kernel.states import IllegalMove, finals, move
from rayjobs.model.run import RUN_TRANSITIONS, RunState


class TestActors:
    @pytest.mark.parametrize("required", list(Role))
    @pytest.mark.parametrize("role", list(Role))
    def test_each_role_may_all_that_the_ones_before_may(self, role: Role, required: Role) -> None:
        actor = Actor(user="ann", role=role)
        order = [Role.VIEWER, Role.SUBMITTER, Role.OPERATOR, Role.ADMIN]
        if order.index(role) >= order.index(required):
            actor.need(required)
        else:
            with pytest.raises(Denied, match="ROLE_REQUIRED"):
                actor.need(required)

    def test_submitters_act_on_their_own_operators_on_all(self) -> None:
        Actor(user="ann", role=Role.SUBMITTER).need_owner("ann")
        Actor(user="ops", role=Role.OPERATOR).need_owner("ann")
        with pytest.raises(Denied, match="NOT_YOURS"):
            Actor(user="bob", role=Role.SUBMITTER).need_owner("ann")
        with pytest.raises(Denied, match="ROLE_REQUIRED"):
            Actor(user="ann", role=Role.VIEWER).need_owner("ann")

    def test_resource_packages(self) -> None:
        assert Actor(user="ann", role=Role.VIEWER).may_use_package("gold")
        some = Actor(user="ann", role=Role.VIEWER, resource_packages=("silver",))
        assert (some.may_use_package("silver"), some.may_use_package("gold")) == (True, False)


class TestIds:
    def test_are_known_unique_and_in_order(self) -> None:
        ids = [new_id("run") for _ in range(1000)]
        assert len(set(ids)) == 1000
        assert all(map(looks_like_id, ids))
        assert sorted(ids, key=lambda one: one[:14]) == ids

    @pytest.mark.parametrize(
        "text", ["run_", "run_short", "RUN_01arz3ndektsv4rrffq69g5fav", "train", "xyz_" + "0" * 26]
    )
    def test_names_do_not_look_like_ids(self, text: str) -> None:
        assert not looks_like_id(text)


class TestErrors:
    def test_no_problem_raises_nothing(self) -> None:
        raise_problems([])

    def test_one_problem_is_raised_as_itself(self) -> None:
        with pytest.raises(InvalidInput) as raised:
            raise_problems([problem("NAME_TOO_LONG", "/name", maximum=100)])
        error = raised.value
        assert (error.code, error.pointer, error.params) == ("NAME_TOO_LONG", "/name", {"maximum": 100})

    def test_several_come_together(self) -> None:
        with pytest.raises(ValidationFailed) as raised:
            raise_problems([problem("A", "/a"), problem("B", "/b")])
        assert (raised.value.code, [one.code for one in raised.value.problems]) == ("VALIDATION_FAILED", ["A", "B"])

    def test_are_written_in_one_line(self) -> None:
        assert str(Conflict("NAME_TAKEN", pointer="/name", name="x")) == "NAME_TAKEN /name name='x'"

    def test_pointers_are_escaped(self) -> None:
        assert pointer_to("tags", "a/b~c", 0) == "/tags/a~1b~0c/0"


class TestStates:
    def test_moves_are_those_of_the_table(self) -> None:
        assert move(RUN_TRANSITIONS, RunState.WAITING, RunState.STARTING) is RunState.STARTING
        with pytest.raises(IllegalMove, match="RunState: SUCCEEDED -> RUNNING"):
            move(RUN_TRANSITIONS, RunState.SUCCEEDED, RunState.RUNNING)

    def test_every_table_names_all_its_states(self) -> None:
        assert set(RUN_TRANSITIONS) == set(RunState)
        assert finals(RUN_TRANSITIONS) == {
            RunState.SUCCEEDED,
            RunState.FAILED,
            RunState.STOPPED,
            RunState.QUEUE_TIMEOUT,
        }


class TestResources:
    def test_arithmetic_is_by_type(self) -> None:
        one = Resources(cpu=1, memory_gib=2, gpu={"A": 1})
        two = Resources(cpu=2, gpu={"B": 1})
        assert one + two == Resources(cpu=3, memory_gib=2, gpu={"A": 1, "B": 1})
        assert one - one == Resources(gpu={"A": 0})
        assert one * 3 == Resources(cpu=3, memory_gib=6, gpu={"A": 3})
        assert total([one, one]) == one * 2
        assert total([]) == Resources()

    def test_what_is_beyond(self) -> None:
        room = Resources(cpu=4, memory_gib=8, gpu={"A": 1})
        assert room.beyond(room) == {}
        assert Resources(cpu=0.1 + 0.2).beyond(Resources(cpu=0.3)) == {}
        assert Resources(gpu={"B": 1}).beyond(room) == {"gpu.B": (1, 0)}
        asked = Resources(cpu=5, memory_gib=1, gpu={"A": 2, "B": 0})
        assert asked.beyond(Resources(cpu=4, memory_gib=8, gpu={"A": 1})) == {"cpu": (5, 4), "gpu.A": (2, 1)}
