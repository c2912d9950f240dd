"""Policies of cluster groups on the command line: show, edit with a look at the effect, history, restore, simulate."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from api.cli.documents import parse_document
from api.cli.policy_text import merged
from api.schemas.groups import PolicyPut
from cluster_groups.check_policy import check_draft
from tests.unit.cli_stand_in import Cli, Json, Reply, Request, StandIn, a_stand_in, an_editor, problem

POLICY = "/cluster-groups/g/policy"
NIGHT: Json = {"days": [1, 5], "start": "22:00", "end": "06:00", "timezone": "Asia/Shanghai", "effect": "open"}
PRESENT: Json = {
    "revision": 4,
    "created_at": "2026-01-02T03:04:05Z",
    "created_by": "li",
    "comment": "first",
    "timezone": "UTC",
    "members": [{"cluster": "a", "weight": 100, "windows": [NIGHT]}, {"cluster": "b", "weight": 100, "windows": []}],
    "policy": {"preset": "failover", "rank": "ordered", "spill_after_s": 300},
    "changes": [{"field": "policy.rank", "before": "weighted", "after": "ordered"}],
    "warnings": [],
}
DECISION: Json = {
    "evaluated_at": "2026-01-02T03:04:05Z",
    "outcome": "dispatched",
    "chosen": "b",
    "tier": 1,
    "because": "b is next.",
    "next_window_change_at": "2026-01-02T22:00:00Z",
    "candidates": [
        {
            "cluster": "a",
            "eligible": False,
            "reason": "WINDOW_CLOSED",
            "message": "a is closed until 22:00.",
            "window": {"state": "closed", "id": 0, "until": "2026-01-02T22:00:00Z"},
        },
        {"cluster": "b", "eligible": True, "tier": 1, "fits_now": True, "rank": 1},
    ],
    "waiting_runs": [
        {"run": "run_1", "before": {"outcome": "waiting", "code": "GROUP_WINDOW_CLOSED"}, "after": {"outcome": "x"}},
        {
            "run": "run_2",
            "before": {"outcome": "waiting", "code": "GROUP_WINDOW_CLOSED"},
            "after": {"outcome": "dispatched", "cluster": "b"},
        },
        {
            "run": "run_3",
            "before": {"outcome": "waiting", "code": "HEAD_BUSY"},
            "after": {"outcome": "waiting", "code": "HEAD_BUSY"},
        },
    ],
}
DESCRIPTION: Json = {
    "components": {
        "schemas": {
            "PolicyPut": {
                "properties": {
                    "timezone": {"type": "string", "default": "UTC", "description": "Of windows that name none."},
                    "members": {"type": "array", "items": {"$ref": "#/components/schemas/MemberIn"}},
                    "policy": {"$ref": "#/components/schemas/PolicyIn"},
                }
            },
            "MemberIn": {
                "properties": {
                    "weight": {"type": "integer", "minimum": 0, "maximum": 1000, "description": "0: only if no other."},
                    "windows": {"type": "array", "items": {"$ref": "#/components/schemas/WindowIn"}},
                }
            },
            "WindowIn": {
                "properties": {
                    "start": {"type": "string", "description": "HH:MM."},
                    "effect": {"$ref": "#/components/schemas/Effect", "default": "open"},
                }
            },
            "PolicyIn": {
                "properties": {
                    "rank": {
                        "anyOf": [{"type": "string"}, {"type": "null"}],
                        "enum": ["ordered", "weighted", None],
                        "description": "Who is first inside a tier.",
                    },
                }
            },
            "Effect": {"enum": ["open", "closed"], "type": "string"},
        }
    }
}


class Stored:
    """The policy as a server keeps it: it knows revisions, and fills in what is left out of `policy`."""

    def __init__(self) -> None:
        self.body = PRESENT

    def read(self, _request: Request) -> Reply:
        return Reply(body=self.body, headers={"ETag": f'"{self.body["revision"]}"'})

    def write(self, request: Request) -> Reply:
        if request.headers.get("if-match") != f'"{self.body["revision"]}"':
            return problem(
                412, "REVISION_CONFLICT", params={"changed_by": "wang", "changed_at": "2026-01-03T00:00:00Z"}
            )
        policy = {**PRESENT["policy"], **request.body["policy"]}
        after = {**self.body, **request.body, "policy": policy}
        is_same = {**after, "comment": ""} == {**self.body, "comment": ""}
        if is_same and not (policy.get("failback") == "manual" and after["comment"]):
            return Reply(body=self.body)
        after["revision"] += 1
        if "dry_run" not in request.query:
            self.body = after
        return Reply(body=after)

    def by_somebody_else(self, **fields: Any) -> None:
        self.body = {**self.body, **fields, "revision": self.body["revision"] + 1}


@pytest.fixture
def stored() -> Stored:
    return Stored()


@pytest.fixture
def server(stored: Stored) -> Iterator[StandIn]:
    with a_stand_in() as server:
        server.on("GET", POLICY, stored.read)
        server.on("PUT", POLICY, stored.write)
        server.on("POST", "/cluster-groups/g/simulate", DECISION)
        server.on("GET", "/openapi.json", DESCRIPTION)
        yield server


@pytest.fixture
def cli(server: StandIn, tmp_path: Path) -> Cli:
    return Cli(server, tmp_path)


class TestShow:
    def test_windows_are_told_in_words(self, cli: Cli) -> None:
        out = cli("group", "policy", "show", "g").stdout
        assert "Mon+Fri 22:00-06:00 Asia/Shanghai" in out
        assert "policy.rank" in out
        assert json.loads(cli("group", "policy", "show", "g", "-o", "json").stdout) == PRESENT

    def test_an_earlier_revision(self, server: StandIn, cli: Cli) -> None:
        server.on("GET", f"{POLICY}/revisions/2", PRESENT | {"revision": 2})
        assert cli("group", "policy", "show", "g", "--revision", "2", "-o", "name").stdout == "2\n"


class TestEdit:
    def test_it_shows_difference_and_effect_and_asks(self, server: StandIn, cli: Cli, tmp_path: Path) -> None:
        editor = an_editor(tmp_path, "text.replace('rank: ordered', 'rank: weighted')")
        result = cli(*EDIT, "--comment", "why", stdin="y\n", VISUAL=editor, EDITOR=editor)
        assert result.exit_code == 0, result.stderr
        dry, put = server.asked("PUT", POLICY)
        assert (dry.query, put.query) == ({"dry_run": "true"}, {})
        assert put.headers["if-match"] == '"4"'
        assert put.body["comment"] == "why"
        assert put.body["policy"] == {**PRESENT["policy"], "rank": "weighted"}
        assert put.body["members"] == PRESENT["members"]
        for told in (
            "-  rank: ordered",
            "+  rank: weighted",
            "dispatched",
            "a is closed until 22:00",
            "run_2",
            "apply?",
        ):
            assert told in result.stderr
        (asked,) = server.asked("POST", "/cluster-groups/g/simulate")
        assert (asked.body["policy"]["policy"]["rank"], asked.body["policy"]["comment"]) == ("weighted", "why")
        assert "revision" not in asked.body["policy"]

    def test_the_api_s_own_words_stand_beside_the_fields(self, cli: Cli, tmp_path: Path) -> None:
        editor = an_editor(tmp_path, f"(pathlib.Path({str(tmp_path / 'seen')!r}).write_text(text), text)[1]")
        assert cli(*EDIT, VISUAL=editor, EDITOR=editor).stderr == "nothing to change\n"
        seen = (tmp_path / "seen").read_text()
        assert "# timezone (string, UTC unless given): Of windows that name none.\ntimezone: UTC\n" in seen
        assert "#   weight (integer 0 to 1000): 0: only if no other.\n" in seen
        assert "#     start (string): HH:MM.\n" in seen
        assert "#     effect (open | closed, open unless given)\n" in seen
        assert "#   rank (ordered | weighted or null): Who is first inside a tier.\n" in seen
        assert yaml.safe_load(seen)["policy"] == PRESENT["policy"]

    def test_that_a_preset_fills_only_what_is_left_out_is_told(self, cli: Cli, stored: Stored) -> None:
        alone = cli(*EDIT, "-f", "-", "--dry-run", stdin=yaml.safe_dump({"policy": {"preset": "random"}}))
        assert "the preset alone changes nothing" in alone.stderr
        stored.body = {**PRESENT, "policy": {"preset": "failover"}}
        taken = cli(*EDIT, "-f", "-", "--dry-run", stdin=yaml.safe_dump({"policy": {"preset": "random"}}))
        assert "the preset alone" not in taken.stderr

    def test_without_a_description_it_is_edited_all_the_same(self, server: StandIn, cli: Cli, tmp_path: Path) -> None:
        server.on("GET", "/openapi.json", problem(404, "NOT_FOUND"))
        server.on("POST", "/cluster-groups/g/simulate", problem(500, "INTERNAL_ERROR"))
        editor = an_editor(tmp_path, "text.replace('300', '0')")
        result = cli(*EDIT, "--yes", VISUAL=editor, EDITOR=editor)
        assert (result.exit_code, len(server.asked("PUT", POLICY))) == (0, 2)
        assert "what it would do cannot be told: INTERNAL_ERROR" in result.stderr

    @pytest.mark.parametrize("answer", ["n\n", ""])
    def test_a_no_stores_nothing_and_keeps_the_text(
        self, server: StandIn, cli: Cli, tmp_path: Path, answer: str
    ) -> None:
        editor = an_editor(tmp_path, "text.replace('300', '0')")
        result = cli(*EDIT, stdin=answer, VISUAL=editor, EDITOR=editor)
        assert result.exit_code == 130
        assert [request.query for request in server.asked("PUT", POLICY)] == [{"dry_run": "true"}]
        assert "spill_after_s: 0" in _kept(result.stderr)

    def test_a_dry_run_asks_nothing(self, cli: Cli, stored: Stored) -> None:
        result = cli(*EDIT, "-f", "-", "--dry-run", "-o", "json", stdin="policy: {spill_after_s: 0}")
        assert result.exit_code == 0
        assert json.loads(result.stdout)["policy"]["spill_after_s"] == 0
        assert stored.body == PRESENT

    def test_from_a_file(self, server: StandIn, cli: Cli, stored: Stored, tmp_path: Path) -> None:
        """What show printed may be given back; what is left out stays; what is unknown goes to the server."""
        printed = yaml.safe_load(cli("group", "policy", "show", "g", "-o", "yaml").stdout)
        del printed["members"]
        file = tmp_path / "policy.yaml"
        file.write_text(yaml.safe_dump(printed | {"timezone": "Asia/Tokyo", "typo": 1}))
        assert cli(*EDIT, "-f", str(file), "--yes").exit_code == 0
        assert server.requests[-1].body == {
            "timezone": "Asia/Tokyo",
            "members": PRESENT["members"],
            "policy": PRESENT["policy"],
            "comment": "",
            "typo": 1,
        }
        assert stored.body["revision"] == 5

    def test_a_refused_edit_is_kept(self, server: StandIn, cli: Cli, tmp_path: Path) -> None:
        server.on("PUT", POLICY, problem(422, "UNKNOWN_TIMEZONE", errors=[{"pointer": "/timezone", "code": "X"}]))
        editor = an_editor(tmp_path, "text.replace('UTC', 'Mars')")
        result = cli(*EDIT, "--yes", VISUAL=editor, EDITOR=editor)
        assert result.exit_code == 2
        assert "timezone: Mars" in _kept(result.stderr)

    def test_a_part_that_the_text_leaves_out_stays(self, cli: Cli, stored: Stored, tmp_path: Path) -> None:
        editor = an_editor(tmp_path, "'timezone: Asia/Tokyo'")
        result = cli(*EDIT, "--comment", "why", "--yes", VISUAL=editor, EDITOR=editor)
        assert result.exit_code == 0, result.stderr
        assert (stored.body["timezone"], stored.body["comment"]) == ("Asia/Tokyo", "why")
        assert stored.body["members"] == PRESENT["members"]

    def test_with_a_comment_the_same_takes_back_a_tier(self, cli: Cli, stored: Stored, tmp_path: Path) -> None:
        editor = an_editor(tmp_path, "text")
        assert "nothing to change" in cli(*EDIT, "--comment", "back", VISUAL=editor, EDITOR=editor).stderr
        stored.body = {**PRESENT, "policy": {**PRESENT["policy"], "failback": "manual"}}
        result = cli(*EDIT, "--comment", "back", "--yes", VISUAL=editor, EDITOR=editor)
        assert (result.exit_code, stored.body["revision"], stored.body["comment"]) == (0, 5, "back"), result.stderr


class TestMeanwhile:
    @pytest.fixture
    def overtaken(self, server: StandIn, stored: Stored) -> None:
        """Somebody saves another policy while this one is being edited."""

        def describe(_request: Request) -> Reply:
            stored.by_somebody_else(policy={**PRESENT["policy"], "spill_after_s": 60}, created_by="wang")
            return Reply(body=DESCRIPTION)

        server.on("GET", "/openapi.json", describe)

    @pytest.mark.usefixtures("overtaken")
    def test_the_other_s_edit_is_told_and_both_can_stand(self, cli: Cli, stored: Stored, tmp_path: Path) -> None:
        editor = an_editor(tmp_path, "text.replace('rank: ordered', 'rank: weighted')")
        result = cli(*EDIT, stdin="y\ny\n", VISUAL=editor, EDITOR=editor)
        assert result.exit_code == 0, result.stderr
        assert "meanwhile wang saved revision 5 (2026-01-03 00:00:00Z)" in result.stderr
        assert "+  spill_after_s: 60" in result.stderr
        assert stored.body["policy"] == {"preset": "failover", "rank": "weighted", "spill_after_s": 60}
        assert stored.body["revision"] == 6

    @pytest.mark.usefixtures("overtaken")
    @pytest.mark.parametrize(("options", "answer"), [((), "n\n"), (("--yes",), "")])
    def test_nobody_s_edit_is_overwritten_unseen(
        self, cli: Cli, stored: Stored, tmp_path: Path, options: tuple[str, ...], answer: str
    ) -> None:
        editor = an_editor(tmp_path, "text.replace('rank: ordered', 'rank: weighted')")
        result = cli(*EDIT, *options, stdin=answer, VISUAL=editor, EDITOR=editor)
        assert result.exit_code == 6
        assert stored.body["policy"]["rank"] == "ordered"
        assert "rank: weighted" in _kept(result.stderr)


class TestMerged:
    def test_each_keeps_what_they_changed(self) -> None:
        base = {"timezone": "UTC", "members": [_member("a"), _member("b")], "policy": {"x": 1, "y": 1, "z": 1}}
        mine = {"timezone": "UTC", "members": [_member("b", weight=5), _member("a")], "policy": {"x": 2, "y": 2}}
        theirs = {"timezone": "Asia/Tokyo", "members": [_member("b", tier=1), _member("c")], "policy": base["policy"]}
        assert merged(base, mine, theirs) == {
            "timezone": "Asia/Tokyo",
            "members": [_member("b", weight=5, tier=1), _member("c")],
            "policy": {"x": 2, "y": 2},
        }


def test_the_examples_of_the_guide_are_policies() -> None:
    guide = (Path(__file__).parents[2] / "docs" / "how-to" / "policies.md").read_text()
    examples = [parse_document(text, "example") for text in re.findall(r"```yaml\n(.*?)```", guide, re.DOTALL)]
    assert len(examples) > 3
    for example in examples:
        assert check_draft(PolicyPut.model_validate_json(json.dumps(example)).draft()) == []


class TestHistory:
    def test_it_says_what_each_changed(self, server: StandIn, cli: Cli) -> None:
        server.on("GET", f"{POLICY}/revisions", {"items": [PRESENT], "next_cursor": None})
        line = cli("group", "policy", "history", "g").stdout.splitlines()[1]
        assert line.split() == [
            "4",
            "2026-01-02",
            "03:04:05Z",
            "li",
            "first",
            "policy.rank",
            "weighted",
            "→",
            "ordered",
        ]
        cli("group", "policy", "history", "g", "--limit", "5")
        assert server.requests[-1].query == {"limit": "5"}

    def test_restore_shows_the_same_as_an_edit(self, server: StandIn, cli: Cli) -> None:
        back = PRESENT | {"revision": 5, "timezone": "Asia/Tokyo"}
        path = f"{POLICY}/revisions/2/restore"
        server.on("POST", path, back)
        assert cli("group", "policy", "restore", "g", "2", stdin="n\n").exit_code == 130
        result = cli("group", "policy", "restore", "g", "2", "--comment", "back", "--yes", "-o", "name")
        assert (result.exit_code, result.stdout) == (0, "5\n")
        assert "+timezone: Asia/Tokyo" in result.stderr
        asked, dry, last = server.asked("POST", path)
        assert (asked.query, dry.query, last.query) == ({"dry_run": "true"}, {"dry_run": "true"}, {})
        assert (last.body, last.headers["if-match"]) == ({"comment": "back"}, '"4"')

    def test_restoring_what_there_is_changes_nothing(self, server: StandIn, cli: Cli) -> None:
        server.on("POST", f"{POLICY}/revisions/4/restore", PRESENT)
        assert cli("group", "policy", "restore", "g", "4").stderr == "nothing to change\n"


class TestSimulate:
    def test_who_why_and_what_becomes_of_those_who_wait(self, server: StandIn, cli: Cli) -> None:
        result = cli(
            "group", "simulate", "g", "--gpu", "1", "--gpu-type", "H100", "--gpu-type", "A100", "--label", "x=1"
        )
        assert result.exit_code == 0
        requirements = {"gpu": 1, "gpu_types": ["H100", "A100"], "labels": {"x": "1"}}
        assert server.requests[-1].body == {"requirements": requirements}
        first = result.stdout.splitlines()[0]
        assert first == "2026-01-02 03:04:05Z  dispatched  b  tier 1"
        for told in ("WINDOW_CLOSED", "2026-01-02 22:00:00Z", "a is closed until 22:00.", "GROUP_WINDOW_CLOSED  b"):
            assert told in result.stdout
        assert "runs that wait in the group: 3; would start: 1; something else than now: 2" in result.stdout
        assert "run_3" not in result.stdout
        assert "run_3" in cli("group", "simulate", "g", "-o", "wide").stdout
        assert "SCORE" not in result.stdout
        assert "LOAD" not in result.stdout

    def test_another_time_a_job_a_draft(self, server: StandIn, cli: Cli, tmp_path: Path) -> None:
        draft = tmp_path / "draft.yaml"
        draft.write_text("comment: why\npolicy:\n  rank: weighted\n")
        at = "2026-03-08T02:30:00-05:00"
        result = cli("group", "simulate", "g", "--job", "j", "--at", at, "--policy", str(draft), "-o", "json")
        assert json.loads(result.stdout) == DECISION
        policy = {"timezone": "UTC", "members": PRESENT["members"], "policy": {"rank": "weighted"}, "comment": "why"}
        assert server.requests[-1].body == {"job": "j", "at": at, "policy": policy}
        assert cli("group", "simulate", "g", "-o", "name").stdout == "b\n"
        server.on("POST", "/cluster-groups/g/simulate", DECISION | {"chosen": None, "outcome": "waiting"})
        assert cli("group", "simulate", "g", "-o", "name").stdout == ""


EDIT = ("group", "policy", "edit", "g")


def _member(cluster: str, **fields: Any) -> Json:
    return {"cluster": cluster, **fields}


def _kept(stderr: str) -> str:
    return Path(stderr.rpartition("your text is kept in ")[2].strip().splitlines()[0]).read_text()
