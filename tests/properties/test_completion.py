"""What holds for the completion of every job of tasks, however its tasks end."""

import math
from collections import Counter
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from rayjobs.runner.completion import Completion, TaskEnd
from rayjobs.runner.spec import GroupSpec
from rayjobs.runner.verdict import Verdict

THRESHOLDS = st.none() | st.just(-1) | st.integers(1, 4)
CODES = st.sampled_from([0, 0, 0, 1, 137, None])
Batches = list[list[TaskEnd]]


@st.composite
def stories(
    draw: st.DrawFn, min_succeeded: st.SearchStrategy[int | None] = THRESHOLDS
) -> tuple[list[GroupSpec], Batches]:
    """Groups, and the ends of all their tasks in some order, in batches."""
    groups = [
        GroupSpec(f"g{at}", draw(st.integers(1, 4)), 1, 1, 0, None, "", draw(min_succeeded), draw(THRESHOLDS))
        for at in range(draw(st.integers(1, 3)))
    ]
    ends = [TaskEnd(at, task, draw(CODES)) for at, group in enumerate(groups) for task in range(group.tasks)]
    order = draw(st.permutations(ends))
    cuts = sorted(draw(st.sets(st.integers(1, max(1, len(order) - 1)))))
    return groups, [order[start:end] for start, end in zip([0, *cuts], [*cuts, len(order)], strict=True)]


def all_verdicts(groups: list[GroupSpec], batches: Batches) -> list[Verdict | None]:
    completion = Completion(groups)
    return [completion.take(batch) for batch in batches]


def rules(groups: list[GroupSpec]) -> list[tuple[float, float]]:
    """Of each group: at how many failures, and at how many successes the job is over."""
    alone = sum(group.tasks for group in groups) == 1
    return [
        (
            1 if alone or group.min_failed is None else _or_never(group.min_failed),
            math.inf if alone or group.min_succeeded is None else _or_never(group.min_succeeded),
        )
        for group in groups
    ]


def counts(ends: list[TaskEnd]) -> Counter[tuple[int, bool]]:
    return Counter((end.group, end.exit_code == 0) for end in ends)


@given(stories())
def test_there_is_one_verdict_and_it_stands(story: tuple[list[GroupSpec], Batches]) -> None:
    seen = all_verdicts(*story)
    assert seen[-1] is not None
    assert len({str(verdict) for verdict in seen if verdict}) == 1


@given(stories())
def test_it_comes_when_a_rule_is_met_and_not_before(story: tuple[list[GroupSpec], Batches]) -> None:
    groups, batches = story
    for number, verdict in enumerate(all_verdicts(groups, batches), start=1):
        ends = [end for batch in batches[:number] for end in batch]
        counted = counts(ends)
        met = [
            (counted[at, False] >= failures, counted[at, True] >= successes)
            for at, (failures, successes) in enumerate(rules(groups))
        ]
        is_due = any(failed or succeeded for failed, succeeded in met) or len(ends) == sum(one.tasks for one in groups)
        assert (verdict is not None) == is_due


@given(stories())
def test_it_is_a_failure_where_one_is_in_the_deciding_batch(story: tuple[list[GroupSpec], Batches]) -> None:
    groups, batches = story
    seen = all_verdicts(groups, batches)
    number = next(at for at, verdict in enumerate(seen, start=1) if verdict)
    counted = counts([end for batch in batches[:number] for end in batch])
    failed = any(counted[at, False] >= failures for at, (failures, _) in enumerate(rules(groups)))
    verdict = seen[-1]
    assert verdict is not None
    assert (verdict.end_class != "completed") == failed


@given(stories(), st.randoms(use_true_random=False))
def test_the_order_within_a_batch_is_nothing(story: tuple[list[GroupSpec], Batches], random: Random) -> None:
    groups, batches = story
    shuffled = [list(batch) for batch in batches]
    for batch in shuffled:
        random.shuffle(batch)
    assert all_verdicts(groups, batches) == all_verdicts(groups, shuffled)


@given(stories(min_succeeded=st.none()), st.randoms(use_true_random=False))
def test_without_success_rules_success_is_the_same_in_any_order(
    story: tuple[list[GroupSpec], Batches], random: Random
) -> None:
    groups, batches = story
    ends = [end for batch in batches for end in batch]
    random.shuffle(ends)
    one_by_one = all_verdicts(groups, [[end] for end in ends])[-1]
    together = all_verdicts(groups, batches)[-1]
    assert one_by_one is not None
    assert together is not None
    assert (one_by_one.end_class == "completed") == (together.end_class == "completed")


@given(stories())
def test_who_is_named_did_it(story: tuple[list[GroupSpec], Batches]) -> None:
    groups, batches = story
    verdict = all_verdicts(groups, batches)[-1]
    assert verdict is not None
    if verdict.group is None:
        assert verdict.code == "ALL_TASKS_DONE"
        return
    named = next(end for batch in batches for end in batch if (end.group, end.task) == (verdict.group, verdict.task))
    assert (named.exit_code == 0) == (verdict.end_class == "completed")
    assert named.is_lost == (verdict.code == "NODE_LOST")


def _or_never(threshold: int) -> float:
    return threshold if threshold >= 1 else math.inf
