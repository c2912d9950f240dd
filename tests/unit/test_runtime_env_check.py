"""A job's runtime_env: what is taken, what is refused, and where the answer points."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ray.runtime_env import RuntimeEnv

from kernel.errors import problem
from runtime_envs.check import check_env_vars, check_runtime_env
from runtime_envs.check_uri import UriPolicy

OPEN = UriPolicy()
OWN = "${RAY_RUNTIME_ENV_CREATE_WORKING_DIR}"


def codes(env: object, uris: UriPolicy = OPEN, *, ray: bool = False) -> list[tuple[str, str | None]]:
    return [(one.code, one.pointer) for one in check_runtime_env(env, uris, from_ray_client=ray)]


def rule_of(env: dict[str, Any], uris: UriPolicy = OPEN) -> str:
    (one,) = check_runtime_env(env, uris)
    return str(one.params["rule"])


ACCEPTED: list[dict[str, Any]] = [
    {},
    {"pip": ["numpy", "pandas==2.*", "torch >= 2, < 3", "ray[serve]~=2.0", "x; python_version < '3.12'"]},
    {"pip": []},
    {"pip": {"packages": ["requests"], "pip_check": True, "pip_version": "==24.0;python_version=='3.11'"}},
    {"pip": {"packages": ["a"], "pip_install_options": ["--no-cache-dir", "--index-url", "https://pypi.example/simple"]}},
    {"pip": ["# a note", "", "a==1  # because", "a==1 --hash=sha256:abc123 --hash=sha256:def"]},
    {"pip": ["--index-url https://pypi.example/simple", "--extra-index-url=https://x.example", "--pre", "-i https://a.example"]},
    {"pip": ["a @ https://files.example/a-1.whl", "https://files.example/a.whl", "a[b]@https://files.example/a.whl"]},
    {"pip": ["git+https://git.example/a.git@v1#egg=a", "a @ git+https://git.example/a.git ; python_version > '3'"]},
    {"pip": [f"{OWN}/lib/a-1.whl"]},
    {"uv": ["numpy"]},
    {"uv": {"packages": ["a"], "uv_check": True, "uv_version": "==0.5", "uv_pip_install_options": ["--no-cache"]}},
    {"conda": {"channels": ["conda-forge", "nvidia/label/cuda-12"], "dependencies": ["python=3.11", {"pip": ["a"]}]}},
    {"conda": {"name": "x", "channels": ["https://conda.example/c"], "dependencies": ["conda-forge::x>=2", "a 1.*"]}},
    {"env_vars": {"A": "", "b_2": "x" * 32768, "RAY_DEDUP_LOGS": "0", "RAY_TRAIN_V2_ENABLED": "1", "MY_PATH": "/x"}},
    {"py_modules": ["https://files.example/a.zip", "s3://bucket/a.whl", "gs://bucket/x/a.tar.gz"]},
    {"excludes": ["*.ckpt"]},
    {"config": {"setup_timeout_seconds": 60, "eager_install": False}},
    {"config": {"setup_timeout_seconds": 7200, "log_files": []}},
    {"pip": None, "conda": None},
]  # fmt: skip


@pytest.mark.parametrize("env", ACCEPTED, ids=str)
def test_accepted_here_and_by_ray_itself(env: dict[str, Any]) -> None:
    assert codes(env) == []
    RuntimeEnv(**env)


DENIED = (
    *("py_executable", "container", "worker_process_setup_hook", "java_jars", "mpi"),
    *("nsight", "_nsight", "rocprof_sys", "_rocprof_sys"),
)
BAD_NAMES = ("", "1A", "A B", "A=B", "变量", "A" * 256)
TIMEOUT = "/config/setup_timeout_seconds"
OPTION_1 = "/uv/uv_pip_install_options/1"
REFUSED: list[tuple[Any, str, str]] = [
    ([], "INVALID_TYPE", ""),
    ("x", "INVALID_TYPE", ""),
    ({"a": "\ud800"}, "INVALID_TYPE", ""),
    ({"env_vars": {"A": "x" * 70_000}}, "RUNTIME_ENV_TOO_LARGE", ""),
    *(({key: "x"}, "RUNTIME_ENV_KEY_DENIED", f"/{key}") for key in DENIED),
    ({"a/b~c": 1}, "RUNTIME_ENV_KEY_UNKNOWN", "/a~1b~0c"),
    ({"_ray_commit": "x"}, "RUNTIME_ENV_KEY_UNKNOWN", "/_ray_commit"),
    ({"image_uri": "img"}, "IMAGE_URI_NOT_ALLOWED", "/image_uri"),
    ({"working_dir": "https://x.example/a.zip"}, "WORKING_DIR_NOT_ALLOWED", "/working_dir"),
    ({"pip": ["a"], "conda": "env"}, "RUNTIME_ENV_CONFLICT", "/conda"),
    ({"uv": [], "pip": []}, "RUNTIME_ENV_CONFLICT", "/pip"),
    ({"env_vars": ["A=1"]}, "INVALID_TYPE", "/env_vars"),
    ({"env_vars": {"A": 1}}, "INVALID_TYPE", "/env_vars/A"),
    ({"env_vars": {"A": None}}, "INVALID_TYPE", "/env_vars/A"),
    ({"env_vars": {"A": "x\0"}}, "INVALID_TYPE", "/env_vars/A"),
    ({"env_vars": {"A": "x" * 32769}}, "ENV_VAR_TOO_LONG", "/env_vars/A"),
    ({"env_vars": {"A": "值" * 11000}}, "ENV_VAR_TOO_LONG", "/env_vars/A"),
    ({"env_vars": {f"V{n}": "" for n in range(101)}}, "ENV_VARS_TOO_MANY", "/env_vars"),
    *(({"env_vars": {name: ""}}, "ENV_VAR_NAME_INVALID", f"/env_vars/{name}") for name in BAD_NAMES),
    ({"pip": "requirements.txt"}, "INVALID_TYPE", "/pip"),
    ({"pip": [1]}, "INVALID_TYPE", "/pip/0"),
    ({"pip": {}}, "INVALID_TYPE", "/pip/packages"),
    ({"pip": {"packages": "r.txt"}}, "INVALID_TYPE", "/pip/packages"),
    ({"pip": {"packages": [], "pip_check": "yes"}}, "INVALID_TYPE", "/pip/pip_check"),
    ({"pip": {"packages": [], "pip_version": 24}}, "INVALID_TYPE", "/pip/pip_version"),
    ({"pip": {"packages": [], "pip_version": "@ file:///x"}}, "URI_NOT_ALLOWED", "/pip/pip_version"),
    ({"pip": {"packages": [], "x": 1}}, "RUNTIME_ENV_KEY_UNKNOWN", "/pip/x"),
    ({"pip": {"packages": [], "pip_install_options": "--pre"}}, "INVALID_TYPE", "/pip/pip_install_options"),
    ({"uv": {"packages": [], "uv_pip_install_options": ["--pre", "--root", "/"]}}, "REQUIREMENT_NOT_ALLOWED", OPTION_1),
    ({"uv": {"packages": [], "pip_check": True}}, "RUNTIME_ENV_KEY_UNKNOWN", "/uv/pip_check"),
    ({"uv": ["../x"]}, "REQUIREMENT_NOT_ALLOWED", "/uv/0"),
    ({"conda": 1}, "INVALID_TYPE", "/conda"),
    ({"conda": "/opt/env"}, "REQUIREMENT_NOT_ALLOWED", "/conda"),
    ({"conda": "env.yaml"}, "REQUIREMENT_NOT_ALLOWED", "/conda"),
    ({"conda": {"prefix": "/opt"}}, "RUNTIME_ENV_KEY_UNKNOWN", "/conda/prefix"),
    ({"conda": {"variables": {"PATH": "x"}}}, "RUNTIME_ENV_KEY_UNKNOWN", "/conda/variables"),
    ({"conda": {"name": 1}}, "INVALID_TYPE", "/conda/name"),
    ({"conda": {"channels": ["file:///x"]}}, "URI_NOT_ALLOWED", "/conda/channels/0"),
    ({"conda": {"channels": ["/x"]}}, "REQUIREMENT_NOT_ALLOWED", "/conda/channels/0"),
    ({"conda": {"dependencies": "x"}}, "INVALID_TYPE", "/conda/dependencies"),
    ({"conda": {"dependencies": ["/x.tar.bz2"]}}, "REQUIREMENT_NOT_ALLOWED", "/conda/dependencies/0"),
    ({"conda": {"dependencies": ["http://x.example/a.conda"]}}, "URI_NOT_ALLOWED", "/conda/dependencies/0"),
    ({"conda": {"dependencies": [{"npm": []}]}}, "INVALID_TYPE", "/conda/dependencies/0"),
    ({"conda": {"dependencies": ["a", {"pip": ["-e ."]}]}}, "REQUIREMENT_NOT_ALLOWED", "/conda/dependencies/1/pip/0"),
    ({"py_modules": "https://x.example/a.zip"}, "INVALID_TYPE", "/py_modules"),
    ({"py_modules": ["gcs://_ray_pkg_0.zip"]}, "URI_NOT_ALLOWED", "/py_modules/0"),
    ({"excludes": "x"}, "INVALID_TYPE", "/excludes"),
    ({"config": []}, "INVALID_TYPE", "/config"),
    *(({"config": {"setup_timeout_seconds": n}}, "SETUP_TIMEOUT_OUT_OF_RANGE", TIMEOUT) for n in (59, 7201, -1, 0)),
    *(({"config": {"setup_timeout_seconds": n}}, "INVALID_TYPE", TIMEOUT) for n in (True, 60.0, "60", None)),
    ({"config": {"eager_install": 1}}, "INVALID_TYPE", "/config/eager_install"),
    ({"config": {"log_files": ["/etc/passwd"]}}, "RUNTIME_ENV_KEY_DENIED", "/config/log_files"),
    ({"config": {"x": 1}}, "RUNTIME_ENV_KEY_UNKNOWN", "/config/x"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("env", "code", "pointer"), REFUSED, ids=lambda value: str(value)[:40].encode("ascii", "replace").decode()
)
def test_refused(env: object, code: str, pointer: str) -> None:
    assert codes(env) == [(code, pointer)]


@pytest.mark.parametrize(
    "name",
    [
        *(
            "PATH",
            "PYTHONPATH",
            "CUDA_VISIBLE_DEVICES",
            "LD_PRELOAD",
            "LD_LIBRARY_PATH",
            "PAI_TASK_INDEX",
            "MUSTER_RUN_ID",
        ),
        *("FC_X", "RAY_ADDRESS", "RAY_AUTH_TOKEN", "RAY_JOB_CONFIG_JSON_ENV_VAR", "RAY_DATAX", "RAY_"),
    ],
)
def test_reserved_variables(name: str) -> None:
    assert check_env_vars({name: "x"}, "/env") == [problem("RESERVED_VARIABLE", f"/env/{name}", name=name)]


def test_all_problems_at_once() -> None:
    assert codes({"env_vars": {"PATH": "x", "A": 1}, "typo": 1, "pip": ["-e ."]}) == [
        ("RESERVED_VARIABLE", "/env_vars/PATH"),
        ("INVALID_TYPE", "/env_vars/A"),
        ("RUNTIME_ENV_KEY_UNKNOWN", "/typo"),
        ("REQUIREMENT_NOT_ALLOWED", "/pip/0"),
    ]


class TestRequirements:
    @pytest.mark.parametrize(
        ("line", "rule"),
        [
            ("a\n--index-url http://evil.example", "control_character"),
            ("a\\", "control_character"),
            ("-e .", "option"),
            ("-e git+https://x.example/a.git", "option"),
            ("--editable=.", "option"),
            ("--target /x a", "option"),
            ("--trusted-host x.example", "option"),
            ("-r /etc/requirements.txt", "local_path"),
            ("-r ../r.txt", "local_path"),
            (f"-r {OWN}/../../etc/x", "local_path"),
            ("a==1 --config-settings=x=y", "option"),
            ("a --global-option=x", "option"),
            ("./local", "not_a_name"),
            ("/abs/a.whl", "not_a_name"),
            ("a @ ./b.whl", "not_a_name"),
            ("a @ file:/x.whl", "not_a_name"),
            ("C:\\a.whl", "not_a_name"),
            ("two words", "not_a_name"),
            (f"{OWN}/../x.whl", "variable"),
            ("${HOME}/x.whl", "variable"),
            ("https://x.example/$TOKEN/a.whl", "variable"),
            ("a" * 1025, "too_long"),
        ],
    )
    def test_refused(self, line: str, rule: str) -> None:
        assert rule_of({"pip": [line]}) == rule

    @pytest.mark.parametrize(
        "line", [f"-r {OWN}/requirements.txt", f"--constraint={OWN}/c.txt", "--timeout 30", "--no-binary=:all:"]
    )
    def test_options(self, line: str) -> None:
        assert codes({"pip": [line]}) == []

    @pytest.mark.parametrize(
        ("line", "rule"),
        [
            ("a @ file:///x.whl", "scheme"),
            ("file:///x.whl", "scheme"),
            ("git+ssh://git@x.example/a.git", "scheme"),
            ("git+file:///x", "scheme"),
            ("http://x.example/a.whl", "scheme"),
            ("--index-url http://x.example", "scheme"),
            ("--index-url https://u:p@x.example/simple", "credentials"),
            ("--find-links=file:///x", "scheme"),
            ("a @ https://u:p@x.example/a.whl", "credentials"),
            ("--index-url", "scheme"),
        ],
    )
    def test_addresses(self, line: str, rule: str) -> None:
        assert rule_of({"pip": [line]}) == rule

    def test_secrets_are_not_told_again(self) -> None:
        (one,) = check_runtime_env({"pip": ["a @ https://me:secret@x.example/a.whl?sig=secret"]}, OPEN)
        assert one.params["uri"] == "https://x.example/a.whl"


class TestUris:
    @pytest.mark.parametrize(
        ("uri", "rule"),
        [
            ("file:///etc/x.zip", "scheme"),
            ("local:///etc", "scheme"),
            ("http://x.example/a.zip", "scheme"),
            ("cos://bucket/a.zip", "scheme"),
            ("abfss://c@x.example/a.zip", "scheme"),
            ("a.zip", "scheme"),
            ("/abs/dir", "scheme"),
            ("https:///a.zip", "malformed"),
            ("https://[::1/a.zip", "malformed"),
            ("https://x.example:99999/a.zip", "malformed"),
            ("https://x.example/a b.zip", "malformed"),
            ("https://x.example\\@evil.example/a.zip", "malformed"),
            ("https://u@x.example/a.zip", "credentials"),
            ("https://localhost/a.zip", "host"),
            ("https://a.localhost./a.zip", "host"),
            ("https://127.0.0.1/a.zip", "host"),
            ("https://127.1/a.zip", "host"),
            ("https://2130706433/a.zip", "host"),
            ("https://0x7f.0.0.1/a.zip", "host"),
            ("https://[::1]/a.zip", "host"),
            ("https://[::ffff:127.0.0.1]/a.zip", "host"),
            ("https://169.254.0.23/a.zip", "host"),
            ("https://[fe80::1]/a.zip", "host"),
            ("https://0.0.0.0/a.zip", "host"),
            ("https://x.example/a.exe", "format"),
            ("https://x.example/a?x=.zip", "format"),
        ],
    )
    def test_refused(self, uri: str, rule: str) -> None:
        assert rule_of({"py_modules": [uri]}) == rule

    @pytest.mark.parametrize(
        "uri", ["HTTPS://X.example/a.zip", "https://10.0.0.8:8443/a.zip", "https://x.example/a.zip?sig=1"]
    )
    def test_accepted(self, uri: str) -> None:
        assert codes({"py_modules": [uri]}) == []

    @pytest.mark.parametrize(
        ("uri", "allowed"),
        [
            ("https://files.example/a.zip", True),
            ("https://a.b.corp.example/a.zip", True),
            ("s3://team-bucket/a.zip", True),
            ("https://127.0.0.1/a.zip", True),
            ("https://corp.example/a.zip", False),
            ("https://files.example.evil.example/a.zip", False),
            ("https://evilcorp.example/a.zip", False),
            ("s3://other/a.zip", False),
        ],
    )
    def test_host_allow_list(self, uri: str, allowed: bool) -> None:
        hosts = frozenset({"files.example", "*.corp.example", "team-bucket", "127.0.0.1"})
        assert (codes({"py_modules": [uri]}, UriPolicy(hosts=hosts)) == []) is allowed


class TestFromRayClient:
    def test_what_the_client_sends(self) -> None:
        env = {
            "working_dir": "gcs://_ray_pkg_0123456789abcdef.zip",
            "py_modules": ["gcs://lib-1.0+cu12-py3-none-any.whl"],
            "pip": {"packages": ["a"], "pip_check": False},
            "config": {"setup_timeout_seconds": 600, "eager_install": True, "log_files": []},
            "_ray_commit": "{{RAY_COMMIT_SHA}}",
            "excludes": ["x"],
        }
        assert codes(env, ray=True) == []

    @pytest.mark.parametrize(
        ("env", "code", "pointer"),
        [
            ({"working_dir": "/home/me"}, "URI_NOT_ALLOWED", "/working_dir"),
            ({"working_dir": "local:///etc"}, "URI_NOT_ALLOWED", "/working_dir"),
            ({"working_dir": "gcs://a/../b.zip"}, "URI_NOT_ALLOWED", "/working_dir"),
            ({"working_dir": "gcs://lib.whl"}, "URI_NOT_ALLOWED", "/working_dir"),
            ({"working_dir": 1}, "INVALID_TYPE", "/working_dir"),
            ({"_ray_commit": 1}, "INVALID_TYPE", "/_ray_commit"),
            ({"py_executable": "uv run"}, "RUNTIME_ENV_KEY_DENIED", "/py_executable"),
            ({"pip": ["a @ gcs://x.whl"]}, "URI_NOT_ALLOWED", "/pip/0"),
        ],
    )
    def test_refused(self, env: dict[str, Any], code: str, pointer: str) -> None:
        assert codes(env, ray=True) == [(code, pointer)]

    def test_uploads_do_not_stand_on_the_host_list(self) -> None:
        assert codes({"working_dir": "gcs://a.zip"}, UriPolicy(hosts=frozenset({"x.example"})), ray=True) == []


KEYS = st.sampled_from(
    [
        "pip",
        "uv",
        "conda",
        "env_vars",
        "py_modules",
        "excludes",
        "config",
        "working_dir",
        "packages",
        "dependencies",
        "channels",
    ]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS | st.text(max_size=5), inner, max_size=5),
    max_leaves=12,
)


@given(st.dictionaries(KEYS, JSON), st.booleans())
def test_whatever_comes_is_answered(env: dict[str, Any], ray: bool) -> None:
    """And what is accepted, Ray can read."""
    if check_runtime_env(env, OPEN, from_ray_client=ray):
        return
    RuntimeEnv(**env)


class TestImages:
    """A33: off by default, and beside an image Ray takes variables and `config` only."""

    POLICY = UriPolicy(images=("registry.example.org/team/*", "plain:1"))

    @pytest.mark.parametrize(
        "image", ["registry.example.org/team/a:1", "registry.example.org/team/b/c@sha256:0f", "plain:1"]
    )
    def test_those_an_operator_allows(self, image: str) -> None:
        env = {"image_uri": image, "env_vars": {"A": "1"}, "config": {"setup_timeout_seconds": 900}}
        assert check_runtime_env(env, self.POLICY) == []

    @pytest.mark.parametrize(
        "image", ["plain:2", "registry.example.org/other/a", "registry.example.org/team/a b", "", "-v/:/h"]
    )
    def test_no_others(self, image: str) -> None:
        (found,) = check_runtime_env({"image_uri": image}, self.POLICY)
        assert (found.code, found.params["allowed"]) == ("IMAGE_URI_NOT_ALLOWED", list(self.POLICY.images))

    @pytest.mark.parametrize(
        "beside", [{"pip": ["a"]}, {"py_modules": ["https://example.org/a.zip"]}, {"excludes": ["a"]}]
    )
    def test_nothing_of_the_kind_beside_it(self, beside: dict[str, object]) -> None:
        (found,) = check_runtime_env({"image_uri": "plain:1", **beside}, self.POLICY)
        assert found.code == "RUNTIME_ENV_CONFLICT"
        assert found.params["keys"] == ["image_uri", *beside]
