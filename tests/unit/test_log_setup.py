"""The service's own log as text: whoever reads it on a terminal is not steered by what came from outside."""

import subprocess
import sys

PROGRAM = r"""
import logging, structlog
from api.log_setup import set_up_log
from api.settings import Settings

set_up_log(Settings())
evil = "\x1b[2J\x9b\u202e"
try:
    raise ValueError("boom " + evil)
except ValueError:
    structlog.get_logger().exception("failed", node=evil, nodes=[evil], run="run_1")
    logging.getLogger("library").exception("said %s", evil)
"""


def test_nothing_from_outside_steers_the_terminal() -> None:
    result = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    lines = result.stderr.splitlines()
    assert all(line.isprintable() for line in lines)
    evil = r"\x1b[2J\x9b\u202e"
    assert lines[0].split("failed")[1].split() == [f"node='{evil}'", f"nodes=['{evil}']", "run='run_1'"]
    assert lines.count(f"ValueError: boom {evil}") == 2
    assert any(line.endswith(f"library: said {evil}") for line in lines)
