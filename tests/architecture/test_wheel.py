"""What is installed has all that the service reads at run time, not only its modules."""

import subprocess
import sys
import zipfile
from pathlib import Path

from tests.architecture.source import ROOT

DATA = ("api/openapi.json", "api/migrations/script.py.mako")


def test_the_wheel_is_complete(tmp_path: Path) -> None:
    build = "from hatchling.build import build_wheel; import sys; build_wheel(sys.argv[1])"
    subprocess.run([sys.executable, "-c", build, tmp_path], cwd=ROOT, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    texts = {path.relative_to(ROOT).as_posix() for path in (ROOT / "api" / "texts").glob("*.json")}
    versions = {path.relative_to(ROOT).as_posix() for path in (ROOT / "api" / "migrations" / "versions").glob("*.py")}
    assert {*DATA, *texts, *versions} <= names
    assert not [name for name in names if name.startswith(("tests/", "docs/", "benchmarks/"))]
