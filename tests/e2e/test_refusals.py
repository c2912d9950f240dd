"""What a script can tell by the exit code alone (console-and-cli.md)."""

import pytest

from tests.e2e.support import Service

UNKNOWN = [
    ("job", "show", "nope"),
    ("run", "show", "run_nope"),
    ("run", "logs", "run_nope"),
    ("run", "submit", "nope"),
    ("cluster", "show", "nope"),
    ("cluster", "start", "nope"),
    ("group", "show", "nope"),
    ("package", "show", "pkg_nope"),
]


@pytest.mark.parametrize("command", UNKNOWN, ids=" ".join)
def test_unknown_names_are_3(service: Service, command: tuple[str, ...]) -> None:
    said = service.muster(*command)
    assert said.code == 3
    assert said.err.startswith("error: ")
    assert "nope" in said.err.splitlines()[0]


def test_a_bad_token_is_4(service: Service) -> None:
    said = service.muster("job", "list", MUSTER_TOKEN="mst_wrong")
    assert said.code == 4
    assert said.err.startswith("error: ")


def test_what_the_role_may_not_do_is_4(service: Service) -> None:
    token = service.done("token", "create", "reader", "--user", "bob", "--role", "viewer")
    assert service.muster("job", "list", MUSTER_TOKEN=token).code == 0
    said = service.muster("cluster", "create", "mine", "--head", "cpu=1,memory_gib=2", MUSTER_TOKEN=token)
    assert said.code == 4


def test_no_server_is_5(service: Service) -> None:
    said = service.muster("job", "list", MUSTER_ADDRESS="http://127.0.0.1:9")
    assert said.code == 5
    assert said.err.startswith("error: SERVER_UNREACHABLE: ")


def test_refused_content_is_2(service: Service) -> None:
    said = service.muster("job", "create", "half", "--cluster", "nowhere")
    assert said.code == 2
    assert "/package: PACKAGE_REQUIRED" in said.err
