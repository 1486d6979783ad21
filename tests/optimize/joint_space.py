"""Two aspects, some of whose judges do better with both in a call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from debate_judge.data.schema import Aspect, Candidate, Corpus, Origin, RatedGroup, Scale, Task
from debate_judge.optimize.search.choice_scores import ChoiceScores
from debate_judge.optimize.search.knowledge import Knowledge, VariantJudges
from debate_judge.optimize.search.points import SearchSpace
from debate_judge.programs.debate.judge import Debate
from debate_judge.programs.debate.personas import ADVOCATE
from debate_judge.programs.judge import DebateConfig
from debate_judge.runs.runner.runner import JudgeRunner
from tests.fakes import section

CLEAR, WARM = Aspect("clear", "Is it clear?", Scale(1, 5)), Aspect("warm", "Is it warm?", Scale(1, 5))
CORPUS = Corpus(
    Task("t", "article", "summary", (CLEAR, WARM)),
    tuple(
        RatedGroup(
            f"g{i}",
            f"Source {i}.",
            tuple(
                Candidate(f"c{j}", f"Worth {(i + j) % 4 + 1}.", {"clear": ((i + j) % 4 + 1.0,), "warm": (4.0 - j,)})
                for j in range(4)
            ),
        )
        for i in range(6)
    ),
    Origin("test", "nowhere"),
)
SPACE = SearchSpace(("none",), ("strict",), (0,), (False,), readings=("side by side", "alone"), joint=True)
BASE = Debate(ADVOCATE, DebateConfig(0), together=8)


def true_rating(prompt: str, text: str, aspect: str) -> float:
    """What the raters gave."""
    worth = int(text.removeprefix("Worth ").rstrip("."))
    source = int(section(prompt, "source").removeprefix("Source ").rstrip("."))
    return float(worth) if _aspect(prompt, aspect) == "clear" else 4.0 - (worth - 1 - source) % 4


def _aspect(prompt: str, label: str) -> str:
    return label or section(prompt, "aspect").partition(" (")[0]


def units(
    runner: JudgeRunner, space: SearchSpace = SPACE, kinds: Mapping[str, Sequence[Knowledge]] | None = None,
    base: Debate = BASE, train: Sequence[int] = (),
) -> dict[str, ChoiceScores]:  # fmt: skip
    dev = tuple(group for i, group in enumerate(CORPUS.groups) if i not in train)
    parts: Any = {
        "dev": replace(CORPUS, groups=dev),
        "train": replace(CORPUS, groups=[CORPUS.groups[i] for i in train]),
    }
    made = {
        aspect.name: ChoiceScores(
            VariantJudges({"strict": base}, (kinds or {}).get(aspect.name, ()), space),
            parts,
            (aspect,),
            runner,
            label=aspect.name,
            fixed_granularities={},
        )
        for aspect in CORPUS.task.aspects
    }
    for one in made.values():
        one.share_calls(made.values())
    return made
