"""The Python client of Muster's REST API; the command line and the tests stand on it.

It knows no database, no Ray and no web framework, and takes and gives the JSON bodies of the API as they are.
"""

from typing import Any

Json = dict[str, Any]
"""A body of the API, as `api.md` fixes it."""
