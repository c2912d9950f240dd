"""Advanced parameters: R61, R62, R73, requirements §3."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rayjobs.advanced import SubmissionOptions, cluster_parameters, submission_options
from runtime_envs.advanced.catalogue import CATALOGUE, Scope
from runtime_envs.advanced.check import OF_CLUSTERS, check_parameters, read
from runtime_envs.advanced.protected import Place

SETUP = "runtime_env.config.setup_timeout_seconds"
EAGER = "runtime_env.config.eager_install"


def codes(parameters: dict[str, str], place: Place = Place.ON_DEMAND) -> list[str]:
    return [one.code for one in check_parameters(parameters, place)]


class TestApplied:
    @pytest.mark.parametrize("place", [Place.ON_DEMAND, Place.SHARED])
    def test_every_key_of_jobs_in_every_job(self, place: Place) -> None:
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
        assert codes(parameters, place) == []
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
            ("entrypoint_resources", '{"a": 1, "a": 2}', "ADVANCED_PARAM_BAD_RESOURCES"),
            ("entrypoint_resources", '{"a": true}', "ADVANCED_PARAM_BAD_RESOURCES"),
            ("entrypoint_resources", '{"a": NaN}', "ADVANCED_PARAM_BAD_RESOURCES"),
            ("entrypoint_resources", '{"a": 0.00001}', "ADVANCED_PARAM_BAD_RESOURCES"),
            ("entrypoint_label_selector", "[" * 4000, "ADVANCED_PARAM_BAD_LABELS"),
            ("entrypoint_label_selector", '{"zone": "a", "zone": "b"}', "ADVANCED_PARAM_BAD_LABELS"),
            ("entrypoint_label_selector", '["zone"]', "ADVANCED_PARAM_BAD_LABELS"),
            ("entrypoint_label_selector", '{"zone": 1}', "ADVANCED_PARAM_BAD_LABELS"),
            ("entrypoint_label_selector", '{"zone": "in()"}', "ADVANCED_PARAM_BAD_LABELS"),
            ("entrypoint_label_selector", '{"zo ne": "a"}', "ADVANCED_PARAM_BAD_LABELS"),
            ("log_level", "x" * 4097, "ADVANCED_PARAM_TOO_LONG"),
            ("log_level", "info\n", "ADVANCED_PARAM_CONTROL_CHARACTER"),
        ],
    )
    def test_bounds(self, key: str, value: str, code: str) -> None:
        (found,) = check_parameters({key: value}, Place.SHARED)
        assert (found.code, found.pointer) == (code, f"/advanced_parameters/{key}")
        assert found.params["key"] == key

    @pytest.mark.parametrize(("key", "value"), [(SETUP, "7200"), ("entrypoint_memory", "0"), ("log_level", "debug")])
    def test_bounds_are_inclusive(self, key: str, value: str) -> None:
        assert codes({key: value}) == []

    @pytest.mark.parametrize(
        ("key", "pointer"), [("", "/"), ("a b", "/a b"), ("a/b", "/a~1b"), ("k" * 129, "/" + "k" * 129), ("é", "/é")]
    )
    def test_keys(self, key: str, pointer: str) -> None:
        (found,) = check_parameters({key: "1"}, Place.ON_DEMAND)
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
        for place, item in ((Place.ON_DEMAND, on_demand), (Place.SHARED, shared)):
            (found,) = check_parameters({key: "1"}, place)
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

    @pytest.mark.parametrize(
        ("key", "item"),
        [
            ("num-cpus", "worker_groups[].cpu"),
            ("image", "image"),
            ("head", "job.entrypoint"),
            ("RAY_AUTH_MODE", "job.runtime_env.env_vars"),
            ("working_dir", "job.runtime_env"),
            ("dashboard-host", "backend"),
            ("volumes", "volumes"),
            ("tolerations", "resource_group"),
        ],
    )
    def test_the_form_of_a_cluster_has_items_of_its_own(self, key: str, item: str) -> None:
        (found,) = check_parameters({key: "1"}, Place.CLUSTER)
        assert (found.code, found.params) == ("ADVANCED_PARAM_PROTECTED", {"key": key, "form_item": item})


class TestRefused:
    @pytest.mark.parametrize(
        "key",
        ["object-store-memory", "object_store_memory", "labels", "idle_timeout_s", "memory_usage_threshold"],
    )
    def test_settings_of_clusters(self, key: str) -> None:
        assert codes({key: "1"}, Place.SHARED) == ["ADVANCED_PARAM_CLUSTER_SCOPE"]

    @pytest.mark.parametrize("key", [SETUP, "eager_install", "entrypoint_num_cpus", "log_level"])
    def test_settings_of_jobs(self, key: str) -> None:
        assert codes({key: "1"}, Place.CLUSTER) == ["ADVANCED_PARAM_JOB_SCOPE"]

    @pytest.mark.parametrize(
        ("key", "place", "near"),
        [
            ("object_store_memory", Place.CLUSTER, "object-store-memory"),
            ("memory-usage-threshold", Place.ON_DEMAND, "memory_usage_threshold"),
            ("entrypoint_num_cpu", Place.SHARED, "entrypoint_num_cpus"),
            ("ENTRYPOINT_NUM_CPUS", Place.SHARED, "entrypoint_num_cpus"),
        ],
    )
    def test_the_unknown_are_told_what_they_might_mean(self, key: str, place: Place, near: str) -> None:
        (found,) = check_parameters({key: "1"}, place)
        assert found.code == "ADVANCED_PARAM_UNKNOWN"
        assert found.params["near"][0] == near
        assert near in found.params["allowed"]

    def test_what_is_like_nothing_is_told_all(self) -> None:
        (found,) = check_parameters({"foo": "1"}, Place.SHARED)
        assert SETUP in found.params["allowed"]
        assert found.params["near"]


class TestValuesOfClusters:
    @pytest.mark.parametrize(
        ("key", "value", "code"),
        [
            ("object-store-memory", "78643199", "ADVANCED_PARAM_NOT_INTEGER"),
            ("object-store-memory", "1e9", "ADVANCED_PARAM_NOT_INTEGER"),
            ("object-spilling-directory", "data", "ADVANCED_PARAM_NOT_A_FOLDER"),
            ("object-spilling-directory", "/data/../etc", "ADVANCED_PARAM_NOT_A_FOLDER"),
            ("object-spilling-directory", "/data/", "ADVANCED_PARAM_NOT_A_FOLDER"),
            ("object-spilling-directory", '{"type": "smart_open"}', "ADVANCED_PARAM_NOT_A_FOLDER"),
            ("labels", "zone", "ADVANCED_PARAM_BAD_NODE_LABELS"),
            ("labels", "", "ADVANCED_PARAM_BAD_NODE_LABELS"),
            ("labels", "zone=a,zone=b", "ADVANCED_PARAM_BAD_NODE_LABELS"),
            ("labels", "muster.io/group=head", "ADVANCED_PARAM_BAD_NODE_LABELS"),
            ("labels", "ray.io/node-id=1", "ADVANCED_PARAM_BAD_NODE_LABELS"),
            ("labels", "zone=a --head", "ADVANCED_PARAM_BAD_NODE_LABELS"),
            ("resources", '{"CPU": 8}', "ADVANCED_PARAM_BAD_RESOURCES"),
            ("resources", '{"node:10.0.0.1": 1}', "ADVANCED_PARAM_BAD_RESOURCES"),
            ("min-worker-port", "10001", "ADVANCED_PARAM_NOT_INTEGER"),
            ("max-worker-port", "20000", "ADVANCED_PARAM_NOT_INTEGER"),
            ("include-log-monitor", "1", "ADVANCED_PARAM_NOT_A_CHOICE"),
            ("idle_timeout_s", "29", "ADVANCED_PARAM_NOT_INTEGER"),
            ("upscaling_mode", "Fast", "ADVANCED_PARAM_NOT_A_CHOICE"),
            ("memory_usage_threshold", "0.49", "ADVANCED_PARAM_NOT_NUMBER"),
            ("memory_usage_threshold", "1", "ADVANCED_PARAM_NOT_NUMBER"),
            ("memory_usage_threshold", "nan", "ADVANCED_PARAM_NOT_NUMBER"),
            ("health_check_failure_threshold", "1", "ADVANCED_PARAM_NOT_INTEGER"),
        ],
    )
    def test_bounds(self, key: str, value: str, code: str) -> None:
        (found,) = check_parameters({key: value}, Place.CLUSTER)
        assert (found.code, found.pointer, found.params["key"]) == (code, f"/advanced_parameters/{key}", key)

    def test_each_becomes_a_value_of_its_scope(self) -> None:
        parameters = {"labels": "a=b,c=d", "upscaling_mode": "aggressive", "memory_usage_threshold": "0.9"}
        assert codes(parameters, Place.CLUSTER) == []
        assert read(parameters, Scope.NODE) == {"labels": {"a": "b", "c": "d"}}
        assert read(parameters, Scope.AUTOSCALER) == {"upscaling_mode": "Aggressive"}
        assert read(parameters, Scope.SYSTEM) == {"memory_usage_threshold": 0.9}

    def test_a_run_with_a_cluster_of_its_own_parts_them(self) -> None:
        parameters = {"labels": "a=b", "eager_install": "true", "entrypoint_num_cpus": "1"}
        assert cluster_parameters(parameters) == {"labels": "a=b"}
        assert submission_options(parameters).fields == {"entrypoint_num_cpus": 1.0}

    def test_all_are_of_a_scope_that_somebody_takes(self) -> None:
        assert {one.scope for one in CATALOGUE.values()} == {*OF_CLUSTERS, Scope.JOB}
