"""MLflow's registries: prompts under a judge's name, and the alias `champion`, which has to be earned."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from debate_judge.data.agreement.results import GroupScores
from debate_judge.data.agreement.tables import compare
from debate_judge.runs.tracking.champion import ALIAS, SCORES_FILE, Challenger, challenge, from_json, to_json
from debate_judge.runs.tracking.contents import alias_of, prompt_name, prompts_of
from debate_judge.runs.tracking.tracker import Tracker
from tests.runs.foreign_runs import started

RATINGS = (1.0, 2.0, 3.0, 4.0)
NOISE = ((2, 1, 4, 3), (1, 3, 2, 4), (4, 3, 2, 1), (2, 4, 1, 3), (3, 1, 4, 2), (1, 2, 4, 3), (3, 4, 1, 2), (2, 3, 1, 4))

VERSUS = partial(compare, statistic="spearman", level="summary", resamples=200, seed=0)


def scores(orders: Sequence[Sequence[float]], ratings: Sequence[float] = RATINGS) -> dict[str, list[GroupScores]]:
    ids = ("a", "b", "c", "d")
    return {"clarity": [GroupScores(f"g{n}", ids, tuple(ratings), tuple(map(float, o))) for n, o in enumerate(orders)]}


WEAK, STRONG = scores(NOISE), scores([RATINGS] * len(NOISE))
NEARLY = scores([RATINGS, *NOISE[1:]])


@pytest.fixture(scope="module")
def tracker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tracker]:
    store = tmp_path_factory.mktemp("registry") / "store"
    with Tracker(uri=None, store=store, experiment="debate/registry", run_name="r") as opened:
        yield opened


def entered(tracker: Tracker, name: str, found: Any) -> str:
    """A version of a registered model whose run holds the scores; returns what came of the challenge."""
    place = tracker.tracking_store
    run_id = started(place, name, {})
    if found is not None:
        place.client.log_text(run_id, found if isinstance(found, str) else json.dumps(to_json(found)), SCORES_FILE)
    try:
        place.client.get_registered_model(name)
    except Exception:
        place.client.create_registered_model(name)
    version = place.client.create_model_version(name, "file:///nowhere", run_id, await_creation_for=0).version
    new = found if isinstance(found, dict) else STRONG
    return challenge(place, name, version, Challenger(new, VERSUS))


def champion(tracker: Tracker, name: str) -> str:
    return str(tracker.tracking_store.client.get_model_version_by_alias(name, ALIAS).version)


def test_the_first_version_is_the_champion_until_one_is_shown_to_be_better(tracker: Tracker) -> None:
    assert "there was none" in entered(tracker, "better", WEAK)
    assert champion(tracker, "better") == "1"
    told = entered(tracker, "better", STRONG)
    assert "version 2 of better" in told
    assert "version 2 minus version 1" in told
    assert champion(tracker, "better") == "2"


@pytest.mark.parametrize(
    ("name", "new", "reason"),
    [
        ("luck", NEARLY, "version 2 minus version 1"),
        ("other-ratings", scores([RATINGS] * len(NOISE), (1.0, 2.0, 3.0, 5.0)), "other sources or ratings"),
        ("fewer", scores([RATINGS] * 6), "other sources or ratings"),
    ],
)
def test_it_stays_where_nothing_better_is_shown(tracker: Tracker, name: str, new: Any, reason: str) -> None:
    entered(tracker, name, WEAK)
    told = entered(tracker, name, new)
    assert f"version 1 of {name} stays the champion: " in told
    assert reason in told
    assert champion(tracker, name) == "1"


@pytest.mark.parametrize(("name", "broken"), [("absent", None), ("broken", '{"clarity": [{"group": "g"}]}')])
def test_a_champion_whose_scores_cannot_be_read_stays(tracker: Tracker, name: str, broken: str | None) -> None:
    entered(tracker, name, broken)
    assert "not in its run" in entered(tracker, name, STRONG)
    assert champion(tracker, name) == "1"


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
    found = {a: client.get_prompt_version_by_alias(name, a) for a in ("one", "two-again", "three")}
    assert {alias: int(p.version) for alias, p in found.items()} == {"one": 1, "two-again": 1, "three": 2}
    assert found["three"].template == "Rate {{with}} care."
    assert found["one"].tags["run_id"] == tracker.run_id
    linked = json.loads(client.get_run(tracker.run_id).data.tags["mlflow.linkedPrompts"])
    assert linked == [{"name": name, "version": "2"}]
    assert client.load_prompt("debate-toy-task.clarity.critic", allow_missing=True) is None


def test_names_are_brought_into_the_form_that_mlflow_takes() -> None:
    assert prompt_name("debate-été.clarity & style.scorer") == "debate--t-.clarity-style.scorer"
    assert [alias_of(text) for text in ("latest", "v12", "  ", "my judge/1")] == [
        *("judge-latest", "judge-v12", "judge", "my-judge-1"),
    ]
