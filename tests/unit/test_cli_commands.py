"""Commands against the shapes of the API: what is sent, what is told, and with which code they end."""

import hashlib
import stat
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from api.cli.main import NOUNS, main
from api.cli.reference import reference
from tests.unit.cli_stand_in import TOKEN, Cli, Drop, Json, Reply, Request, StandIn, a_stand_in, an_editor, problem

JOB: Json = {
    "id": "job_1",
    "name": "demo",
    "revision": 3,
    "run_mode": "cluster",
    "cluster": "c1",
    "entrypoint": "python main.py",
    "tags": {"team": "vision"},
    "run_counts": {"running": 0},
    "created_by": "li",
}


@pytest.fixture
def server() -> Iterator[StandIn]:
    with a_stand_in() as server:
        server.on("POST", "/jobs", lambda request: Reply(status=201, body=JOB | request.body))
        server.on("GET", "/jobs/demo", Reply(body=JOB, headers={"ETag": '"3"'}))
        server.on("PATCH", "/jobs/demo", lambda request: Reply(body=JOB | request.body))
        yield server


@pytest.fixture
def cli(server: StandIn, tmp_path: Path) -> Cli:
    return Cli(server, tmp_path)


class TestExitCodes:
    @pytest.mark.parametrize("flags", [[], ["-o", "json"], ["--debug"], ["-o", "name", "--no-color"]])
    @pytest.mark.parametrize(
        ("status", "exit_code"),
        [(400, 2), (413, 2), (422, 2), (401, 4), (403, 4), (404, 3), (409, 6), (412, 6), (428, 6), (500, 5)],
    )
    def test_they_follow_from_the_answer_with_every_flag(
        self, server: StandIn, cli: Cli, status: int, exit_code: int, flags: list[str]
    ) -> None:
        server.on("GET", "/jobs/demo", problem(status, "SOME_CODE"))
        result = cli("job", "show", "demo", *flags)
        assert (result.exit_code, result.stdout) == (exit_code, "")
        assert "error: SOME_CODE: about SOME_CODE\n" in result.stderr

    def test_nobody_answers(self, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("api.client.http.RETRY_DELAYS_S", ())
        with a_stand_in() as gone:
            address = gone.address
        result = cli("job", "list", "--address", address)
        assert result.exit_code == 5
        assert result.stderr.startswith(f"error: SERVER_UNREACHABLE: no Muster answers at {address}")

    def test_a_lost_answer_is_not_told_as_nobody(self, server: StandIn, cli: Cli) -> None:
        server.on("PATCH", "/jobs/demo", _drop)
        result = cli("job", "edit", "demo", "--priority", "3")
        assert result.exit_code == 5
        assert "it may have been done" in result.stderr

    @pytest.mark.parametrize(
        "args",
        [
            ["job", "frobnicate"],
            ["job", "list", "--frobnicate"],
            ["job", "create", "x", "--tag", "no-value"],
            ["job", "create", "-f", "/does/not/exist"],
            ["package", "upload", "/does/not/exist"],
            ["run", "wait", "run_1", "--for", "DONE"],
            ["run", "list", "--tag", "no-value"],
            ["job", "create", "x", "--set", "requirements={cpu: 1, cpu: 2}"],
            ["whoami", "--address", "localhost:8266"],
            ["whoami", "--address", "http://[::1"],
            ["whoami", "--address", "http://host:port"],
            ["whoami", "--token", "密钥"],
        ],
    )
    def test_a_wrong_call(self, cli: Cli, args: list[str]) -> None:
        result = cli(*args)
        assert (result.exit_code, result.stdout) == (2, "")
        assert result.stderr.startswith("error: USAGE: ")

    @pytest.mark.parametrize("ref", ["", "a/b", "demo/revisions"])
    def test_what_can_be_no_name_is_not_found_and_not_asked_for(self, server: StandIn, cli: Cli, ref: str) -> None:
        result = cli("job", "show", ref)
        assert (result.exit_code, result.stderr) == (3, f"error: NOT_FOUND: nothing can be named {ref!r}\n")
        assert server.requests == []

    @pytest.mark.parametrize("ref", [".", "..", "...", "a.b", "%2e", "a b?c#d"])
    def test_a_name_of_any_signs_stays_one_part_of_the_path(self, server: StandIn, cli: Cli, ref: str) -> None:
        server.on("GET", f"/jobs/{ref}", JOB)
        assert cli("job", "show", ref).exit_code == 0

    @pytest.mark.parametrize(
        ("given", "asked"),
        [("team=vision", "team:vision"), ("team:vision", "team:vision"), ("x=a:b=c", "x:a:b=c"), ("x:a=b", "x:a=b")],
    )
    def test_a_tag_is_looked_for_as_it_was_given(self, server: StandIn, cli: Cli, given: str, asked: str) -> None:
        for noun in ("job", "run"):
            cli(noun, "list", "--tag", given)
            assert server.requests[-1].query == {"tag": asked}

    def test_a_fault_of_ours_is_one_line(self, server: StandIn, cli: Cli) -> None:
        server.on("GET", "/runs", {"not what": "was promised"})
        result = cli("run", "list")
        assert result.exit_code == 70
        assert result.stderr.splitlines()[0] == "error: INTERNAL: KeyError: 'items'"
        assert "Traceback" in cli("run", "list", "--debug").stderr


class TestErrors:
    def test_fields_and_advice_are_listed(self, server: StandIn, cli: Cli) -> None:
        errors = [
            {"pointer": "/name", "code": "NAME_TOO_LONG", "detail": "101 of 100"},
            {"pointer": "/priority", "code": "OUT_OF_RANGE", "detail": "1 to 9"},
        ]
        answer = problem(422, "VALIDATION_FAILED", errors=errors, advice="correct them", request_id="req-7")
        server.on("POST", "/jobs", answer)
        result = cli("job", "create", "x")
        assert result.stderr.splitlines() == [
            "error: VALIDATION_FAILED: about VALIDATION_FAILED",
            "  /name: NAME_TOO_LONG: 101 of 100",
            "  /priority: OUT_OF_RANGE: 1 to 9",
            "hint: correct them",
        ]
        assert "req-7" in cli("job", "create", "x", "--debug").stderr

    def test_a_single_one_is_told_once(self, server: StandIn, cli: Cli) -> None:
        errors = [{"pointer": "/name", "code": "NAME_TAKEN", "detail": "about NAME_TAKEN"}]
        server.on("POST", "/jobs", problem(409, "NAME_TAKEN", errors=errors))
        assert cli("job", "create", "x").stderr == "error: NAME_TAKEN: about NAME_TAKEN (/name)\n"

    def test_the_language_is_that_of_the_locale(self, server: StandIn, cli: Cli) -> None:
        server.on("GET", "/jobs/demo", problem(409, "X", advice="改名"))
        result = cli("job", "show", "demo", LANG="zh_CN.UTF-8")
        assert "错误: X" in result.stderr
        assert "建议: 改名" in result.stderr
        assert server.requests[-1].headers["accept-language"] == "zh"

    def test_warnings_stand_beside_the_result(self, server: StandIn, cli: Cli) -> None:
        warning = {"code": "CLUSTER_NOT_RUNNING", "detail": "start it", "pointer": "/cluster"}
        server.on("POST", "/jobs", Reply(status=201, body=JOB | {"warnings": [warning]}))
        result = cli("job", "create", "x", "-o", "name")
        assert result.stdout == "demo\n"
        assert result.stderr == "warning: CLUSTER_NOT_RUNNING: start it (/cluster)\n"


class TestCreate:
    def test_options_fill_the_body(self, server: StandIn, cli: Cli) -> None:
        args = ["--mode", "on_demand", "--entrypoint", "python main.py", "--priority", "7", "--package", "pkg_1"]
        args += ["--tag", "team=vision", "--tag", "x=1=2", "--env", "A=1", "--head", "cpu=2,memory_gib=4.5"]
        args += ["--worker", "name=w1,cpu=1", "--worker", "name=w2,cpu=2", "--set", "requirements.labels.zone=[a, b]"]
        assert cli("job", "create", "train", *args).exit_code == 0
        assert server.requests[-1].body == {
            "name": "train",
            "run_mode": "on_demand",
            "entrypoint": "python main.py",
            "priority": 7,
            "package": "pkg_1",
            "tags": {"team": "vision", "x": "1=2"},
            "runtime_env": {"env_vars": {"A": "1"}},
            "head": {"cpu": 2, "memory_gib": 4.5},
            "worker_groups": [{"name": "w1", "cpu": 1}, {"name": "w2", "cpu": 2}],
            "requirements": {"labels": {"zone": ["a", "b"]}},
        }

    @pytest.mark.parametrize(
        ("args", "mode"),
        [(["--cluster", "c"], "cluster"), (["--cluster-group", "g"], "cluster_group"), ([], "on_demand")],
    )
    def test_the_mode_follows_from_the_target(self, server: StandIn, cli: Cli, args: list[str], mode: str) -> None:
        cli("job", "create", "x", *args)
        assert server.requests[-1].body["run_mode"] == mode

    @pytest.mark.parametrize(
        "text",
        [
            "name: a\ntags: {x: '1'}\nretry: {on: [lost]}\n",
            '{"name": "a", "tags": {"x": "1"}, "retry": {"on": ["lost"]}}',
        ],
    )
    def test_a_file_with_options_over_it(self, server: StandIn, cli: Cli, text: str) -> None:
        cli("job", "create", "-f", "-", "--tag", "y=2", "--dry-run", stdin=text)
        request = server.requests[-1]
        assert request.query == {"dry_run": "true"}
        assert request.body["tags"] == {"x": "1", "y": "2"}
        assert request.body["retry"] == {"on": ["lost"]}

    @pytest.mark.parametrize(
        "text", ["name: a\ntags:\n  x: '1'\n  x: '2'\n", '{"name": "a", "tags": {"x": 1, "x": 2}}']
    )
    def test_a_key_that_is_given_twice_is_named(self, server: StandIn, cli: Cli, text: str) -> None:
        result = cli("job", "create", "-f", "-", stdin=text)
        assert (result.exit_code, server.requests) == (2, [])
        assert result.stderr.startswith("error: USAGE: the key x stands twice in the same object\n")

    @pytest.mark.parametrize("text", ["- a\n- b\n", "a: [", "just words", "\udcff"])
    def test_a_file_that_is_no_body(self, server: StandIn, cli: Cli, tmp_path: Path, text: str) -> None:
        file = tmp_path / "body.yaml"
        file.write_bytes(text.encode(errors="surrogateescape"))
        assert cli("job", "create", "-f", str(file)).exit_code == 2
        assert server.requests == []

    def test_members_of_a_group_keep_their_order(self, server: StandIn, cli: Cli) -> None:
        server.on("POST", "/cluster-groups", lambda request: Reply(status=201, body=request.body))
        cli("group", "create", "g", "--member", "b", "--member", "a", "--preset", "failover")
        assert server.requests[-1].body == {
            "name": "g",
            "members": [{"cluster": "b"}, {"cluster": "a"}],
            "policy": {"preset": "failover"},
        }

    def test_a_credential_gets_other_secrets(self, server: StandIn, cli: Cli) -> None:
        server.on("GET", "/credentials/store", {"name": "store", "type": "registry"})
        server.on("PATCH", "/credentials/store", {"name": "store", "type": "registry"})
        assert cli("credential", "edit", "store", stdin="host\nme\ns3cret\n").exit_code == 0
        data = {"server": "host", "username": "me", "password": "s3cret"}
        assert server.requests[-1].body == {"data": data}

    def test_secrets_of_a_credential_are_read_one_a_line(self, server: StandIn, cli: Cli) -> None:
        server.on("POST", "/credentials", lambda request: Reply(status=201, body={"name": request.body["name"]}))
        assert cli("credential", "create", "store", "--type", "cos", stdin="id-1\nkey-2\n").exit_code == 0
        assert server.requests[-1].body["data"] == {"secret_id": "id-1", "secret_key": "key-2"}

    def test_a_secret_stands_alone_on_standard_output(self, server: StandIn, cli: Cli) -> None:
        server.on("POST", "/tokens", lambda request: Reply(status=201, body=request.body | {"secret": "s3cret"}))
        result = cli("token", "create", "ci", "--user", "ci", "--role", "submitter")
        assert result.stdout == "s3cret\n"


class TestEdit:
    def test_only_changes_are_sent_against_the_revision_that_was_read(self, server: StandIn, cli: Cli) -> None:
        cli("job", "edit", "demo", "--tag", "x=1", "--entrypoint", "python main.py")
        request = server.requests[-1]
        assert request.body == {"tags": {"team": "vision", "x": "1"}}
        assert request.headers["if-match"] == '"3"'

    def test_options_that_change_nothing_open_noan_editor(self, server: StandIn, cli: Cli, tmp_path: Path) -> None:
        editor = an_editor(tmp_path, "text.replace('main.py', 'other.py')")
        result = cli("job", "edit", "demo", "--entrypoint", "python main.py", VISUAL=editor, EDITOR=editor)
        assert result.stderr == "nothing to change\n"
        assert server.asked("PATCH", "/jobs/demo") == []

    def test_members_that_are_only_named_keep_what_they_had(self, server: StandIn, cli: Cli) -> None:
        there = {"name": "g", "members": [{"cluster": "a", "tier": 1, "order": 5}, {"cluster": "b", "tier": 2}]}
        server.on("GET", "/cluster-groups/g", Reply(body=there, headers={"ETag": '"3"'}))
        server.on("PATCH", "/cluster-groups/g", lambda request: Reply(body=there | request.body))
        cli("group", "edit", "g", "-f", "-", stdin="members: [c, {cluster: b}, a, {cluster: d, order: 9}]\n")
        assert server.requests[-1].body["members"] == [
            {"cluster": "c", "order": 0},
            {"cluster": "b", "order": 1},
            {"cluster": "a", "tier": 1, "order": 2},
            {"cluster": "d", "order": 9},
        ]

    def test_in_thean_editor(self, server: StandIn, cli: Cli, tmp_path: Path) -> None:
        editor = an_editor(tmp_path, "text.replace('main.py', 'other.py').replace('cluster: c1\\n', '')")
        result = cli("job", "edit", "demo", VISUAL=editor, EDITOR=editor)
        assert result.exit_code == 0
        assert server.requests[-1].body == {"entrypoint": "python other.py", "cluster": None}

    def test_an_editor_left_as_it_was_changes_nothing(self, server: StandIn, cli: Cli, tmp_path: Path) -> None:
        editor = an_editor(tmp_path, "text")
        result = cli("job", "edit", "demo", VISUAL=editor, EDITOR=editor)
        assert result.stderr == "nothing to change\n"
        assert server.asked("PATCH", "/jobs/demo") == []

    def test_a_refused_edit_is_kept(self, server: StandIn, cli: Cli, tmp_path: Path) -> None:
        server.on("PATCH", "/jobs/demo", problem(412, "REVISION_CONFLICT"))
        editor = an_editor(tmp_path, "text.replace('main.py', 'other.py')")
        result = cli("job", "edit", "demo", VISUAL=editor, EDITOR=editor)
        assert result.exit_code == 6
        kept = result.stderr.split("your text is kept in ")[1].split()[0]
        assert "other.py" in Path(kept).read_text()

    def test_a_copy_keeps_every_field(self, server: StandIn, cli: Cli) -> None:
        body = {"name": "demo-copy", "run_mode": "cluster", "cluster": "c1", "retry_safe": True}
        server.on("POST", "/jobs/demo/copy", Reply(body=body))
        cli("job", "copy", "demo", "again", "--priority", "2")
        assert server.requests[-1].body == body | {"name": "again", "priority": 2}
        printed = cli("job", "copy", "demo", "--print").stdout
        assert len(server.asked("POST", "/jobs")) == 1
        cli("job", "create", "-f", "-", stdin=printed)
        assert server.requests[-1].body == body


class TestWho:
    @pytest.fixture(autouse=True)
    def me(self, server: StandIn) -> None:
        me = Reply(body={"user": "li", "role": "admin", "resource_packages": ["*"]})
        server.on("GET", "/whoami", lambda request: me if _bearer(request) else problem(401, "UNAUTHENTICATED"))

    def test_login_keeps_a_tried_token_for_its_server_only(self, server: StandIn, cli: Cli) -> None:
        result = cli("login", server.address, stdin="the-secret\n", MUSTER_TOKEN=None, MUSTER_ADDRESS=None)
        assert result.exit_code == 0
        file = cli.home / "config" / "muster" / "login.json"
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
        cli("whoami", MUSTER_TOKEN=None, MUSTER_ADDRESS=None)
        assert _bearer(server.requests[-1]) == "the-secret"
        with a_stand_in() as other:
            cli("whoami", "--address", other.address, MUSTER_TOKEN=None)
            assert _bearer(other.requests[-1]) is None

    def test_a_token_that_is_refused_is_not_kept(self, server: StandIn, cli: Cli) -> None:
        server.on("GET", "/whoami", problem(401, "UNAUTHENTICATED"))
        assert cli("login", server.address, stdin="wrong\n", MUSTER_TOKEN=None).exit_code == 4
        assert not (cli.home / "config" / "muster" / "login.json").exists()

    def test_the_local_server_s_own_token_is_found(self, server: StandIn, cli: Cli, tmp_path: Path) -> None:
        for folder, env in (
            (cli.home / "state" / "muster", {}),
            (tmp_path / "here", {"MUSTER_STATE_DIR": str(tmp_path / "here")}),
        ):
            folder.mkdir(parents=True)
            (folder / "admin-token").write_text(f"local-{folder.name}\n")
            cli("whoami", MUSTER_TOKEN=None, **env)
            assert _bearer(server.requests[-1]) == f"local-{folder.name}"

    @pytest.mark.parametrize("name", ["MUSTER_TOKEN", "MUSTER_ADDRESS"])
    def test_what_is_there_but_empty_is_not_taken_for_unset(self, server: StandIn, cli: Cli, name: str) -> None:
        folder = cli.home / "state" / "muster"
        folder.mkdir(parents=True)
        (folder / "admin-token").write_text("local")
        option = f"--{name.removeprefix('MUSTER_').lower()}"
        for refused in (cli("whoami", **{name: ""}), cli("whoami", option, "")):
            assert (refused.exit_code, server.requests) == (2, [])
            assert f"error: USAGE: Invalid value for {option} or {name}: " in refused.stderr

    def test_without_any_token_it_says_how_to_get_one(self, cli: Cli) -> None:
        result = cli("whoami", MUSTER_TOKEN=None)
        assert result.exit_code == 4
        assert "muster login" in result.stderr

    def test_an_option_wins_over_the_environment_wherever_it_stands(self, server: StandIn, cli: Cli) -> None:
        for args in (["--token", "given", "whoami"], ["whoami", "--token", "given"]):
            cli(*args)
            assert _bearer(server.requests[-1]) == "given"
        cli("whoami")
        assert _bearer(server.requests[-1]) == TOKEN


class TestPackage:
    CONTENT = b"PK\x05\x06" + bytes(18)

    def test_a_folder_is_packed_and_sent_before_the_job(self, server: StandIn, cli: Cli, tmp_path: Path) -> None:
        (tmp_path / "project").mkdir()
        (tmp_path / "project" / "main.py").write_text("print()")
        (tmp_path / "project" / ".git").mkdir()
        server.on("POST", "/packages", {"id": "pkg_1", "warnings": []})
        result = cli("job", "create", "x", "--package", str(tmp_path / "project"))
        assert server.requests[-1].body["package"] == "pkg_1"
        assert b'name="file"; filename="project.zip"' in server.requests[0].body
        assert "files 1" in result.stderr
        assert ".git" in result.stderr

    def test_a_dry_run_uploads_nothing(self, server: StandIn, cli: Cli, tmp_path: Path) -> None:
        assert cli("job", "create", "x", "--package", str(tmp_path), "--dry-run").exit_code == 2
        assert server.requests == []

    def test_a_lost_upload_is_sent_again_from_its_beginning(self, server: StandIn, cli: Cli, tmp_path: Path) -> None:
        (tmp_path / "a.zip").write_bytes(self.CONTENT)
        lost = iter([True, False])

        def answer(request: Request) -> Reply:
            if next(lost):
                raise Drop
            return Reply(status=201, body={"id": "pkg_1", "size_bytes": len(request.body)})

        server.on("POST", "/packages", answer)
        assert cli("package", "upload", str(tmp_path / "a.zip"), "-o", "name").stdout == "pkg_1\n"
        first, second = server.requests
        assert self.CONTENT in first.body
        assert self.CONTENT in second.body

    def test_unfinished_uploads_are_listed_and_given_up(self, server: StandIn, cli: Cli) -> None:
        upload = {"id": "upl_1", "file_name": "a.zip", "size_bytes": 9, "offset_bytes": 4}
        server.on("GET", "/uploads", {"items": [upload], "next_cursor": None})
        server.on("DELETE", "/uploads/upl_1", Reply(status=204))
        assert cli("package", "unfinished", "-o", "name").stdout == "upl_1\n"
        assert cli("package", "discard", "upl_1").exit_code == 0
        assert server.requests[-1].headers["tus-resumable"] == "1.0.0"

    def test_from_object_storage(self, server: StandIn, cli: Cli) -> None:
        server.on("POST", "/packages", Reply(status=201, body={"id": "pkg_1"}))
        args = ("--credential", "store", "--region", "ap-guangzhou", "-o", "name")
        assert cli("package", "fetch", "cos://jobs-1250000000/v1/a b.zip", *args).stdout == "pkg_1\n"
        source = {"type": "cos", "bucket": "jobs-1250000000", "key": "v1/a b.zip"}
        assert server.requests[-1].body == {"source": source | {"region": "ap-guangzhou", "credential": "store"}}
        assert cli("package", "fetch", "https://host/a.zip", "--credential", "store").exit_code == 2

    def test_a_download_is_checked_and_leaves_nothing_half(self, server: StandIn, cli: Cli, tmp_path: Path) -> None:
        about = {"id": "pkg_1", "file_name": "../a.zip", "sha256": hashlib.sha256(self.CONTENT).hexdigest()}
        server.on("GET", "/packages/pkg_1", about)
        server.on("GET", "/packages/pkg_1/content", Reply(raw=self.CONTENT))
        target = tmp_path / "out" / "b.zip"
        target.parent.mkdir()
        assert cli("package", "download", "pkg_1", "-O", str(target)).exit_code == 0
        assert target.read_bytes() == self.CONTENT
        server.on("GET", "/packages/pkg_1/content", Reply(raw=self.CONTENT[:-1]))
        target.unlink()
        assert cli("package", "download", "pkg_1", "-O", str(target)).exit_code == 5
        assert list(target.parent.iterdir()) == []


class TestVerbs:
    @pytest.mark.parametrize(
        ("args", "request_line", "body"),
        [
            (["cluster", "start", "c1"], "POST /clusters/c1/start", b""),
            (["cluster", "stop", "c1", "--force"], "POST /clusters/c1/stop", {"force": True}),
            (["cluster", "cordon", "c1"], "POST /clusters/c1/cordon", b""),
            (["run", "stop", "run_1"], "POST /runs/run_1/stop", b""),
            (["run", "set-priority", "run_1", "9"], "PATCH /runs/run_1", {"priority": 9}),
            (["job", "run", "demo", "--max-wait-s", "60"], "POST /jobs/demo/runs", {"max_wait_s": 60}),
        ],
    )
    def test_one_request_each(
        self, server: StandIn, cli: Cli, args: list[str], request_line: str, body: object
    ) -> None:
        method, path = request_line.split()
        server.on(method, path, {"id": "run_1", "name": "c1", "state": "RUNNING"})
        assert cli(*args).exit_code == 0
        assert [(request.method, request.path, request.body) for request in server.requests] == [(method, path, body)]

    def test_delete(self, server: StandIn, cli: Cli) -> None:
        server.on("DELETE", "/clusters/c1", Reply(status=204))
        assert cli("cluster", "delete", "c1").stdout == "deleted c1\n"
        cli("cluster", "delete", "c1", "--force")
        assert [request.body for request in server.requests] == [b"", {"force": True}]

    def test_filters_and_pages_are_asked_for(self, server: StandIn, cli: Cli) -> None:
        server.on("GET", "/runs", {"items": [], "next_cursor": None})
        cli("run", "list", "--state", "FAILED", "--tag", "team:vision", "--limit", "5", "--sort", "-created_at")
        assert server.requests[-1].query == {
            "state": "FAILED",
            "tag": "team:vision",
            "limit": "5",
            "sort": "-created_at",
        }


def test_the_reference_page_is_up_to_date() -> None:
    page = Path(__file__).parents[2] / "docs" / "reference" / "cli.md"
    assert page.read_text() == reference(), "python -m api.cli.reference > docs/reference/cli.md"


def test_every_command_explains_itself(cli: Cli) -> None:
    for path, command in _commands(main, ()):
        result = cli(*path, "--help")
        assert result.exit_code == 0, path
        assert command.help or path in {(name,) for name in NOUNS}, path


def _commands(command: click.Command, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below
            yield from _commands(below, (*path, name))


def _drop(_request: Request) -> Reply:
    raise Drop


def _bearer(request: Request) -> str | None:
    return request.headers.get("authorization", "").removeprefix("Bearer ") or None
