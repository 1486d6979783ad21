"""The compare command: what it refuses, what it goes on with after a stop, and what others pay."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.fakes import debater
from tests.faulty_server import FaultyServer
from tests.runs.quick_compare import run, table

WITHOUT_PREFLIGHT = ["--config", "preflight=false"]


def test_published_figures_are_told_not_to_fit(rated: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(rated, tmp_path, "--judges", "rouge-l", "--config", "published=true") == 0
    assert "published figures" in capsys.readouterr().out


@pytest.mark.integration
def test_dollars_are_what_each_judge_would_pay_alone_and_repeats_are_really_sampled(
    rated: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    prices = tmp_path / "prices.toml"
    prices.write_text('["openai/m"]\ninput = 10\ncached = 1\noutput = 100\n')
    bodies = []

    def answer(body: bytes) -> str:
        bodies.append(json.loads(body))
        return debater(score="4")(bodies[-1]["messages"][-1]["content"])

    with FaultyServer(answer) as server:
        more = ["--lm", "openai/m", "--api-base", server.url, "--config", f"prices={prices}"]
        more += ["--judges", "single,debate,debate[rounds=0|3,sample=1|2|3]", *WITHOUT_PREFLIGHT]
        found = table(rated, tmp_path, *more)
        sent = server.requests
        assert table(rated, tmp_path, *more) == found
        assert server.requests == sent
    # A call has 60 fresh, 40 cached and 20 output tokens there; a debate is a Scorer and a content Critic.
    call = (60 * 10 + 40 * 1 + 20 * 100) / 1e6
    usd = {name: judge["usd_per_1000_items"] for name, judge in found["judges"].items()}
    assert (usd["single"], usd["debate"]) == (pytest.approx(1000 * call), pytest.approx(2000 * call))
    assert "2.64" in capsys.readouterr().out
    items = 3 * 4 * 2
    assert sent == 2 * items + 3 * 2 * items
    assert 4 * [body["temperature"] for body in bodies].count(1.0) == 3 * len(bodies)
    assert {"sample", "repeat"} & {name for body in bodies for name in body} == set()


@pytest.mark.integration
def test_a_comparison_that_stopped_goes_on_and_pays_no_call_twice(
    rated: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")

    def answer(body: bytes) -> str:
        return debater(score="4")(json.loads(body)["messages"][-1]["content"])

    with FaultyServer(answer) as server:
        more = ["--lm", "openai/m", "--api-base", server.url, "--judges", "single,debate,debate+tiebreak"]
        assert run(rated, tmp_path, *more, "--budget", "calls=17") == 3
        assert "budget" in capsys.readouterr().err
        assert server.requests == 17
        found = table(rated, tmp_path, *more)
        # The check before the run asks the Tie-breaker once, whom nobody needs here, as the Critic is content.
        assert 2 * 24 <= server.requests <= 2 * 24 + 1
    assert [judge["lm_calls_per_item"] for judge in found["judges"].values()] == [1, 2, 2]


@pytest.mark.integration
def test_a_judge_whose_roles_the_lm_cannot_play_leaves_the_others_their_rows(
    rated: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")

    def answer(body: bytes) -> str:
        prompt = json.loads(body)["messages"][-1]["content"]
        # This LM knows no evaluation steps.
        return "" if "[[ ## steps ## ]]" in prompt else debater(score="4")(prompt)

    with FaultyServer(answer) as server:
        more = ["--lm", "openai/m", "--api-base", server.url, "--judges"]
        found = table(rated, tmp_path, *more, "geval,single")
        assert list(found["judges"]) == ["single"]
        assert "cannot play the steps" in found["failed"]["geval"]
        printed = capsys.readouterr().out
        assert "geval has no row" in printed
        assert "the baseline geval" in printed
        # Without the check its items are asked about, and unscored.
        found = table(rated, tmp_path, *more, "geval,single", *WITHOUT_PREFLIGHT)
        assert sum(found["judges"]["geval"]["unscored"].values()) == 3 * 4 * 2
        assert "steps, round 0" in found["judges"]["geval"]["note"]
        assert "geval: scored nothing" in capsys.readouterr().out
        assert run(rated, tmp_path, *more, "geval") == 2
