"""The client's promise: what can be repeated safely is repeated, and nothing else is sent twice."""

from collections.abc import Iterator

import pytest

from api.client.errors import ApiError, ServerUnreachable
from api.client.http import Http
from api.client.muster import Muster
from api.client.resource import all_items
from api.client.sse import ServerEvent, read_events
from tests.unit.cli_stand_in import Drop, Reply, Request, StandIn, a_stand_in, problem


@pytest.fixture
def server() -> Iterator[StandIn]:
    with a_stand_in() as server:
        yield server


@pytest.fixture
def http(server: StandIn, monkeypatch: pytest.MonkeyPatch) -> Iterator[Http]:
    monkeypatch.setattr("api.client.http.RETRY_DELAYS_S", (0, 0, 0))
    http = Http(server.address, "secret")
    yield http
    http.close()


class LosesAnswers:
    """Does the request, and breaks the connection instead of answering, the first `times` times."""

    def __init__(self, times: int, then: Reply) -> None:
        self.times = times
        self.then = then

    def __call__(self, request: Request) -> Reply:
        del request
        if self.times:
            self.times -= 1
            raise Drop
        return self.then


class TestRepeating:
    def test_a_create_whose_answer_was_lost_is_sent_again_with_the_same_key(self, server: StandIn, http: Http) -> None:
        server.on("POST", "/jobs", LosesAnswers(2, Reply(status=201, body={"id": "job_1"})))
        assert http.post("/jobs", {"name": "x"}) == {"id": "job_1"}
        keys = [request.headers["idempotency-key"] for request in server.asked("POST", "/jobs")]
        assert len(keys) == 3
        assert len(set(keys)) == 1

    def test_each_create_has_its_own_key(self, server: StandIn, http: Http) -> None:
        server.on("POST", "/jobs", {"id": "job_1"})
        http.post("/jobs", {})
        http.post("/jobs", {})
        first, second = server.asked("POST", "/jobs")
        assert first.headers["idempotency-key"] != second.headers["idempotency-key"]

    def test_a_conditional_change_is_not_sent_again_and_says_that_it_may_be_done(
        self, server: StandIn, http: Http
    ) -> None:
        server.on("PATCH", "/jobs/x", LosesAnswers(1, Reply(body={})))
        with pytest.raises(ServerUnreachable) as caught:
            http.call("PATCH", "/jobs/x", body={"priority": 1}, etag='"1"')
        assert caught.value.answer_lost
        assert len(server.asked("PATCH", "/jobs/x")) == 1

    def test_a_delete_that_was_done_without_an_answer_is_done(self, server: StandIn, http: Http) -> None:
        server.on("DELETE", "/jobs/x", LosesAnswers(1, problem(404, "NOT_FOUND")))
        http.call("DELETE", "/jobs/x")
        server.on("DELETE", "/jobs/x", problem(404, "NOT_FOUND"))
        with pytest.raises(ApiError, match="NOT_FOUND"):
            http.call("DELETE", "/jobs/x")

    def test_a_busy_server_is_asked_again_and_then_believed(self, server: StandIn, http: Http) -> None:
        answers = iter([problem(503, "DATABASE_UNREACHABLE"), Reply(body={"id": "job_1"})])
        server.on("GET", "/jobs/x", lambda _request: next(answers))
        assert http.get("/jobs/x") == {"id": "job_1"}
        server.on("GET", "/jobs/x", problem(503, "DATABASE_UNREACHABLE"))
        with pytest.raises(ApiError) as caught:
            http.get("/jobs/x")
        assert (caught.value.code, caught.value.status) == ("DATABASE_UNREACHABLE", 503)

    def test_nobody_there(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("api.client.http.RETRY_DELAYS_S", (0,))
        with a_stand_in() as gone:
            address = gone.address
        http = Http(address)
        with pytest.raises(ServerUnreachable) as caught:
            http.post("/jobs", {})
        http.close()
        assert not caught.value.answer_lost


class TestAnswers:
    def test_a_problem_is_read_whole(self, server: StandIn, http: Http) -> None:
        errors = [{"pointer": "/name", "code": "TOO_LONG", "detail": "101 of 100"}]
        server.on("POST", "/jobs", problem(422, "VALIDATION_FAILED", errors=errors, advice="shorten", request_id="r-1"))
        with pytest.raises(ApiError) as caught:
            http.post("/jobs", {})
        error = caught.value
        assert (error.status, error.code, error.advice, error.request_id) == (
            422,
            "VALIDATION_FAILED",
            "shorten",
            "r-1",
        )
        assert [(finding.pointer, finding.code) for finding in error.errors] == [("/name", "TOO_LONG")]

    @pytest.mark.parametrize("status", [200, 404, 502])
    def test_somebody_else_at_the_address_is_told_as_such(self, server: StandIn, http: Http, status: int) -> None:
        server.on("GET", "/jobs", Reply(status=status, raw=b"<html>", headers={"Content-Type": "text/html"}))
        with pytest.raises(ApiError) as caught:
            http.get("/jobs")
        assert caught.value.code == f"HTTP_{status}"

    def test_a_name_is_one_piece_of_the_path(self, server: StandIn) -> None:
        server.on("GET", "/jobs/100% 日?", {"id": "job_1"})
        with Muster(server.address) as muster:
            assert muster.jobs.get("100% 日?") == {"id": "job_1"}
        assert server.requests[0].raw_path == "/jobs/100%25%20%E6%97%A5%3F"

    def test_token_and_language_are_sent(self, server: StandIn) -> None:
        server.on("GET", "/whoami", {"user": "li"})
        with Muster(server.address, "geheim", language="zh") as muster:
            muster.whoami()
        headers = server.requests[0].headers
        assert (headers["authorization"], headers["accept-language"]) == ("Bearer geheim", "zh")

    def test_all_pages_are_one_list(self, server: StandIn) -> None:
        pages = {None: ([{"id": "run_1"}, {"id": "run_2"}], "b"), "b": ([{"id": "run_3"}], None)}

        def page(request: Request) -> Reply:
            items, following = pages[request.query.get("cursor")]
            return Reply(body={"items": items, "next_cursor": following})

        server.on("GET", "/runs", page)
        with Muster(server.address) as muster:
            ids = [run["id"] for run in all_items(muster.runs.page, state="FAILED")]
        assert ids == ["run_1", "run_2", "run_3"]
        assert [request.query.get("state") for request in server.requests] == ["FAILED", "FAILED"]


class TestServerEvents:
    def test_events_are_the_same_however_the_bytes_are_cut(self) -> None:
        sent = ': hello\n\nevent: log\nid: 7\ndata: {"data": "日\u2028\u0085b"}\n\ndata: a\ndata: b\r\n\r\n'.encode()
        expected = [
            None,
            ServerEvent(name="log", data='{"data": "日\u2028\u0085b"}', id="7"),
            ServerEvent(name="message", data="a\nb", id="7"),
        ]
        for size in (1, 2, 3, 7, len(sent)):
            pieces = [sent[at : at + size] for at in range(0, len(sent), size)]
            assert list(read_events(pieces)) == expected
