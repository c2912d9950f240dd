"""What a run waits for, in words: true of the case at hand, and where they must agree with what people can do."""

import pytest

from api.conditions import condition_words
from api.texts import Language
from kernel.reasons import Reason

SHORT = {"needed": 8, "used": 2, "max": 10}


@pytest.mark.parametrize(("state", "advice"), [("STOPPED", "Start the cluster"), ("STARTING", "goes there by itself")])
def test_nobody_is_told_to_start_what_is_starting(state: str, advice: str) -> None:
    why = Reason(code="CLUSTER_NOT_RUNNING", params={"cluster": "lab", "state": state})
    words = condition_words(why, Language.EN)
    assert words.advice is not None
    assert advice in words.advice
    assert ("muster cluster start" in words.advice) == (state == "STOPPED")


@pytest.mark.parametrize(("needed", "never"), [(10, False), (11, True)])
def test_a_quota_that_will_never_do_is_not_waited_for(needed: int, *, never: bool) -> None:
    short = {"cpu": SHORT, "memory_gib": {**SHORT, "needed": needed}}
    why = Reason(code="QUOTA_INSUFFICIENT", params={"resource_group": "vision", "short": short})
    words = condition_words(why, Language.EN)
    assert words.advice is not None
    assert words.advice.startswith("Waiting does not help.") == never
    assert ("wait until they end" in words.advice) != never


def test_why_a_run_is_first_although_others_have_a_higher_priority() -> None:
    why = Reason(code="HEAD_BUSY", params={"drivers": 4, "limit": 4})
    held = Reason(code="HEAD_BUSY", params={**why.params, "held_on": "lab"})
    for language in Language:
        plain, told = condition_words(why, language).detail, condition_words(held, language).detail
        assert told.startswith(plain)
        assert "lab" in told.removeprefix(plain)


@pytest.mark.parametrize(
    ("members", "next_open_at", "detail", "advice"),
    [
        (["WINDOW_CLOSED"], "20:00", "is open now; the next opens at 20:00.", "it starts when a window opens"),
        (["WINDOW_CLOSED", "HEALTH_UNHEALTHY"], "20:00", "can take the run now; the next closed one opens", "see to"),
        (["WINDOW_TOO_SHORT", "WINDOW_CLOSED"], "20:00", "stays open for the 60 s", "Declare a shorter max_runtime_s"),
        (["WINDOW_TOO_SHORT", "CORDONED"], None, "stays open for the 60 s", "Declare a shorter max_runtime_s"),
        (["WINDOW_CLOSED"], None, "no window of theirs opens again", "waiting does not help"),
    ],
)
def test_a_group_that_nobody_of_is_open(members: list[str], next_open_at: str | None, detail: str, advice: str) -> None:
    by_name = {f"c{at}": code for at, code in enumerate(members)}
    params = {"cluster_group": "g", "members": by_name, "next_open_at": next_open_at, "max_runtime_s": 60}
    words = condition_words(Reason(code="GROUP_WINDOW_CLOSED", params=params), Language.EN)
    assert words.advice is not None
    assert (detail in words.detail, advice in words.advice, "?" in words.detail) == (True, True, False), words


@pytest.mark.parametrize("code", ["WINDOW_CLOSED", "FAILBACK_PENDING"])
def test_what_time_alone_does_not_end_names_no_time(code: str) -> None:
    for language in Language:
        for_ever = condition_words(Reason(code=code, params={"cluster": "c", "until": None}), language)
        until = condition_words(Reason(code=code, params={"cluster": "c", "until": "20:00"}), language)
        assert "?" not in for_ever.detail
        assert "20:00" in until.detail
