"""Faults of batch jobs, lines and the service: every call ends, none is paid for twice, no outage becomes a score."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import dspy
import pytest

from debate_judge.programs.lm.errors import ProviderDownError
from debate_judge.programs.make_lm import make_lm
from tests.batch_server import BatchServer
from tests.faulty_server import FaultyServer
from tests.programs.batches import ONE_ROUND, SHORT_OUTAGE, SHORT_WAITS, judge, lm_at, resumed, scores
from tests.programs.faults import answer, expected, items

pytestmark = pytest.mark.integration

# --- faults of requests ---


def first_request(fault: str, endpoint: str) -> Callable[[str, str, int], str | None]:
    return lambda method, path, number: fault if number == 0 and f"{method} {path}".startswith(endpoint) else None


@pytest.mark.parametrize("endpoint", ["POST /files", "POST /batches", "GET /batches/", "GET /files/"])
@pytest.mark.parametrize("fault", ["500", "429", "garbage", "lost"])
def test_one_failed_request_creates_no_second_job(fault: str, endpoint: str) -> None:
    work = items(20)
    with BatchServer(answer) as server:
        server.on_request = first_request(fault, endpoint)
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


def test_a_server_without_a_batch_service_is_an_error() -> None:
    with FaultyServer(answer, lambda body, attempt: "500") as plain:
        lm = make_lm("openai/mock", api_base=plain.url, options=SHORT_OUTAGE)
        with pytest.raises(dspy.LMError):
            judge(lm, items(2))
    with BatchServer(answer) as server:
        lm = make_lm("openai/mock", api_base=server.url + "/nothing", options=SHORT_WAITS)
        with pytest.raises(dspy.LMConfigurationError, match="no batch service"):
            judge(lm, items(2))


# --- faults of lines ---


@pytest.mark.parametrize("fault", ["500", "429", "status 0", "absent", "garbage", "expired"])
def test_calls_without_an_answer_are_made_again(fault: str) -> None:
    work = items(20)
    with BatchServer(answer) as server:
        server.on_call = lambda body, attempt: fault if attempt == 0 and b"Letter-7\\n" in body else None
        judgements = judge(lm_at(server), work)
        assert server.made_calls == {("scorer", "0"): 21, ("critic", "1"): 21, ("scorer", "1"): 11}
        # What was answered is not asked again.
        assert set(server.executed.values()) == {1}
    assert scores(judgements) == [expected(item) for item in work]


def test_a_job_with_only_errors_is_retried() -> None:
    with BatchServer(answer) as server:
        server.on_call = lambda body, attempt: "500" if attempt == 0 else None
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
def test_a_call_that_always_fails_leaves_only_its_item_unscored(
    fault: str, reason: str, detail: str, asked: int
) -> None:
    work = items(20)
    with BatchServer(answer) as server:
        server.on_call = lambda body, attempt: fault if b"Letter-7\\n" in body else None
        judgements = judge(lm_at(server), work)
        assert max(server.attempts.values()) == asked
    failed = judgements[7]
    assert failed.reason == reason
    assert detail in failed.detail
    assert scores(judgements[:7] + judgements[8:]) == [expected(item) for item in work if item.group != "7"]


def test_a_probe_tells_failing_calls_from_an_outage() -> None:
    with BatchServer(answer) as server:
        server.on_call = lambda body, attempt: "500"
        lm = lm_at(server)
        assert scores(judge(lm, items(5), rounds=0)) == [None] * 5
        assert server.made_calls == {("scorer", "0"): 15}
        assert lm.meter.executed["probe"] == server.direct > 0


def test_an_outage_ends_the_run_and_is_not_a_score() -> None:
    with BatchServer(answer) as server:
        server.on_call = lambda body, attempt: "500"
        server.on_request = lambda method, path, number: "500" if path == "/chat/completions" else None
        with pytest.raises(ProviderDownError, match="3 batch jobs"):
            judge(lm_at(server), items(5), rounds=0)


@pytest.mark.parametrize(("fault", "kind"), [("401", dspy.LMAuthError), ("404", dspy.LMUnsupportedModelError)])
def test_an_error_that_affects_all_calls_ends_the_run_and_other_replies_are_stored(
    fault: str, kind: type[dspy.LMError], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The key that the fake server quotes.
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    work = items(20)
    with BatchServer(answer) as server:
        server.on_call = lambda body, attempt: fault if b"Letter-7\\n" in body else None
        with pytest.raises(kind) as caught:
            resumed(tmp_path, server, work)
        assert "sk-secret" not in str(caught.value)
        server.on_call = lambda body, attempt: None
        assert scores(resumed(tmp_path, server, work)) == [expected(item) for item in work]
    assert set(server.executed.values()) == {1}


def test_a_truncated_reply_is_requested_again_with_a_higher_limit() -> None:
    with BatchServer(answer) as server:
        server.on_call = lambda body, attempt: "length" if b'"max_tokens": 2000' in body else None
        judgements = judge(lm_at(server), items(4), rounds=0)
        assert server.made_calls == {("scorer", "0"): 8}
    assert None not in scores(judgements)


# --- faults of jobs ---


@pytest.mark.parametrize("fate", ["expired", "cancelled"])
def test_unanswered_calls_of_an_interrupted_job_go_into_another(fate: str) -> None:
    work = items(20)
    with BatchServer(answer) as server:
        server.on_job = lambda number: fate if number == 0 else None
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
def test_the_error_of_a_rejected_job_names_the_reason(code: str, kind: type[dspy.LMError], tmp_path: Path) -> None:
    with BatchServer(answer) as server:
        server.on_job = lambda number: code
        with pytest.raises(kind, match=f"was refused: {code}: scripted"):
            resumed(tmp_path, server, items(3))
        server.on_job = lambda number: None
        assert None not in scores(resumed(tmp_path, server, items(3)))


def test_an_unknown_model_ends_the_run() -> None:
    with BatchServer(answer) as server:
        server.models = {"another"}
        with pytest.raises(dspy.LMUnsupportedModelError, match="model_not_found"):
            judge(lm_at(server), items(3))


def test_a_full_queue_splits_the_jobs() -> None:
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


def test_a_run_waits_while_other_jobs_fill_the_queue() -> None:
    with BatchServer(answer) as server:
        server.on_job = lambda number: "token_limit_exceeded" if number < 4 else None
        assert None not in scores(judge(lm_at(server), items(1), rounds=0))
        assert len(server.made) == 5
