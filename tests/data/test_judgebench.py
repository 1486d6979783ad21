"""Sets in the layout of JUDGE-BENCH, on records made up for each of its kinds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from debate_judge import data
from debate_judge.data.testing import check_corpus

GRADED = {"metric": "fluency", "category": "graded", "prompt": "Rate it. {{ instance }}", "worst": 1, "best": 5}
RANK = {"metric": "errors", "category": "graded", "prompt": "Count them.", "worst": 10, "best": 0}
YES = {"metric": "Missing Steps", "category": "categorical", "prompt": "Steps missing?", "labels_list": ["yes", "no"]}
TOXIC = {"metric": "toxicity", "category": "categorical", "prompt": "?", "labels_list": ["0", "1"], "best": "0"}
SAFE = {"metric": "safety", "category": "categorical", "prompt": "Safe?", "labels_list": ["No", "Yes", "Unsure"]}
KIND = {"metric": "type", "category": "categorical", "prompt": "?", "labels_list": ["a", "b", "c"]}
SECTIONS = "### Generated Summary\n\nA plough.\n\n### Source Article\n\nThe town of Elm has bought a plough."


def written(path: Path, metrics: list[dict[str, Any]], *instances: tuple[Any, dict[str, Any]]) -> str:
    rows = [
        {"id": n, "instance": text, "annotations": {name: scores(value) for name, value in given.items()}}
        for n, (text, given) in enumerate(instances)
    ]
    path.write_text(json.dumps({"dataset": "made up", "annotations": metrics, "instances": rows}))
    return f"judgebench={path}"


def scores(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {"individual_human_scores": value}


@pytest.mark.parametrize(
    ("metrics", "instances", "ratings"),
    [
        # Sentences, rated by several people (recipes, CoLA, Switchboard).
        ([GRADED], [("Salt it.", {"fluency": [2, 5]}), ("Boil it.", {"fluency": [1, 1]})], [(2.0, 5.0), (1.0, 1.0)]),
        # The best is the lower end (WMT's errors), and a mean alone.
        ([RANK], [("A.", {"errors": [0, 10]}), ("B.", {"errors": {"mean_human": 2.5}})], [(10.0, 0.0), (7.5,)]),
        # Two labels, as words and as numbers; the best one is 1 where it is said (ROSCOE, ToxicChat).
        ([YES], [("A.", {"Missing Steps": ["yes", "no"]}), ("B.", {"Missing Steps": ["no"]})], [(1.0, 0.0), (0.0,)]),
        ([TOXIC], [("A.", {"toxicity": {"majority_human": "1", "individual_human_scores": []}}),
                   ("B.", {"toxicity": ["0"]})], [(0.0,), (1.0,)]),
        # Who is unsure says nothing (DICES).
        ([SAFE], [({"user_prompt": "Hi?", "response": "Hello."}, {"safety": ["Yes", "Unsure", "No"]}),
                  ({"user_prompt": "Oh?", "response": "No."}, {"safety": ["No"]})], [(1.0, 0.0), (0.0,)]),
        # A metric of three labels is left out alone; names differ in case (medical safety, Topical-Chat).
        ([KIND, GRADED], [("A.", {"type": ["a"], "Fluency": [2]}), ("B.", {"type": ["c"], "Fluency": [5]})],
         [(2.0,), (5.0,)]),
    ],
)  # fmt: skip
def test_a_metric_is_an_aspect(
    tmp_path: Path, metrics: Any, instances: Any, ratings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    spec = written(tmp_path / "set.json", metrics, *instances)
    corpus = data.load(spec)
    check_corpus(corpus, data.load(spec))
    (aspect,) = corpus.task.aspects
    candidates = [candidate for group in corpus.groups for candidate in group.candidates]
    assert [candidate.ratings[aspect.name] for candidate in candidates] == ratings
    assert "{{" not in aspect.definition
    assert ("'type' is left out: 3 labels" in caplog.text) == (KIND in metrics)


def test_an_instance_is_a_text_beside_its_source(tmp_path: Path) -> None:
    summaries = [(SECTIONS, {"fluency": [2]}), (SECTIONS.replace("A plough", "Elm"), {"fluency": [5]})]
    (group,) = data.load(written(tmp_path / "set.json", [GRADED], *summaries)).groups
    assert (group.source, [c.text for c in group.candidates]) == (
        "The town of Elm has bought a plough.",
        ["A plough.", "Elm."],
    )
    replies = [({"facts": "Elm.", "dialogue": "Hi?", "response": "Hello."}, {"fluency": [2]})]
    (group,) = data.load(written(tmp_path / "set.json", [GRADED], *replies)).groups
    assert (group.source, group.candidates[0].text) == ("facts: Elm.\n\ndialogue: Hi?", "Hello.")


def test_two_outputs_and_a_verdict_are_a_pair(tmp_path: Path) -> None:
    pair = {"input": "Name a river.", "output_a": "The Ash.", "output_b": "Water."}
    metric = {"metric": "quality_single_turn", "category": "categorical", "labels_list": ["model_a", "model_b"]}
    spec = written(tmp_path / "set.json", [metric], (pair, {"quality": ["model_a"]}), (pair, {"quality": ["model_b"]}))
    groups = data.load(spec).groups
    assert [group.ratings("preference") for group in groups] == [[1.0, 0.0], [0.0, 1.0]]
