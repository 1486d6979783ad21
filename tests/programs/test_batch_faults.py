"""Batch jobs, lines and the service itself go wrong: every call ends, none is paid twice, no outage is a score."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import dspy
import pytest

from debate_judge.programs.judge import Unscored
from debate_judge.programs.lm.errors import ProviderDownError
from debate_judge.programs.make_lm import make_lm
from tests.batch_server import BatchServer
from tests.faulty_server import FaultyServer
from tests.programs.batches import HURRY, IMPATIENT, ONE_ROUND, judge, lm_at, resumed, scores
from tests.programs.faults import answer, expected, items

pytestmark = pytest.mark.integration

# --- what can go wrong with the doors ---


def once(fault: str, door: str) -> Callable[[str, str, int], str | None]:
    return lambda method, path, number: fault if number == 0 and f"{method} {path}".startswith(door) else None


@pytest.mark.parametrize("door", ["POST /files", "POST /batches", "GET /batches/", "GET /files/"])
@pytest.mark.parametrize("fault", ["500", "429", "garbage", "lost"])
def test_a_hiccup_at_any_door_makes_no_second_job(fault: str, door: str) -> None:
    work = items(20)
    with BatchServer(answer) as server:
        server.door = once(fault, door)
        judgements = judge(lm_at(server), work)
        assert server.made_calls == ONE_ROUND
    assert scores(judgements) == [expected(item) for item in work]


def test_a_wrong_key_ends_the_run_and_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-mine")
    with BatchServer(answer) as server:
        server.key = "sk-other"
        with pytest.raises(dspy.LMAuthError) as caught:
            judge(lm_at(server), items(3))
        assert server.requests["POST /files"] == 1
    assert "sk-mine" not in str(caught.value)


def test_a_server_without_batches_is_told() -> None:
    with FaultyServer(answer, lambda body, attempt: "500") as plain:
        lm = make_lm("openai/mock", api_base=plain.url, options=IMPATIENT)
        with pytest.raises(dspy.LMError):
            judge(lm, items(2))
    with BatchServer(answer) as server:
        lm = make_lm("openai/mock", api_base=server.url + "/nothing", options=HURRY)
        with pytest.raises(dspy.LMConfigurationError, match="no batch service"):
            judge(lm, items(2))


# --- what can go wrong with a line ---


@pytest.mark.parametrize("fault", ["500", "429", "status 0", "absent", "garbage", "expired"])
def test_calls_without_an_answer_are_asked_again(fault: str) -> None:
    work = items(20)
    with BatchServer(answer) as server:
        server.calls = lambda body, attempt: fault if attempt == 0 and b"Letter-7\\n" in body else None
        judgements = judge(lm_at(server), work)
        assert server.made_calls == {("scorer", "0"): 21, ("critic", "1"): 21, ("scorer", "1"): 11}
        # What was answered is not asked again.
        assert set(server.executed.values()) == {1}
    assert scores(judgements) == [expected(item) for item in work]


def test_a_job_without_any_good_line_has_only_a_file_of_errors() -> None:
    with BatchServer(answer) as server:
        server.calls = lambda body, attempt: "500" if attempt == 0 else None
        assert None not in scores(judge(lm_at(server), items(4), rounds=0))
        assert server.jobs["batch_0"]["output_file_id"] is None
        assert server.made_calls == {("scorer", "0"): 8}


@pytest.mark.parametrize(
    ("fault", "reason", "detail", "asked"),
    [
        ("500", "lm error", "HTTP 500", 3),
        ("expired", "lm error", "batch_expired", 3),
        ("absent", "lm error", "has no answer to this call", 3),
        ("400", "lm error", "HTTP 400", 1),
        ("long", "too long", "maximum context length", 1),
        ("filter", "refused", "", 1),
    ],
)
def test_a_call_that_always_fails_costs_its_item_only(fault: str, reason: str, detail: str, asked: int) -> None:
    work = items(20)
    with BatchServer(answer) as server:
        server.calls = lambda body, attempt: fault if b"Letter-7\\n" in body else None
        judgements = judge(lm_at(server), work)
        assert max(server.attempts.values()) == asked
    failed = judgements[7]
    assert isinstance(failed, Unscored)
    assert failed.reason == reason
    assert detail in failed.detail
    assert scores(judgements[:7] + judgements[8:]) == [expected(item) for item in work if item.group != "7"]


def test_stubborn_calls_alone_are_told_from_an_outage_by_a_direct_call_that_anybody_answers() -> None:
    with BatchServer(answer) as server:
        server.calls = lambda body, attempt: "500"
        lm = lm_at(server)
        assert scores(judge(lm, items(5), rounds=0)) == [None] * 5
        assert server.made_calls == {("scorer", "0"): 15}
        assert lm.meter.executed["probe"] == server.direct > 0


def test_an_outage_becomes_no_score() -> None:
    with BatchServer(answer) as server:
        server.calls = lambda body, attempt: "500"
        server.door = lambda method, path, number: "500" if path == "/chat/completions" else None
        with pytest.raises(ProviderDownError, match="3 batch jobs"):
            judge(lm_at(server), items(5), rounds=0)


@pytest.mark.parametrize(("fault", "kind"), [("401", dspy.LMAuthError), ("404", dspy.LMUnsupportedModelError)])
def test_a_line_that_concerns_all_ends_the_run_and_keeps_the_rest(
    fault: str, kind: type[dspy.LMError], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The key that the fake server quotes.
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    work = items(20)
    with BatchServer(answer) as server:
        server.calls = lambda body, attempt: fault if b"Letter-7\\n" in body else None
        with pytest.raises(kind) as caught:
            resumed(tmp_path, server, work)
        assert "sk-secret" not in str(caught.value)
        server.calls = lambda body, attempt: None
        assert scores(resumed(tmp_path, server, work)) == [expected(item) for item in work]
    assert set(server.executed.values()) == {1}


def test_a_truncated_reply_is_asked_once_more_with_more_room() -> None:
    with BatchServer(answer) as server:
        server.calls = lambda body, attempt: "length" if b'"max_tokens": 2000' in body else None
        judgements = judge(lm_at(server), items(4), rounds=0)
        assert server.made_calls == {("scorer", "0"): 8}
    assert None not in scores(judgements)


# --- what can go wrong with a job ---


@pytest.mark.parametrize("fate", ["expired", "cancelled"])
def test_what_an_interrupted_job_left_over_goes_into_another(fate: str) -> None:
    work = items(20)
    with BatchServer(answer) as server:
        server.job = lambda number: fate if number == 0 else None
        judgements = judge(lm_at(server), work)
        assert set(server.executed.values()) == {1}
        assert server.made_calls == {**ONE_ROUND, ("scorer", "0"): 20 + server.made[0][2] // 2}
    assert scores(judgements) == [expected(item) for item in work]


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("billing_hard_limit_reached", dspy.LMBillingError),
        ("invalid_model", dspy.LMUnsupportedModelError),
        ("something_new", dspy.LMConfigurationError),
    ],
)
def test_a_job_that_is_refused_tells_why(code: str, kind: type[dspy.LMError], tmp_path: Path) -> None:
    with BatchServer(answer) as server:
        server.job = lambda number: code
        with pytest.raises(kind, match=f"was refused: {code}: scripted"):
            resumed(tmp_path, server, items(3))
        server.job = lambda number: None
        assert None not in scores(resumed(tmp_path, server, items(3)))


def test_an_unknown_model_is_named_by_every_line() -> None:
    with BatchServer(answer) as server:
        server.models = {"another"}
        with pytest.raises(dspy.LMUnsupportedModelError, match="model_not_found"):
            judge(lm_at(server), items(3))


def test_a_full_queue_parts_the_jobs() -> None:
    work = items(40)
    with BatchServer(answer) as server:
        judge(lm_at(server), work[:1], rounds=0)
        server.queue = 5 * server.jobs["batch_0"]["size"] + 100
        server.jobs.clear()
        server.executed.clear()
        judgements = judge(lm_at(server), work, rounds=0)
        taken = [j for j in server.jobs.values() if j["status"] == "completed"]
        # Parted, though not call by call.
        assert 8 <= len(taken) <= len(server.jobs) < len(work)
        assert set(server.executed.values()) == {1}
    assert None not in scores(judgements)


def test_a_queue_that_others_fill_is_waited_for() -> None:
    with BatchServer(answer) as server:
        server.job = lambda number: "token_limit_exceeded" if number < 4 else None
        assert None not in scores(judge(lm_at(server), items(1), rounds=0))
        assert len(server.made) == 5
