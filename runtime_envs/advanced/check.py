"""Whether advanced parameters may be given where they are given (R61, R62, R73).

Nothing is ignored silently: a key is applied, or the answer says which form item does what the key was meant to do.
"""

import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from kernel.errors import Problem, pointer_to, problem
from kernel.text import has_control
from runtime_envs.advanced.catalogue import CATALOGUE, SHORT, Scope
from runtime_envs.advanced.protected import Place, protecting_item, squeezed
from runtime_envs.advanced.values import Refused

MAX_KEYS = 50
MAX_VALUE_LENGTH = 4096
OF_CLUSTERS = frozenset({Scope.NODE, Scope.SYSTEM, Scope.AUTOSCALER})

_KEY = re.compile(r"[a-zA-Z0-9_.-]{1,128}")
_TAKEN: Mapping[Place, frozenset[Scope]] = {
    Place.CLUSTER: OF_CLUSTERS,
    Place.ON_DEMAND: frozenset(Scope),
    Place.SHARED: frozenset({Scope.JOB}),
}
_NAMES = {squeezed(key): CATALOGUE[SHORT.get(key, key)].scope for key in (*CATALOGUE, *SHORT)}


def check_parameters(parameters: Mapping[str, str], place: Place) -> list[Problem]:
    if len(parameters) > MAX_KEYS:
        return [problem("TOO_MANY_ADVANCED_PARAMS", "/advanced_parameters", count=len(parameters), maximum=MAX_KEYS)]
    found = [_check_one(key, value, place) for key, value in parameters.items()]
    found += [
        problem("ADVANCED_PARAM_TWICE", at(short), key=short, other=long)
        for short, long in SHORT.items()
        if short in parameters and long in parameters
    ]
    return [one for one in found if one]


def read(parameters: Mapping[str, str], *scopes: Scope) -> dict[str, Any]:
    """The values of those of these scopes, by their full keys. They have passed the check."""
    full = {SHORT.get(key, key): text for key, text in parameters.items()}
    return {key: CATALOGUE[key].read(text) for key, text in full.items() if CATALOGUE[key].scope in scopes}


def at(key: str) -> str:
    return pointer_to("advanced_parameters", key)


def _check_one(key: str, value: str, place: Place) -> Problem | None:
    if not _KEY.fullmatch(key):
        return problem("ADVANCED_PARAM_KEY_INVALID", at(key), key=key)
    if refusal := _refuse_key(key, place):
        return refusal
    if len(value) > MAX_VALUE_LENGTH:
        return problem("ADVANCED_PARAM_TOO_LONG", at(key), key=key, maximum=MAX_VALUE_LENGTH)
    if has_control(value):
        return problem("ADVANCED_PARAM_CONTROL_CHARACTER", at(key), key=key)
    try:
        CATALOGUE[SHORT.get(key, key)].read(value)
    except Refused as refused:
        return problem(refused.code, at(key), key=key, **refused.params)
    return None


def _refuse_key(key: str, place: Place) -> Problem | None:
    known = CATALOGUE.get(SHORT.get(key, key))
    if known and known.scope in _TAKEN[place]:
        return None
    if not known and (item := protecting_item(key, place)):
        return problem("ADVANCED_PARAM_PROTECTED", at(key), key=key, form_item=item)
    scope = _NAMES.get(squeezed(key.rpartition(".")[2])) or (known and known.scope)
    if scope and scope not in _TAKEN[place]:
        code = "ADVANCED_PARAM_JOB_SCOPE" if scope is Scope.JOB else "ADVANCED_PARAM_CLUSTER_SCOPE"
        return problem(code, at(key), key=key)
    allowed = sorted(name for name, one in CATALOGUE.items() if one.scope in _TAKEN[place])
    near = get_close_matches(key.lower(), allowed, n=3, cutoff=0.5) or allowed[:3]
    return problem("ADVANCED_PARAM_UNKNOWN", at(key), key=key, near=near, allowed=allowed)
