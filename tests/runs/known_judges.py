"""A judge whose scores are known, exported with its held-out scores, and LMs that score as it does or otherwise."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable
from contextlib import redirect_stdout
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import dspy
import pytest

from debate_judge.data.agreement.results import GroupScores
from debate_judge.data.calibration import Calibration
from debate_judge.data.schema import Corpus, RatedGroup, group_to_json
from debate_judge.programs import JUDGES, build
from debate_judge.programs.compiled import AspectJudge, CompiledJudge
from debate_judge.runs.export import loaded
from debate_judge.runs.export.folder import save
from debate_judge.runs.export.recorded import RECORDED, recorded_scores_json
from debate_judge.runs.flags.invocation import COMMANDS
from tests.fakes import debater, scripted_lm
from tests.runs.rated_corpora import COHERENCE, TASK, corpus, the_number

SEEN = 4
"""Sources of `RATED` that the judge was tuned on."""

RATED = corpus(*([1 + (g + i * (1 + g % 2)) % 5 for i in range(5)] for g in range(16)))
"""Every candidate's text begins with its rating."""


def shifted(prompt: str) -> str:
    return f"{float(the_number(prompt)) * 0.6 + 0.4:.2f}"


def lost(prompt: str) -> str:
    return str(1 + len(prompt) % 2)


def noisy(prompt: str) -> str:
    """A point off in some texts of every other source."""
    number = int(the_number(prompt))
    return str(number if number != 3 else 4)


LMS: dict[str, Callable[[str], str]] = {
    "scripted/old": the_number,
    "scripted/same": the_number,
    "scripted/shifted": shifted,
    "scripted/lost": lost,
    "scripted/noisy": noisy,
}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The specs of the LMs that were made, in order; one that is not in `LMS` is gone."""
    made: list[str] = []

    def make(spec: str, *, store: Any, concurrency: int, **rest: Any) -> Any:
        made.append(spec)
        if spec not in LMS:
            raise dspy.LMUnsupportedModelError(f"{spec} was retired")
        return scripted_lm(debater(score=LMS[spec]), store=store, concurrency=concurrency)

    monkeypatch.setattr(loaded, "make_lm", make)
    return made


def part(rated: Corpus, first: int, last: int) -> Corpus:
    return replace(rated, groups=rated.groups[first:last])


def scores_of(rated: Corpus, score: Callable[[float], float | None]) -> dict[str, list[GroupScores]]:
    """Scores that are functions of the rating."""
    groups = []
    for group in rated.groups:
        ratings = group.ratings(COHERENCE.name)
        scores = tuple(None if rating is None else score(rating) for rating in ratings)
        groups.append(GroupScores(group.id, tuple(c.id for c in group.candidates), tuple(ratings), scores))
    return {COHERENCE.name: groups}


def export(
    folder: Path, *, spec: str = "scripted/old", by: Any = "export", keeps: bool = True, kind: str = "debate"
) -> Path:
    """The judge that gives each text its rating, compiled on the first `SEEN` sources and measured on the others."""
    held_out = part(RATED, SEEN, len(RATED.groups))
    own = scores_of(held_out, lambda rating: rating)
    evidence: dict[str, Any] = {
        "exported": {"judge": "compiled", "why": "it is good"},
        "objective": {"statistic": "spearman", "level": "summary"},
        "data": {"name": "mine.jsonl", "location": "mine.jsonl", "revision": ""},
    }
    if keeps:
        seen = {group.source_id for group in RATED.groups[:SEEN]}
        evidence[RECORDED] = recorded_scores_json(held_out, own, own, scored_by=by, train_dev_sources=seen)
    judge = AspectJudge(build(kind, JUDGES["single"].config), calibration=Calibration(((1, 1), (5, 5)), 4, 20))
    compiled = CompiledJudge(TASK, {COHERENCE.name: judge})
    return save(folder, compiled, lm={"spec": spec}, evidence=evidence, name="mine")


def command(name: str, *arguments: object) -> tuple[int, dict[str, Any]]:
    """Exit code and JSON of a command of `runs.after`."""
    main, out = import_module(COMMANDS[name][0]).main, io.StringIO()
    with redirect_stdout(out):
        code: int = main([*map(str, arguments), "--json"])
    return code, json.loads(out.getvalue() or "{}")


def file_of(path: Path, groups: Iterable[RatedGroup]) -> str:
    path.write_text("".join(json.dumps({**group_to_json(g), "task": TASK.name}) + "\n" for g in groups))
    return str(path)
