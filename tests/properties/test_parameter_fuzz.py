"""A fuzz target over advanced parameters and runtime_envs: some seconds in every run.

Whatever comes is refused in our words, with a place in the form, or is a value that Ray's command lines can carry.
"""

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from api.texts import Language, catalogue
from rayjobs.advanced import cluster_parameters, submission_options
from runtime_envs.advanced.catalogue import CATALOGUE, SHORT, Scope
from runtime_envs.advanced.check import check_parameters, read
from runtime_envs.advanced.protected import Place
from runtime_envs.check import check_runtime_env
from runtime_envs.check_uri import UriPolicy

KNOWN = [*CATALOGUE, *SHORT]
SPOILT = st.sampled_from(["{}", "-{}", "--{}", " {}", "{}=1", "{}\n", "spec.{}", "{}\0", "RAY_{}"])
KEYS = st.one_of(
    st.sampled_from(KNOWN),
    st.builds(lambda key, how: how.format(key), st.sampled_from(KNOWN), SPOILT),
    st.from_regex(r"[a-zA-Z0-9_.-]{1,128}", fullmatch=True),
    st.text(max_size=20),
)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=30)
JSON = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=12), inner, max_size=3)
)
VALUES = st.one_of(
    st.sampled_from(
        ["true", "0.9", "15000", "90000000", "a=b", "/data", '{"a": 1}', "Default", "in(a,b)", "1e3", "１"]
    ),
    st.integers().map(str),
    st.floats().map(str),
    JSON.map(json.dumps),
    st.text(max_size=40),
)
INSTALLERS = st.fixed_dictionaries({}, optional={"packages": st.lists(st.text(max_size=40), max_size=3) | SCALARS})
ENVS = st.dictionaries(
    st.sampled_from(
        ["pip", "uv", "conda", "env_vars", "py_modules", "excludes", "config", "image_uri", "working_dir", "container"]
    )
    | st.text(max_size=12),
    JSON | INSTALLERS,
    max_size=5,
)
TAKEN = {
    "pip",
    "uv",
    "conda",
    "env_vars",
    "py_modules",
    "excludes",
    "config",
    "working_dir",
    "_ray_commit",
    "_ray_release",
}
WORDS = catalogue(Language.EN)


@settings(max_examples=600, deadline=1000)
@given(st.dictionaries(KEYS, VALUES, max_size=5), st.sampled_from(Place))
def test_a_parameter_is_applied_or_refused_never_ignored(parameters: dict[str, str], place: Place) -> None:
    found = check_parameters(parameters, place)
    assert all(one.code in WORDS and (one.pointer or "").startswith("/advanced_parameters") for one in found)
    if found:
        return
    values = read(parameters, *Scope)
    assert len(values) == len(parameters)
    assert json.loads(json.dumps(values, allow_nan=False)) == values
    assert not any(character in text for text in map(str, values.values()) for character in "\n\0")
    options = submission_options(parameters)
    parts = len(options.fields) + len(options.config) + len(options.env_vars)
    assert parts + len(cluster_parameters(parameters)) == len(parameters)


@given(st.sampled_from([key for key in KNOWN if "." not in key]), st.sampled_from(Place))
def test_no_key_of_ours_is_taken_for_a_protected_one(key: str, place: Place) -> None:
    found = check_parameters({key: "?"}, place)
    assert [one.code for one in found] != ["ADVANCED_PARAM_PROTECTED"]
    assert found


@settings(max_examples=600, deadline=1000)
@given(ENVS | JSON, st.booleans())
def test_a_runtime_env_is_refused_in_our_words_or_good(env: Any, from_ray: bool) -> None:
    found = check_runtime_env(env, UriPolicy(), from_ray_client=from_ray)
    assert all(one.code in WORDS for one in found)
    if not found:
        assert {key for key, value in env.items() if value is not None} <= TAKEN
        assert "\0" not in json.dumps(env, ensure_ascii=False)
