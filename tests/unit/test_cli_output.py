"""What people see: tables that never wrap, bodies that are the API's own, logs that cannot steer a terminal."""

import json
import os
import pty
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from api.cli.ansi import EscapeFilter
from api.cli.archive import pack_folder
from api.cli.documents import parse_value, to_yaml
from api.cli.tables import cell_text, cells, column, cut, lay_out
from api.cli.texts import LANGUAGES, language_of
from tests.unit.cli_stand_in import Cli, Json, StandIn, a_stand_in

COLUMNS = (
    column("ID", "id"),
    column("NAME", "name", is_free=True),
    column("NOTE", "note", is_free=True),
    column("N", "n"),
)


@pytest.fixture
def server() -> Iterator[StandIn]:
    with a_stand_in() as server:
        yield server


@pytest.fixture
def cli(server: StandIn, tmp_path: Path) -> Cli:
    return Cli(server, tmp_path)


def a_job(name: str, number: int = 1, **more: Any) -> Json:
    return {
        "id": f"job_{number}",
        "name": name,
        "run_mode": "cluster",
        "cluster": "c1",
        "tags": {"team": "视觉"},
    } | more


class TestTable:
    @pytest.mark.parametrize("width", [24, 30, 40, 60, 80])
    def test_no_line_is_wider_than_the_terminal_and_ids_stay_whole(self, width: int) -> None:
        records: list[Json] = [
            {"id": "run_01ABCDEF", "name": "分布式训练任务" * 5, "note": "short", "n": 3},
            {"id": "run_01ABCDEG", "name": "e\u0301clair", "note": "é" * 50, "n": 12345},
        ]
        lines = lay_out(COLUMNS, records, width)
        assert max(cells(line) for line in lines) <= width
        assert all(record["id"] in line for record, line in zip(records, lines[1:], strict=True))

    def test_the_widest_free_text_is_cut_first(self) -> None:
        record = {"id": "run_1", "name": "a short name", "note": "n" * 60, "n": 1}
        (_, line) = lay_out(COLUMNS, [record], 50)
        assert "a short name" in line
        assert "n…  1" in line

    def test_without_a_width_nothing_is_cut(self) -> None:
        (_, line) = lay_out(COLUMNS, [{"id": "run_1", "name": "长" * 200, "note": None, "n": 1}], None)
        assert line == f"run_1  {'长' * 200}  -     1"

    def test_columns_stand_below_each_other_in_cells(self) -> None:
        lines = lay_out(COLUMNS, [{"name": "训练"}, {"name": "train"}], None)
        assert len({cells(line.split("-")[1]) for line in lines[1:]}) == 1

    @pytest.mark.parametrize(
        ("text", "width", "expected"),
        [
            ("日本語", 6, "日本語"),
            ("日本語", 5, "日本…"),
            ("日本語", 4, "日…"),
            ("abc", 2, "a…"),
            ("e\u0301e\u0301", 2, "e\u0301e\u0301"),
        ],
    )
    def test_wide_characters_are_cut_whole(self, text: str, width: int, expected: str) -> None:
        assert cut(text, width) == expected
        assert cells(expected) <= width

    @pytest.mark.parametrize(
        ("value", "expected"),
        [
            (None, "-"),
            (2.0, "2"),
            (True, "yes"),
            ({"a": 1, "b": [1, 2]}, "a=1,b=1,2"),
            ("2026-01-02T03:04:05.678901Z", "2026-01-02 03:04:05Z"),
            ("a\x1b[2Jb\nc\u202e", "a [2Jb c "),
        ],
    )
    def test_a_cell_is_one_harmless_line(self, value: object, expected: str) -> None:
        assert cell_text(value) == expected

    def test_on_a_terminal_a_list_fits_it(self, server: StandIn, cli: Cli) -> None:
        server.on("GET", "/jobs", {"items": [a_job("训练" * 40), a_job("b", 2)], "next_cursor": None})
        env = {name: value for name, value in cli.env.items() if value is not None} | {"COLUMNS": "100"}
        screen = _on_terminal(["job", "list"], env)
        lines = [line for line in screen.splitlines() if line]
        assert len(lines) == 3
        assert max(cells(line) for line in lines) <= 100
        assert "…" in lines[1]


class TestFormats:
    PAGE: Json = {"items": [a_job("one"), a_job("two words", 2)], "next_cursor": "abc"}  # noqa: RUF012

    @pytest.fixture(autouse=True)
    def jobs(self, server: StandIn) -> None:
        server.on("GET", "/jobs", self.PAGE)
        server.on("GET", "/jobs/one", self.PAGE["items"][0])

    def test_json_and_yaml_are_the_body_of_the_api(self, cli: Cli) -> None:
        assert json.loads(cli("job", "list", "-o", "json").stdout) == self.PAGE
        assert yaml.safe_load(cli("job", "list", "-o", "yaml").stdout) == self.PAGE
        assert json.loads(cli("job", "show", "one", "-o", "json").stdout) == self.PAGE["items"][0]

    def test_jsonl_is_an_item_a_line(self, cli: Cli) -> None:
        lines = cli("job", "list", "-o", "jsonl").stdout.splitlines()
        assert [json.loads(line) for line in lines] == self.PAGE["items"]

    def test_name_is_what_commands_take(self, cli: Cli) -> None:
        assert cli("job", "list", "-o", "name").stdout == "one\ntwo words\n"

    def test_wide_shows_more_than_table(self, cli: Cli) -> None:
        table, wide = (cli("job", "list", "-o", form).stdout.splitlines()[0].split() for form in ("table", "wide"))
        assert set(table) < set(wide)

    def test_more_pages_are_told_beside_the_result(self, cli: Cli) -> None:
        result = cli("job", "list", "-o", "json")
        assert "--cursor abc" in result.stderr
        assert "--cursor" not in result.stdout

    def test_details_show_lists_as_tables(self, server: StandIn, cli: Cli) -> None:
        head = {"cpu": 2.0, "memory_gib": 4.0}
        workers = [{"name": "w1", "cpu": 1}, {"name": "w2", "cpu": 4}]
        server.on("GET", "/clusters/c1", {"name": "c1", "head": head, "worker_groups": workers, "nodes": []})
        out = cli("cluster", "show", "c1").stdout
        assert "head.cpu         2\n" in out
        assert "worker_groups\nNAME  CPU\nw1    1\nw2    4\n" in out

    def test_a_job_of_the_ray_endpoint_is_told_by_its_senders_name(self, server: StandIn, cli: Cli) -> None:
        runs = [{"id": "run_1", "job": "job_01m8", "ray_submission_id": "night-7"}, {"id": "run_2", "job": "demo"}]
        server.on("GET", "/runs", {"items": runs, "next_cursor": None})
        assert [line.split()[1] for line in cli("run", "list").stdout.splitlines()] == ["JOB", "night-7", "demo"]

    def test_a_cordoned_cluster_is_marked(self, server: StandIn, cli: Cli) -> None:
        items = [{"name": name, "state": "RUNNING", "cordoned": name == "shut"} for name in ("open", "shut")]
        server.on("GET", "/clusters", {"items": items, "next_cursor": None})
        _, *lines = cli("cluster", "list").stdout.splitlines()
        assert ["RUNNING, cordoned" in line for line in lines] == [False, True]
        assert all("RUNNING" in line for line in lines)

    def test_no_colours_without_a_terminal(self, server: StandIn, cli: Cli) -> None:
        server.on("GET", "/runs", {"items": [{"id": "run_1", "state": "FAILED"}], "next_cursor": None})
        assert "\x1b" not in cli("run", "list").stdout

    def test_colours_on_a_terminal_unless_refused(self, server: StandIn, cli: Cli) -> None:
        server.on("GET", "/runs", {"items": [{"id": "run_1", "state": "FAILED"}], "next_cursor": None})
        env = {name: value for name, value in cli.env.items() if value is not None} | {"COLUMNS": "200"}
        assert "\x1b[31mFAILED" in _on_terminal(["run", "list"], env)
        assert "\x1b" not in _on_terminal(["run", "list", "--no-color"], env)
        assert "\x1b" not in _on_terminal(["run", "list"], env | {"NO_COLOR": "anything"})


class TestEscapes:
    LOG = "a\x1b[31mred\x1b[0m \x1b[2J\x1b]0;title\x07\x1b]8;;http://x\x1b\\link\x1b(B\x9b5A 日志\n"

    @pytest.mark.parametrize(
        ("colours", "expected"), [(True, "a\x1b[31mred\x1b[0m link5A 日志\n"), (False, "ared link5A 日志\n")]
    )
    def test_only_colours_pass_however_the_text_is_cut(self, colours: bool, expected: str) -> None:
        for size in range(1, len(self.LOG) + 1):
            escapes = EscapeFilter(colours=colours)
            pieces = [self.LOG[at : at + size] for at in range(0, len(self.LOG), size)]
            assert "".join(map(escapes.feed, pieces)) == expected

    def test_an_escape_that_is_never_closed_does_not_swallow_the_log(self) -> None:
        escapes = EscapeFilter(colours=False)
        text = "\x1b]0;" + "x" * 5000
        assert len(escapes.feed(text)) + len(escapes.feed("more\n")) > 5000


class TestDocuments:
    def test_words_that_old_yaml_takes_for_something_else(self) -> None:
        text = (
            "on: [lost]\nstart: 22:00\nyes: no\nat: 2026-01-02\nversion: 1.20\nzip: 007\nn: 3\nempty: null\nok: true\n"
        )
        assert parse_value(text) == {
            "on": ["lost"],
            "start": "22:00",
            "yes": "no",
            "at": "2026-01-02",
            "version": 1.2,
            "zip": "007",
            "n": 3,
            "empty": None,
            "ok": True,
        }

    def test_what_yaml_may_be_written_as(self) -> None:
        text = "[True, FALSE, Null, NULL, ~, +5, 1e3, 2E-1, .5, -1., 0x1f, 0o17, 1e, truE, nULL, 0x, .]"
        words = ["1e", "truE", "nULL", "0x", "."]
        assert parse_value(text) == [True, False, None, None, None, 5, 1000.0, 0.2, 0.5, -1.0, 31, 15, *words]

    def test_what_is_written_is_read_again_as_it_was(self) -> None:
        texts = [
            "on",
            "22:00",
            "1e3",
            "1.5e3",
            "007",
            "0x1f",
            "0o17",
            "+5",
            ".5",
            "2E-1",
            "null",
            "Null",
            "FALSE",
            "~",
            "true",
            "a: b",
            "# c",
            "多行\n文本\n",
            "1_0",
            "",
        ]
        body = {"texts": texts, "numbers": [1, -2, 0.5, 1e20], "on": {"none": None, "yes": True}}
        assert parse_value(to_yaml(body)) == body

    def test_json_is_json(self) -> None:
        assert parse_value('{"a": 1e3, "b": "x"}') == {"a": 1000.0, "b": "x"}

    @pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity"])
    def test_a_word_for_what_is_no_number_stays_a_word(self, word: str) -> None:
        assert parse_value(word) == word

    def test_nothing_else_than_plain_values_can_be_made(self) -> None:
        with pytest.raises(yaml.YAMLError):
            parse_value("!!python/object/apply:os.system ['true']")


class TestArchive:
    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        folder = tmp_path / "project"
        for name in ("main.py", "lib/a.py", "lib/__pycache__/a.pyc", ".git/config", ".venv/bin/python"):
            file = folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(name)
        (folder / "run.sh").write_text("echo")
        (folder / "run.sh").chmod(0o700)
        (folder / "link").symlink_to("/etc")
        os.mkfifo(folder / "pipe")
        return folder

    def test_what_is_in_and_what_is_left_out(self, folder: Path, tmp_path: Path) -> None:
        packed = pack_folder(folder, tmp_path / "a.zip")
        with zipfile.ZipFile(tmp_path / "a.zip") as archive:
            assert archive.namelist() == ["main.py", "run.sh", "lib/a.py"]
            assert archive.getinfo("run.sh").external_attr >> 16 & 0o777 == 0o755
        assert packed.count == 3
        assert packed.left_out == (".git", ".venv", "lib/__pycache__", "link", "pipe")

    def test_the_same_content_is_the_same_package(self, folder: Path, tmp_path: Path) -> None:
        pack_folder(folder, tmp_path / "a.zip")
        for file in folder.rglob("*.py"):
            os.utime(file, (0, 10**9))
        pack_folder(folder, tmp_path / "b.zip")
        assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()


class TestTexts:
    def test_both_languages_say_the_same_things(self) -> None:
        english, chinese = LANGUAGES["en"], LANGUAGES["zh"]
        assert english.keys() == chinese.keys()
        for key, text in english.items():
            assert _placeholders(text) == _placeholders(chinese[key]), key

    @pytest.mark.parametrize(
        ("locale", "language"), [("zh_CN.UTF-8", "zh"), ("C", "en"), ("de_DE", "en"), (None, "en")]
    )
    def test_the_language_follows_the_locale(self, locale: str | None, language: str) -> None:
        assert language_of(locale) == language


def _placeholders(text: str) -> set[str]:
    return {part.split("}")[0] for part in text.split("{")[1:]}


def _on_terminal(args: list[str], env: dict[str, str]) -> str:
    """What a terminal would get."""
    main_end, program_end = pty.openpty()
    command = [sys.executable, "-c", "from api.cli.main import main; main()", *args]
    with subprocess.Popen(command, stdout=program_end, stderr=subprocess.PIPE, env=env) as process:
        os.close(program_end)
        screen = b""
        while piece := _read(main_end):
            screen += piece
        assert process.stderr
        assert process.stderr.read() == b""
    os.close(main_end)
    return screen.decode()


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 2**16)
    except OSError:  # how Linux tells that the other end was closed
        return b""
