"""MLflow's registries: prompts under a judge's name, and the alias `champion`, which has to be earned."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from debate_judge.data.agreement.results import GroupScores
from debate_judge.runs.tracking.champion import ALIAS, SCORES_FILE, Challenger, challenge, from_json, to_json
from debate_judge.runs.tracking.contents import alias_of, prompt_name, prompts_of
from debate_judge.runs.tracking.tracker import Tracker
from tests.runs.foreign_runs import started
from tests.runs.registered_models import paired_difference

RATINGS = (1.0, 2.0, 3.0, 4.0)
NOISE = ((2, 1, 4, 3), (1, 3, 2, 4), (4, 3, 2, 1), (2, 4, 1, 3), (3, 1, 4, 2), (1, 2, 4, 3), (3, 4, 1, 2), (2, 3, 1, 4))


def scores(orders: Sequence[Sequence[float]], ratings: Sequence[float] = RATINGS) -> dict[str, list[GroupScores]]:
    ids = ("a", "b", "c", "d")
    return {"clarity": [GroupScores(f"g{n}", ids, tuple(ratings), tuple(map(float, o))) for n, o in enumerate(orders)]}


WEAK, STRONG = scores(NOISE), scores([RATINGS] * len(NOISE))


@pytest.fixture(scope="module")
def tracker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tracker]:
    store = tmp_path_factory.mktemp("registry") / "store"
    with Tracker(uri=None, store=store, experiment="debate/registry", run_name="r") as opened:
        yield opened


def challenged(tracker: Tracker, name: str, held_out: Any) -> tuple[str, str]:
    """Register a version whose run holds these scores; returns what came of the challenge, and the champion."""
    place = tracker.tracking_store
    run_id = started(place, name)
    if held_out is not None:
        text = held_out if isinstance(held_out, str) else json.dumps(to_json(held_out))
        place.client.log_text(run_id, text, SCORES_FILE)
    if not place.client.search_registered_models(f"name = '{name}'"):
        place.client.create_registered_model(name)
    version = place.client.create_model_version(name, "file:///nowhere", run_id, await_creation_for=0).version
    own = held_out if isinstance(held_out, dict) else STRONG
    decision = challenge(place, name, version, Challenger(own, paired_difference))
    return decision, str(place.client.get_model_version_by_alias(name, ALIAS).version)


@pytest.mark.parametrize(
    ("name", "first", "second", "champion", "reason"),
    [
        ("better", WEAK, STRONG, "2", "version 2 minus version 1"),
        ("luck", WEAK, scores([RATINGS, *NOISE[1:]]), "1", "version 2 minus version 1"),
        ("other-ratings", WEAK, scores([RATINGS] * len(NOISE), (1.0, 2.0, 3.0, 5.0)), "1", "other sources or ratings"),
        ("fewer", WEAK, scores([RATINGS] * 6), "1", "other sources or ratings"),
        ("absent", None, STRONG, "1", "not in its run"),
        ("broken", '{"clarity": [{"group": "g"}]}', STRONG, "1", "not in its run"),
    ],
)
def test_the_first_version_is_the_champion_until_one_is_shown_to_be_better(
    tracker: Tracker, name: str, first: Any, second: Any, champion: str, reason: str
) -> None:
    decision, alias = challenged(tracker, name, first)
    assert ("there was none" in decision, alias) == (True, "1")
    decision, alias = challenged(tracker, name, second)
    assert decision.startswith(f"version {champion} of {name} {'is' if champion == '2' else 'stays'} the champion")
    assert reason in decision
    assert alias == champion


def test_scores_survive_being_written_and_nothing_else_is_read_as_them() -> None:
    gaps = {"clarity": [GroupScores("g", ("a", "b"), (1.0, None), (None, 2.5))]}
    assert from_json(json.dumps(to_json(gaps))) == gaps
    short = {"group": "g", "candidates": ["a"], "ratings": [1], "scores": []}
    for broken in ("[]", "{", json.dumps({"clarity": [short]}), '{"clarity": [3]}'):
        with pytest.raises(ValueError, match="validation error"):
            from_json(broken)


def test_a_prompt_has_a_version_a_wording_and_the_judges_name_as_alias(tmp_path: Path) -> None:
    with Tracker(uri=None, store=tmp_path / "store", experiment="debate/prompts", run_name="r") as tracker:
        for judge, text in (("one", "Rate."), ("two, again", "Rate."), ("three", "Rate {{with}} care.")):
            tracker.log_prompts(judge, prompts_of("debate-toy task", {"clarity": {"scorer": text, "critic": ""}}))
    client = tracker.tracking_store.client
    name = "debate-toy-task.clarity.scorer"
    versions = {a: client.get_prompt_version_by_alias(name, a) for a in ("one", "two-again", "three")}
    assert {alias: int(p.version) for alias, p in versions.items()} == {"one": 1, "two-again": 1, "three": 2}
    assert versions["three"].template == "Rate {{with}} care."
    assert versions["one"].tags["run_id"] == tracker.run_id
    linked = json.loads(client.get_run(tracker.run_id).data.tags["mlflow.linkedPrompts"])
    assert linked == [{"name": name, "version": "2"}]
    assert client.load_prompt("debate-toy-task.clarity.critic", allow_missing=True) is None


def test_names_are_brought_into_the_form_that_mlflow_takes() -> None:
    assert prompt_name("debate-été.clarity & style.scorer") == "debate--t-.clarity-style.scorer"
    assert [alias_of(text) for text in ("latest", "v12", "  ", "my judge/1")] == [
        *("judge-latest", "judge-v12", "judge", "my-judge-1"),
    ]
