"""The link to a dashboard, printed and opened."""

from pathlib import Path

import click
import pytest

from tests.unit.cli_stand_in import Cli, Reply, a_stand_in


def test_it_is_below_the_address_of_the_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr(click, "launch", opened.append)
    with a_stand_in() as server:
        path = "/api/v1/clusters/lab/dashboard/?ticket=t"
        server.on("POST", "/clusters/lab/dashboard-tickets", Reply(status=201, body={"path": path}))
        cli = Cli(server, tmp_path)
        printed = cli("cluster", "dashboard", "lab")
        assert (printed.exit_code, opened) == (0, [])
        link = printed.stdout.strip()
        assert link.startswith("http://127.0.0.1:")
        assert link.endswith(path)
        assert cli("cluster", "dashboard", "lab", "--web").exit_code == 0
        assert opened == [link]
