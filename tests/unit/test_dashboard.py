"""What may be asked of a dashboard, and what of its answers is not shown."""

import json

import pytest

from api.dashboard.allowed import role_for
from api.dashboard.masking import HIDDEN, masked
from kernel.actor import Role


def may(method: str, target: str) -> Role | None:
    path, _, query = target.partition("?")
    return role_for(method, path, query)


class TestWhoMayAsk:
    @pytest.mark.parametrize(
        "target",
        [
            "",
            "favicon.ico",
            "static/js/main.84605326.js",
            "static/media/logo.3704c1.svg",
            "nodes?view=summary",
            "nodes/5c60dfba",
            "api/jobs/",
            "api/jobs/run_1-a1",
            "api/v0/tasks?detail=1&limit=10000&filter_keys=job_id&filter_predicates=%3D&filter_values=01000000",
            "api/v0/logs?node_id=1&glob=*",
            "api/v0/logs/file?node_id=1&filename=job-driver-run_1-a1.log&lines=-1",
            "api/v0/logs/file?filename=worker-0a-01000000-12.err",
            "api/v0/logs/file?filename=old%2Fraylet.out.1",
            "api/v0/logs/file?filename=serve%2Freplica_app%23model.log",
            "api/v0/logs/file?actor_id=1&suffix=err",
        ],
    )
    def test_viewers_look(self, target: str) -> None:
        assert may("GET", target) is Role.VIEWER
        assert may("POST", target) is None

    @pytest.mark.parametrize(
        ("method", "target"),
        [
            ("GET", "worker/traceback?pid=1"),
            ("GET", "task/cpu_profile?task_id=1"),
            ("GET", "memory_profile?pid=1"),
            ("POST", "api/v1/applications/app/deployments/model/scale"),
            ("DELETE", "api/serve/applications/"),
        ],
    )
    def test_operators_also(self, method: str, target: str) -> None:
        assert may(method, target) is Role.OPERATOR

    @pytest.mark.parametrize(
        ("method", "target"),
        [
            ("POST", "api/jobs/"),
            ("POST", "api/jobs/run_1/stop"),
            ("DELETE", "api/jobs/run_1"),
            ("GET", "api/packages/gcs/a.zip"),
            ("PUT", "api/packages/gcs/a.zip"),
            ("PUT", "api/serve/applications/"),
            ("POST", "report_events"),
            ("POST", "api/task_events"),
            ("POST", "api/authenticate"),
            ("OPTIONS", "nodes"),
            ("GET", "api/jobs"),
            ("GET", "test/dump"),
            ("GET", "api/v0/delay/60"),
            ("GET", "api/v0/logs/stream?filename=raylet.out"),
            ("GET", "api/v0/something_new"),
        ],
    )
    def test_what_nobody_may(self, method: str, target: str) -> None:
        assert may(method, target) is None

    @pytest.mark.parametrize(
        "target",
        [
            "nodes/..",
            "nodes/.",
            "static/js/../x",
            "static/js/a/b",
            "/nodes",
            "nodes/",
            "nodes/%2e%2e",
            "nodes/a?b",
            "nodes\n",
        ],
    )
    def test_paths_that_lead_elsewhere(self, target: str) -> None:
        assert role_for("GET", target, "") is None

    @pytest.mark.parametrize(
        "name",
        [
            "runtime_env_agent.log",
            ".%2Fruntime_env_agent.log",
            "old%2F..%2Fruntime_env_agent.log",
            "%2Ftmp%2Fray%2Fsession_latest%2Flogs%2Fruntime_env_agent.log",
            "raylet.out%2F..%2Fruntime_env_agent.log",
            "..%2F..%2F..%2Fetc%2Fpasswd",
            "raylet.out&filename=runtime_env_agent.log",
            "raylet.out&file%6Eame=runtime_env_agent.log",
            "",
        ],
    )
    def test_logs_that_may_hold_secrets(self, name: str) -> None:
        assert may("GET", f"api/v0/logs/file?filename={name}") is None


class TestMasking:
    def test_values_go_and_names_stay(self) -> None:
        environment = {"env_vars": {"A": "s3cret", "B": ""}, "working_dir": "gcs://x.zip"}
        rows = {
            "plain": [environment],
            "text": json.dumps(environment),
            "text in text": json.dumps({"serialized": json.dumps(environment)}),
            "camel": {"envVars": {"A": "s3cret"}},
            "odd": {"env_vars": ["s3cret"]},
            "broken": '{"env_vars": {"A": "s3cret',
            "string": json.dumps('{"env_vars": "s3cret"}'),
            "number": 1,
        }
        shown = masked(json.dumps(rows).encode())
        assert b"s3cret" not in shown
        hidden = {"env_vars": {"A": HIDDEN, "B": HIDDEN}, "working_dir": "gcs://x.zip"}
        got = json.loads(shown)
        assert (got["plain"], json.loads(got["text"]), got["number"]) == ([hidden], hidden, 1)
        assert (got["odd"], got["broken"], got["string"]) == ({"env_vars": HIDDEN}, HIDDEN, HIDDEN)

    def test_others_stay_as_they_are(self) -> None:
        body = b'{ "a" : 1.0 }'
        assert masked(body) is body

    @pytest.mark.parametrize("body", [b'{"env_vars": ', b'{"env_vars": ' + b"[" * 100_000, b'\xff"env_vars"'])
    def test_what_cannot_be_read_is_not_shown(self, body: bytes) -> None:
        with pytest.raises(ValueError, match=r"Expecting value|nested|codec"):
            masked(body)
