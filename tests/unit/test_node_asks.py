"""What a node fetches from Muster: it waits for a service that restarts, and a failure leaves nothing behind."""

import asyncio
import hashlib
import io
import json
import logging
import resource
import threading
import zipfile
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace

import pytest
from ray._private.runtime_env.context import RuntimeEnvContext

from runtime_envs.node_plugin import ask, packages
from runtime_envs.node_plugin.ask import credentials_of
from runtime_envs.node_plugin.packages import fetch, package_folder
from runtime_envs.node_plugin.plugin import PackagePlugin
from runtime_envs.node_plugin.terms import NODE_ROOT, PACKAGE_KEY, TOKEN_PATH, Origin, PackageTerms, SetupError
from runtime_envs.node_plugin.terms import package_field as field_of

KEYS = {"data": {"key_id": "AK", "secret_key": "SK"}}
LOG = logging.getLogger(__name__)
LIMIT_BYTES = 2**22

Answer = Callable[[BaseHTTPRequestHandler], None]


def whole(body: bytes, status: int = 200, *, sent: int | None = None) -> Answer:
    """Cut off after `sent` bytes."""

    def answer(request: BaseHTTPRequestHandler) -> None:
        request.send_response(status)
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body[:sent])

    return answer


def problem(status: int, code: str, detail: str) -> Answer:
    return whole(json.dumps({"code": code, "detail": detail}).encode(), status)


def no_word(request: BaseHTTPRequestHandler) -> None:
    """The connection closes."""


class Service:
    """Muster's end: its answers in their order, the last one for good."""

    def __init__(self) -> None:
        self.answers: list[Answer] = [whole(json.dumps({"credentials": KEYS}).encode())]
        self.asked = 0
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                service.asked += 1
                (service.answers.pop(0) if len(service.answers) > 1 else service.answers[0])(self)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is the library's
                pass

        self._server = HTTPServer(("127.0.0.1", 0), Handler, bind_and_activate=False)
        self._server.server_bind()
        self.origin = Origin("run_1-a1", f"http://127.0.0.1:{self._server.server_address[1]}")
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    def start(self) -> None:
        self._server.server_activate()
        self._thread.start()

    def stop(self) -> None:
        if self._thread.is_alive():
            self._server.shutdown()
        self._server.server_close()


class Pauses:
    """In the place of the clock: nothing is waited for, and something may happen meanwhile."""

    def __init__(self) -> None:
        self.now = 0.0
        self.at_first: Callable[[], None] = lambda: None

    def sleep(self, seconds: float) -> None:
        if self.now == 0:
            self.at_first()
        self.now += seconds


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> Pauses:
    pauses = Pauses()
    monkeypatch.setattr(ask, "time", SimpleNamespace(sleep=pauses.sleep, monotonic=lambda: pauses.now))
    return pauses


@pytest.fixture
def unborn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    """Its port refuses until it is started."""
    (tmp_path / "token").write_text("t")
    monkeypatch.setenv(TOKEN_PATH, str(tmp_path / "token"))
    monkeypatch.setenv(NODE_ROOT, str(tmp_path / "node"))
    service = Service()
    yield service
    service.stop()


@pytest.fixture
def service(unborn: Service, pauses: Pauses) -> Service:
    del pauses
    unborn.start()
    return unborn


def a_zip(compression: int = zipfile.ZIP_STORED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as archive:
        archive.writestr("top/zeros", bytes(2 * LIMIT_BYTES))
    return file.getvalue()


def terms_of(data: bytes) -> PackageTerms:
    return PackageTerms(hashlib.sha256(data).hexdigest(), len(data))


class TestAsked:
    def test_waits_for_a_service_that_starts(self, unborn: Service, pauses: Pauses) -> None:
        pauses.at_first = unborn.start
        assert credentials_of(unborn.origin) == KEYS
        assert pauses.now > 0

    @pytest.mark.parametrize("first", [no_word, problem(503, "UNAVAILABLE", "Later."), whole(b"{}  ", sent=2)])
    def test_asks_again_what_another_try_may_mend(self, service: Service, first: Answer) -> None:
        service.answers.insert(0, first)
        assert credentials_of(service.origin) == KEYS
        assert service.asked == 2

    def test_is_patient_but_not_for_ever(self, unborn: Service, pauses: Pauses) -> None:
        with pytest.raises(SetupError, match="does not get what the run needs from Muster"):
            credentials_of(unborn.origin)
        assert 100 < pauses.now <= 120

    def test_a_long_answer_does_not_use_up_the_patience(self, service: Service, pauses: Pauses) -> None:
        def cut_after_long(request: BaseHTTPRequestHandler) -> None:
            pauses.now += 1000
            whole(b"{}  ", sent=2)(request)

        service.answers.insert(0, cut_after_long)
        assert credentials_of(service.origin) == KEYS

    @pytest.mark.parametrize(
        ("refusal", "words"),
        [
            (problem(401, "UNAUTHENTICATED", "Say\n\nwho."), r"needs: Say who\. \(UNAUTHENTICATED\)$"),
            (problem(404, "NOT_FOUND", "Gone."), r"needs: Gone\. \(NOT_FOUND\)$"),
            (whole(b"<html>", 404), "needs: HTTP 404$"),
            (whole(b'{"detail": []}', 403), "needs: HTTP 403$"),
            (whole(b"{}"), "is not Muster$"),
        ],
    )
    def test_takes_no_for_an_answer_and_says_why(self, service: Service, refusal: Answer, words: str) -> None:
        service.answers = [refusal]
        with pytest.raises(SetupError, match=words):
            credentials_of(service.origin)
        assert service.asked == 1


class TestFetch:
    def test_a_stream_that_was_cut_starts_over(self, service: Service) -> None:
        data = a_zip()
        service.answers = [whole(data, sent=len(data) // 2), whole(data)]
        assert fetch(service.origin, terms_of(data), LOG) == 2 * LIMIT_BYTES
        folder = Path(package_folder(terms_of(data).sha256))
        assert (folder / "top" / "zeros").stat().st_size == 2 * LIMIT_BYTES
        assert list(folder.parent.iterdir()) == [folder]

    def test_takes_the_place_of_what_was_left(self, service: Service) -> None:
        data = a_zip(zipfile.ZIP_DEFLATED)
        service.answers = [whole(data)]
        folder = Path(package_folder(terms_of(data).sha256))
        (folder / "left").mkdir(parents=True)
        fetch(service.origin, terms_of(data), LOG)
        assert list(folder.iterdir()) == [folder / "top"]
        assert list(folder.parent.iterdir()) == [folder]

    @pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
    def test_without_room_it_says_so_at_once_and_leaves_nothing(self, service: Service, compression: int) -> None:
        """While it is downloaded; while it is unpacked."""
        data = a_zip(compression)
        service.answers = [whole(data)]
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT_BYTES, limits[1]))
        try:
            with pytest.raises(SetupError, match=r"the package cannot be stored on this node: .*File too large"):
                fetch(service.origin, terms_of(data), LOG)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert list(Path(package_folder("0")).parent.iterdir()) == []
        assert service.asked == 1


class Node:
    """Its plugin, told about one package as Ray does."""

    def __init__(self, service: Service) -> None:
        data = a_zip(zipfile.ZIP_DEFLATED)
        service.answers = [whole(data)]
        terms = terms_of(data)
        self._plugin = PackagePlugin()
        self._env = {PACKAGE_KEY: field_of(service.origin, terms)}
        (self._uri,) = self._plugin.get_uris(self._env)

    async def create(self) -> float:
        return await self._plugin.create(self._uri, self._env, RuntimeEnvContext(), LOG)

    def delete(self) -> float:
        return self._plugin.delete_uri(self._uri, LOG)


class TestPackagePlugin:
    async def test_what_two_runs_fetch_together_is_counted_once(self, service: Service) -> None:
        node = Node(service)
        assert sorted(await asyncio.gather(node.create(), node.create())) == [0, 2 * LIMIT_BYTES]
        assert node.delete() == 2 * LIMIT_BYTES
        assert await node.create() == 2 * LIMIT_BYTES
        assert service.asked == 2

    async def test_what_is_held_stays_and_stays_counted(
        self, service: Service, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        node = Node(service)
        await node.create()
        with monkeypatch.context() as holding:
            holding.setattr(packages.system, "mounts_below", lambda folder: [f"{folder}/mounted"])
            assert node.delete() == 0
            assert await node.create() == 0  # after whatever the end would have done
        assert node.delete() == 2 * LIMIT_BYTES
        assert await node.create() == 2 * LIMIT_BYTES

    async def test_what_became_held_meanwhile_is_not_fetched_into_its_place(
        self, service: Service, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        node = Node(service)
        await node.create()
        with monkeypatch.context() as holding:
            assert node.delete() == 2 * LIMIT_BYTES
            holding.setattr(packages.system, "mounts_below", lambda folder: [f"{folder}/mounted"])
            await node.create()
        assert service.asked == 1
