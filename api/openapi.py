"""The description of the API in `api/openapi.json`, from which clients are made; `make openapi` writes it."""

import json
import tempfile
from pathlib import Path
from typing import Any

from api.app import create_app
from api.settings import Settings
from api.wiring import wire

FILE = Path(__file__).with_name("openapi.json")


def describe() -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        return create_app(wire(Settings(state_dir=Path(folder)))).openapi()


if __name__ == "__main__":
    FILE.write_text(json.dumps(describe(), indent=1, ensure_ascii=False, sort_keys=True) + "\n", "utf-8")
