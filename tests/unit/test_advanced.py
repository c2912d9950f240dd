"""Advanced parameters: R61, R62, R73, requirements §3."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rayjobs.advanced import SubmissionOptions, check_advanced, submission_options
from rayjobs.model.job import RunMode

SETUP = "runtime_env.config.setup_timeout_seconds"
EAGER = "runtime_env.config.eager_install"


def codes(parameters: dict[str, str], mode: RunMode = RunMode.ON_DEMAND) -> list[str]:
    return [one.code for one in check_advanced(parameters, mode)]


class TestApplied:
    @pytest.mark.parametrize("mode", RunMode)
    def test_every_allowed_key_in_every_mode(self, mode: RunMode) -> None:
        parameters = {
            "entrypoint_num_cpus": "0.5",
            "entrypoint_num_gpus": "2",
            "entrypoint_memory": "1073741824",
            "entrypoint_resources": '{"license": 1, "slot": 0.5}',
            "entrypoint_label_selector": '{"ray.io/node-id": "!a", "zone": "in(a, b)"}',
            SETUP: "60",
            "eager_install": "False",
            "dedup_logs": "false",
            "log_level": "ERROR",
        }
        assert codes(parameters, mode) == []
        options = submission_options(parameters)
        assert options.fields == {
            "entrypoint_num_cpus": 0.5,
            "entrypoint_num_gpus": 2.0,
            "entrypoint_memory": 1 << 30,
            "entrypoint_resources": {"license": 1, "slot": 0.5},
            "entrypoint_label_selector": {"ray.io/node-id": "!a", "zone": "in(a, b)"},
        }
        assert options.config == {"setup_timeout_seconds": 60, "eager_install": False}
        assert options.env_vars == {"RAY_DEDUP_LOGS": "0", "RAY_LOGGER_LEVEL": "error"}

    def test_they_go_on_top_of_the_jobs_own_runtime_env(self) -> None:
        own = {"pip": ["a"], "env_vars": {"A": "1", "RAY_DEDUP_LOGS": "1"}, "config": {"eager_install": True}}
        merged = submission_options({EAGER: "false", "dedup_logs": "false"}).runtime_env(own)
        assert merged == {
            "pip": ["a"],
            "env_vars": {"A": "1", "RAY_DEDUP_LOGS": "0"},
            "config": {"eager_install": False},
        }
        assert own["config"] == {"eager_install": True}

    def test_a_null_in_the_runtime_env_is_no_obstacle(self) -> None:
        assert submission_options({"dedup_logs": "true"}).runtime_env({"env_vars": None}) == {
            "env_vars": {"RAY_DEDUP_LOGS": "1"}
        }

    def test_nothing_given_changes_nothing(self) -> None:
        assert submission_options({}) == SubmissionOptions()
        assert SubmissionOptions().runtime_env({"pip": ["a"]}) == {"pip": ["a"]}


class TestValues:
    @pytest.mark.parametrize(
        ("key", "value", "code"),
        [
            ("entrypoint_num_cpus", "-1", "ADVANCED_PARAM_NOT_AMOUNT"),
            ("entrypoint_num_cpus", "0.00001", "ADVANCED_PARAM_NOT_AMOUNT"),
            ("entrypoint_num_cpus", "nan", "ADVANCED_PARAM_NOT_AMOUNT"),
            ("entrypoint_num_cpus", "4097", "ADVANCED_PARAM_NOT_AMOUNT"),
            ("entrypoint_num_cpus", "", "ADVANCED_PARAM_NOT_AMOUNT"),
            ("entrypoint_num_cpus", "１", "ADVANCED_PARAM_NOT_AMOUNT"),
            ("entrypoint_num_gpus", "1.5", "ADVANCED_PARAM_NOT_WHOLE"),
            ("entrypoint_memory", "1e9", "ADVANCED_PARAM_NOT_INTEGER"),
            ("entrypoint_memory", "9" * 30, "ADVANCED_PARAM_NOT_INTEGER"),
            (SETUP, "59", "ADVANCED_PARAM_NOT_INTEGER"),
            (SETUP, "7201", "ADVANCED_PARAM_NOT_INTEGER"),
            (SETUP, "-1", "ADVANCED_PARAM_NOT_INTEGER"),
            (EAGER, "yes", "ADVANCED_PARAM_NOT_A_CHOICE"),
            ("log_level", "loud", "ADVANCED_PARAM_NOT_A_CHOICE"),
            ("entrypoint_resources", "{", "ADVANCED_PARAM_BAD_RESOURCES"),
            ("entrypoint_resources", "[" * 4000, "ADVANCED_PARAM_BAD_RESOURCES"),
            ("entrypoint_resources", "[]", "ADVANCED_PARAM_BAD_RESOURCES"),
            ("entrypoint_resources", '{"CPU": 1}', "ADVANCED_PARAM_BAD_RESOURCES"),
            ("entrypoint_resources", '{"memory": 1}', "ADVANCED_PARAM_BAD_RESOURCES"),
            ("entrypoint_resources", '{"node:10.0.0.1": 1}', "ADVANCED_PARAM_BAD_RESOURCES"),
            ("entrypoint_resources", '{"a": 0}', "ADVANCED_PARAM_BAD_RESOURCES"),
            ("entrypoint_resources", '{"a": true}', "ADVANCED_PARAM_BAD_RESOURCES"),
            ("entrypoint_resources", '{"a": NaN}', "ADVANCED_PARAM_BAD_RESOURCES"),
            ("entrypoint_resources", '{"a": 0.00001}', "ADVANCED_PARAM_BAD_RESOURCES"),
            ("entrypoint_label_selector", "[" * 4000, "ADVANCED_PARAM_BAD_LABELS"),
            ("entrypoint_label_selector", '["zone"]', "ADVANCED_PARAM_BAD_LABELS"),
            ("entrypoint_label_selector", '{"zone": 1}', "ADVANCED_PARAM_BAD_LABELS"),
            ("entrypoint_label_selector", '{"zone": "in()"}', "ADVANCED_PARAM_BAD_LABELS"),
            ("entrypoint_label_selector", '{"zo ne": "a"}', "ADVANCED_PARAM_BAD_LABELS"),
            ("log_level", "x" * 4097, "ADVANCED_PARAM_TOO_LONG"),
            ("log_level", "info\n", "ADVANCED_PARAM_CONTROL_CHARACTER"),
        ],
    )
    def test_bounds(self, key: str, value: str, code: str) -> None:
        (found,) = check_advanced({key: value}, RunMode.CLUSTER)
        assert (found.code, found.pointer) == (code, f"/advanced_parameters/{key}")
        assert found.params["key"] == key

    @pytest.mark.parametrize(("key", "value"), [(SETUP, "7200"), ("entrypoint_memory", "0"), ("log_level", "debug")])
    def test_bounds_are_inclusive(self, key: str, value: str) -> None:
        assert codes({key: value}) == []

    @pytest.mark.parametrize(
        ("key", "pointer"), [("", "/"), ("a b", "/a b"), ("a/b", "/a~1b"), ("k" * 129, "/" + "k" * 129), ("é", "/é")]
    )
    def test_keys(self, key: str, pointer: str) -> None:
        (found,) = check_advanced({key: "1"}, RunMode.ON_DEMAND)
        assert (found.code, found.pointer) == ("ADVANCED_PARAM_KEY_INVALID", f"/advanced_parameters{pointer}")

    def test_at_most_fifty(self) -> None:
        assert "TOO_MANY_ADVANCED_PARAMS" not in codes({f"k{index}": "" for index in range(50)})
        assert codes({f"k{index}": "" for index in range(51)}) == ["TOO_MANY_ADVANCED_PARAMS"]

    def test_two_spellings_of_one_key(self) -> None:
        assert codes({"eager_install": "true", EAGER: "false"}) == ["ADVANCED_PARAM_TWICE"]


class TestProtected:
    """R62: compute, counts, image, start command, environment, version; R73: the answer names the form item."""

    @pytest.mark.parametrize(
        ("key", "on_demand", "shared"),
        [
            ("num-cpus", "worker_groups[].cpu", "requirements.cpu"),
            ("NUM_CPUS", "worker_groups[].cpu", "requirements.cpu"),
            ("--num-gpus", "worker_groups[].gpu", "requirements.gpu"),
            ("rayStartParams.num-gpus", "worker_groups[].gpu", "requirements.gpu"),
            ("memory", "worker_groups[].memory_gib", "requirements.memory_gib"),
            ("replicas", "worker_groups[].min_instances", "run_mode"),
            ("minReplicas", "worker_groups[].min_instances", "run_mode"),
            ("max_workers", "worker_groups[].max_instances", "run_mode"),
            ("image", "image", "run_mode"),
            ("imagePullPolicy", "image", "run_mode"),
            ("rayVersion", "image", "requirements.ray_version"),
            ("head", "entrypoint", "entrypoint"),
            ("address", "entrypoint", "entrypoint"),
            ("block", "entrypoint", "entrypoint"),
            ("port", "entrypoint", "entrypoint"),
            ("temp-dir", "entrypoint", "entrypoint"),
            ("plasma-directory", "entrypoint", "entrypoint"),
            ("command", "entrypoint", "entrypoint"),
            ("args", "entrypoint", "entrypoint"),
            ("entrypoint", "entrypoint", "entrypoint"),
            ("tracing-startup-hook", "entrypoint", "entrypoint"),
            ("runtime_env.worker_process_setup_hook", "entrypoint", "entrypoint"),
            ("env", "runtime_env.env_vars", "runtime_env.env_vars"),
            ("envFrom", "runtime_env.env_vars", "runtime_env.env_vars"),
            ("RAY_AUTH_MODE", "runtime_env.env_vars", "runtime_env.env_vars"),
            ("RAY_DEDUP_LOGS", "runtime_env.env_vars", "runtime_env.env_vars"),
            ("PAI_JOB_TASK_COUNT", "runtime_env.env_vars", "runtime_env.env_vars"),
            ("ld_preload", "runtime_env.env_vars", "runtime_env.env_vars"),
            ("FC_TASK_INDEX", "runtime_env.env_vars", "runtime_env.env_vars"),
            ("MUSTER_RUN_ID", "runtime_env.env_vars", "runtime_env.env_vars"),
            ("PYTHONPATH", "runtime_env.env_vars", "runtime_env.env_vars"),
            ("Path", "runtime_env.env_vars", "runtime_env.env_vars"),
            ("runtime_env.env_vars", "runtime_env.env_vars", "runtime_env.env_vars"),
            ("runtime_env.container.run_options", "runtime_env", "runtime_env"),
            ("headGroupSpec.rayStartParams.num-cpus", "worker_groups[].cpu", "requirements.cpu"),
            ("py_executable", "runtime_env", "runtime_env"),
            ("_nsight", "runtime_env", "runtime_env"),
            ("dashboard-host", "run_mode", "run_mode"),
            ("dashboard_port", "run_mode", "run_mode"),
            ("node-ip-address", "run_mode", "run_mode"),
            ("ray-client-server-port", "run_mode", "run_mode"),
            ("redis-password", "run_mode", "run_mode"),
            ("AUTH_MODE", "run_mode", "run_mode"),
            ("tls-cert", "run_mode", "run_mode"),
            ("serviceAccountName", "run_mode", "run_mode"),
            ("spec.hostNetwork", "run_mode", "run_mode"),
            ("hostPID", "run_mode", "run_mode"),
            ("privileged", "run_mode", "run_mode"),
            ("securityContext", "run_mode", "run_mode"),
            ("spec.suspend", "run_mode", "run_mode"),
            ("volumes", "mounts", "mounts"),
            ("tolerations", "resource_group", "run_mode"),
            ("nodeSelector", "resource_group", "run_mode"),
            ("headGroupSpec", "head", "run_mode"),
            ("workerGroupSpecs.0.scaleStrategy", "worker_groups", "run_mode"),
        ],
    )
    def test_the_right_form_item_is_named(self, key: str, on_demand: str, shared: str) -> None:
        for mode, item in ((RunMode.ON_DEMAND, on_demand), (RunMode.CLUSTER, shared), (RunMode.CLUSTER_GROUP, shared)):
            (found,) = check_advanced({key: "1"}, mode)
            assert found.code == "ADVANCED_PARAM_PROTECTED"
            assert found.pointer == f"/advanced_parameters/{key}"
            assert found.params == {"key": key, "form_item": item}

    @given(st.sampled_from(["num-cpus", "redis-port", "ray-x", "env", "image-pull-policy"]), st.data())
    def test_no_spelling_gets_round_it(self, key: str, data: st.DataObject) -> None:
        spelled = "".join(
            data.draw(st.sampled_from(["-", "_"])) if char == "-" else data.draw(st.sampled_from([char, char.upper()]))
            for char in key
        )
        assert codes({f"spec.{spelled}": "1"}) == ["ADVANCED_PARAM_PROTECTED"]


class TestRefused:
    @pytest.mark.parametrize(
        "key",
        ["object-store-memory", "labels", "resources", "idle_timeout_s", "memory_usage_threshold", "max-worker-port"],
    )
    def test_settings_of_clusters(self, key: str) -> None:
        assert codes({key: "1"}, RunMode.CLUSTER) == ["ADVANCED_PARAM_CLUSTER_SCOPE"]
        assert codes({key: "1"}, RunMode.CLUSTER_GROUP) == ["ADVANCED_PARAM_CLUSTER_SCOPE"]
        assert codes({key: "1"}, RunMode.ON_DEMAND) == ["ADVANCED_PARAM_UNKNOWN"]

    @pytest.mark.parametrize("key", ["num-cpu", "entrypoint_num_cpu", "foo", "ENTRYPOINT_NUM_CPUS"])
    def test_the_unknown_are_told_what_there_is(self, key: str) -> None:
        (found,) = check_advanced({key: "1"}, RunMode.CLUSTER)
        assert found.code == "ADVANCED_PARAM_UNKNOWN"
        assert SETUP in found.params["allowed"]

    @given(st.from_regex(r"[a-zA-Z0-9_.-]{1,128}", fullmatch=True), st.text(max_size=20), st.sampled_from(RunMode))
    def test_a_key_is_applied_or_refused_never_ignored(self, key: str, value: str, mode: RunMode) -> None:
        if not check_advanced({key: value}, mode):
            options = submission_options({key: value})
            assert options.fields or options.config or options.env_vars
