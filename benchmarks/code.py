"""The code of every job that is measured, Muster's and Ray's alike."""

import io
import zipfile

FILES = {
    "hello.py": "print('hello')",
    "on_ray.py": "import ray; ray.init(logging_level='ERROR')",
}


def _pack() -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, text in FILES.items():
            archive.writestr(name, text)
    return packed.getvalue()


PACKAGE = _pack()
HELLO = "python3 hello.py"
ON_RAY = "python3 on_ray.py"
