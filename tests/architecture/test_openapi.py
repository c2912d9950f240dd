"""The committed description of the API is that of the application."""

import json

from api.openapi import FILE, describe


def test_openapi_json_is_up_to_date() -> None:
    assert json.loads(FILE.read_text("utf-8")) == describe(), "run `make openapi`"
