"""Volumes and mounts on the command line: which body the options become."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.cli_stand_in import Cli, Json, Reply, Request, StandIn, a_stand_in

VOLUME: Json = {"id": "vol_1", "name": "sets", "type": "s3", "source": {"bucket": "b", "path": "/"}, "credential": "k"}


@pytest.fixture
def sent() -> dict[str, Json]:
    return {}


@pytest.fixture
def server(sent: dict[str, Json]) -> Iterator[StandIn]:
    def keep(request: Request) -> Reply:
        sent[request.path] = request.body
        return Reply(status=201, body=VOLUME | request.body)

    with a_stand_in() as server:
        for path in ("/volumes", "/jobs", "/clusters"):
            server.on("POST", path, keep)
        server.on("GET", "/volumes", Reply(body={"items": [VOLUME], "next_cursor": None}))
        server.on("DELETE", "/volumes/sets", Reply(status=204))
        yield server


@pytest.fixture
def cli(server: StandIn, tmp_path: Path) -> Cli:
    return Cli(server, tmp_path)


def test_pairs_become_the_source(cli: Cli, sent: dict[str, Json]) -> None:
    options = ("--type", "s3", "--source", "bucket=b", "--source", "path=/a=b", "--credential", "k")
    result = cli("volume", "create", "sets", *options)
    assert result.exit_code == 0, result.stderr
    (body,) = sent.values()
    assert body == {"name": "sets", "type": "s3", "source": {"bucket": "b", "path": "/a=b"}, "credential": "k"}


def test_a_list_and_an_end(cli: Cli) -> None:
    assert "bucket=b,path=/" in cli("volume", "list").stdout
    assert cli("volume", "delete", "sets").exit_code == 0
    assert cli("volume", "edit", "sets").exit_code == 2


@pytest.mark.parametrize(
    ("noun", "field", "options"),
    [
        ("job", "mounts", ("--cluster", "lab", "--entrypoint", "true")),
        ("cluster", "volumes", ("--ray-address", "http://ray.example:8265")),
    ],
)
def test_mounts(cli: Cli, sent: dict[str, Json], noun: str, field: str, options: tuple[str, ...]) -> None:
    mounts = ("--mount", "volume=a,mount_path=/mnt/muster/a,read_only=true", "--mount", "volume=b,mount_path=/b")
    result = cli(noun, "create", "x", *options, *mounts)
    assert result.exit_code == 0, result.stderr
    (body,) = sent.values()
    assert body[field] == [
        {"volume": "a", "mount_path": "/mnt/muster/a", "read_only": True},
        {"volume": "b", "mount_path": "/b"},
    ]
