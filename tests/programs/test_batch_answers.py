"""What a line of a batch job's files says about its call, and what a refused job says about itself."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Any

import dspy
import pytest
from openai.types import Batch

from debate_judge.programs.lm.batch.jobs import BatchJob
from debate_judge.programs.lm.batch.queue_quota import QueueQuota
from debate_judge.programs.lm.batch.results import BatchResults, read_file, refusal

JOB = BatchJob("token", "http://localhost/v1", "openai/m", "scorer", 0, ("a", "b", "c"), 300, 0.0, "batch_1")
GOOD = {"choices": [{"message": {"content": "fine"}, "finish_reason": "stop"}], "usage": {"prompt_tokens": 7}}


def line(key: str = "a", status: int | None = 200, body: Any = GOOD, error: Any = None) -> bytes:
    response = None if status is None else {"status_code": status, "request_id": "r", "body": body}
    return json.dumps({"id": "x", "custom_id": key, "response": response, "error": error}).encode()


def read(*lines: bytes) -> BatchResults:
    answers = BatchResults()
    read_file(b"\n".join(lines), JOB, answers)
    return answers


def test_a_good_line_is_a_reply() -> None:
    answers = read(line("b"), line("a"))
    assert set(answers.replies) == {"a", "b"}
    assert (answers.replies["a"].text, answers.replies["a"].input_tokens) == ("fine", 7)
    assert answers.given() == 2


def told(text: str, code: str | None = None) -> dict[str, Any]:
    return {"error": {"message": text, "code": code}}


@pytest.mark.parametrize(
    ("entry", "kind", "detail"),
    [
        (line(status=500, body=told("oops")), dspy.LMServerError, "HTTP 500"),
        (line(status=429, body=told("slow down")), dspy.LMRateLimitError, "slow down"),
        (line(status=429, body=told("x", "insufficient_quota")), dspy.LMBillingError, "insufficient_quota"),
        (line(status=400, body=told("bad")), dspy.LMInvalidRequestError, "bad"),
        (line(status=400, body=told("x", "context_length_exceeded")), dspy.ContextWindowExceededError, "context"),
        (line(status=401, body=told("key")), dspy.LMAuthError, "HTTP 401"),
        (line(status=404, body=told("no model")), dspy.LMUnsupportedModelError, "no model"),
        (line(status=None, error={"code": "batch_expired", "message": "late"}), dspy.LMServerError, "batch_expired"),
        (line(status=None), dspy.LMServerError, "no response"),
        (line(status=0, body=None), dspy.LMServerError, "not answered"),
        (line(body={"choices": []}), dspy.LMServerError, "not a chat completion"),
        (line(body=None), dspy.LMServerError, "not a chat completion"),
        (line(body="text"), dspy.LMServerError, "not a chat completion"),
    ],
)
def test_a_line_with_an_error_says_which(entry: bytes, kind: type[dspy.LMError], detail: str) -> None:
    answers = read(entry)
    assert not answers.replies
    assert type(answers.errors["a"]) is kind
    assert detail in str(answers.errors["a"])
    assert answers.given() == (not dspy.is_retryable_lm_error(answers.errors["a"]))


def test_a_withheld_reply_is_a_reply() -> None:
    assert read(line(status=400, body=told("x", "content_filter"))).replies["a"].finish == "content_filter"


@pytest.mark.parametrize("rubbish", [b"", b"<html>", b"[]", b"7", b'{"custom_id": 3}', b'{"custom_id": "z"}', b"{}"])
def test_lines_about_no_call_of_the_job_are_passed_over(rubbish: bytes) -> None:
    assert set(read(rubbish, line("c")).replies) == {"c"}


def test_of_two_lines_about_one_call_the_first_counts() -> None:
    answers = read(line("a"), line("a", status=500, body=told("again")))
    assert set(answers.replies) == {"a"}
    assert not answers.errors


def failed(*errors: tuple[str, int | None]) -> Batch:
    data = [{"code": code, "message": f"about {code}", "line": number} for code, number in errors]
    return Batch.model_validate(
        {
            "id": "batch_1",
            "completion_window": "24h",
            "created_at": 1,
            "endpoint": "/v1/chat/completions",
            "input_file_id": "f",
            "object": "batch",
            "status": "failed",
            "errors": {"object": "list", "data": data},
        }
    )


def test_lines_that_were_refused_are_told_from_the_others() -> None:
    why = refusal(failed(("invalid_request", 2), ("invalid_request", 99)), JOB)
    assert why.lines == {"b": "invalid_request: about invalid_request"}
    assert (why.error, why.queue_full) == (None, False)


def test_a_full_queue_is_nobodys_error() -> None:
    why = refusal(failed(("token_limit_exceeded", None)), JOB)
    assert (why.error, why.queue_full) == (None, True)


# --- how much may wait at the service ---


@dataclass(frozen=True)
class Sized:
    size: int


def sizes(room: QueueQuota, *calls: int, most_calls: int = 100, most_bytes: int = 1000) -> list[list[int]]:
    return [[c.size for c in part] for part in room.parts([Sized(n) for n in calls], most_calls, most_bytes)]


def test_calls_are_parted_by_number_and_size() -> None:
    room = QueueQuota(1.0)
    assert sizes(room, 1, 2, 3, 4, 5, most_calls=2) == [[1, 2], [3, 4], [5]]
    assert sizes(room, 400, 400, 400, 1200, 1, most_bytes=1000) == [[400, 400], [400], [1200], [1]]
    assert sizes(room) == []


def test_a_refusal_halves_the_room_until_only_waiting_is_left() -> None:
    room = QueueQuota(1.0)
    room.take(640)
    assert room.refused(640, 64) == 0.0
    assert sizes(room, *[10] * 64) == [[10] * 32, [10] * 32]
    room.leave(640)
    waits = []
    for _ in range(12):
        room.take(20)
        waits.append(room.refused(20, 2))
        room.leave(20)
    # Down to a 64th of what was refused first; then the waits grow, up to ten of the first.
    assert waits[:2] == [0.0, 1.0]
    assert sorted(waits) == waits
    assert waits[-1] == 10.0
    assert sizes(room, 10, 10) == [[10], [10]]


def test_jobs_that_go_well_make_room_again() -> None:
    room = QueueQuota(1.0)
    room.take(640)
    room.refused(640, 64)
    room.leave(640)
    for _ in range(8):
        room.went_well()
    assert sizes(room, *[10] * 64) == [[10] * 64]


def test_jobs_wait_for_room_in_turn_and_one_alone_always_goes() -> None:
    async def go() -> list[str]:
        room, order = QueueQuota(1.0), []
        room.take(100)
        room.refused(100, 10)

        async def enter(name: str, size: int) -> None:
            await room.enter(size)
            order.append(name)

        tasks = [asyncio.create_task(enter(n, s)) for n, s in (("large", 90), ("gone", 10), ("small", 10))]
        await asyncio.sleep(0)
        assert not order
        tasks[1].cancel()
        await asyncio.sleep(0)
        room.leave(100)
        await asyncio.sleep(0)
        assert order == ["large"]
        room.leave(90)
        await asyncio.gather(*tasks, return_exceptions=True)
        return order

    assert asyncio.run(go()) == ["large", "small"]
