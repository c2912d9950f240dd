"""What a run waits for, in words: those of its code, as its params make them true."""

from dataclasses import replace

from api.texts import Language, Words, say
from cluster_groups.model.cluster import ClusterState
from kernel.reasons import Reason
from rayjobs.model.run import Condition
from rayjobs.snapshot import HELD_ON

_FOR_EVER = {"WINDOW_CLOSED": "WINDOW_NEVER_OPENS", "FAILBACK_PENDING": "FAILBACK_BY_HAND"}
"""The words for what time alone does not end."""


def condition_words(why: Condition | Reason, language: Language) -> Words:
    words = say(_words_for(why), why.params, language)
    if HELD_ON not in why.params:
        return words
    kept = say("HELD_FOR_RUN", why.params, language)
    return replace(words, detail=f"{words.detail} {kept.detail}")


def _words_for(why: Condition | Reason) -> str:
    """Nobody has to start what is starting, and nobody gets what will never be enough."""
    if why.code == "CLUSTER_NOT_RUNNING" and why.params.get("state") == ClusterState.STARTING:
        return "CLUSTER_STARTING"
    if why.code == "QUOTA_INSUFFICIENT" and any(
        one["needed"] > one["max"] for one in why.params.get("short", {}).values()
    ):
        return "QUOTA_NEVER_SUFFICES"
    if why.code == "GROUP_WINDOW_CLOSED":
        return _words_for_closed(why)
    if "until" in why.params and why.params["until"] is None:
        return _FOR_EVER.get(why.code, why.code)
    return why.code


def _words_for_closed(why: Condition | Reason) -> str:
    """A shorter run could start where one is too long; and those that are ill are not told to open."""
    codes = set(why.params.get("members", {}).values())
    if "WINDOW_TOO_SHORT" in codes:
        return "GROUP_WINDOWS_TOO_SHORT"
    if why.params.get("next_open_at") is None:
        return "GROUP_NEVER_OPENS"
    return "GROUP_WINDOW_CLOSED" if codes <= {"WINDOW_CLOSED"} else "GROUP_NONE_OPEN"
