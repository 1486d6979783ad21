"""What benchmarks share: arguments, rated sets as populations, and figures as rows of a table and of a JSON file."""

from __future__ import annotations

import json
import os
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from numpy.typing import NDArray

from debate_judge import data
from debate_judge.data.agreement.figures import GroupScores
from debate_judge.data.schema import Aspect, Scale, Task
from debate_judge.programs import JUDGES, build
from debate_judge.programs.judge import AspectJudge, CompiledJudge
from debate_judge.programs.lm.replies import SqlStore
from debate_judge.programs.make_lm import OFFLINE, make_lm
from debate_judge.runs.export import save
from debate_judge.runs.reports.tables import DataTable, show
from debate_judge.runs.runner import JudgeRunner

ROOT = Path(__file__).parents[2]
Floats = NDArray[np.float64]
Row = Mapping[str, object]
"""Name of a column -> figure."""

TASK = Task("summarization", "news article", "summary", (Aspect("consistency", "Are the claims true?", Scale(1, 5)),))
"""Of benchmarks whose texts are made up."""

ENVIRONMENT = {**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "true", "OPENAI_API_KEY": "unused"}
"""Of the commands that a benchmark starts: without it LiteLLM would fetch a price list first."""


def parser_of(description: str | None, *, of_data: bool = True, **numbers: float) -> ArgumentParser:
    """The arguments of nearly every benchmark, and its numbers with their defaults."""
    parser = ArgumentParser(description=description, formatter_class=RawDescriptionHelpFormatter)
    if of_data:
        parser.add_argument("--data", action="append", default=[], metavar="NAME[=PATH]", help="a set; repeatable")
    for name, default in numbers.items():
        parser.add_argument(f"--{name}", type=type(default), default=default, help="(default: %(default)s)")
    parser.add_argument("--json", metavar="FILE", help="also write the figures here")
    return parser


def publish(rows: Sequence[Row], file: str | None = None, caption: str = "") -> None:
    """Print the rows as a table, and write them to a file."""
    header = list(dict.fromkeys(column for row in rows for column in row))
    show(DataTable(header, [[_cell(row.get(column)) for column in header] for row in rows], caption))
    if file:
        Path(file).write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")


def _cell(value: object) -> str:
    return "–" if value is None else f"{value:.4f}" if isinstance(value, float) else str(value)


@contextmanager
def offline_runner(store: str | None = None) -> Iterator[JudgeRunner]:
    """The offline LM, whose replies are kept in `store` or for the time of the run."""
    with (
        TemporaryDirectory() as folder,
        closing(SqlStore(Path(store or folder) / "replies")) as replies,
        JudgeRunner(make_lm(OFFLINE, store=replies), progress=False) as runner,
    ):
        yield runner


def save_export(folder: Path, *, lm: str = "openai/mock", **config: object) -> Path:
    """An export of the single call, or of a debate with this configuration."""
    judge = AspectJudge(build("debate", {**JUDGES["single"].config, **config}))
    judges = {aspect.name: judge for aspect in TASK.aspects}
    return save(folder, CompiledJudge(TASK, judges), lm={"spec": lm}, evidence={}, name="bench")


def groups_of(ratings: Floats, scores: Floats) -> list[GroupScores]:
    """Arrays of shape (groups, candidates) as groups of the same systems."""
    ids = tuple(f"s{i}" for i in range(ratings.shape[1]))
    rows = zip(ratings.tolist(), scores.tolist(), strict=True)
    return [GroupScores(f"g{i}", ids, tuple(rated), tuple(scored)) for i, (rated, scored) in enumerate(rows)]


@dataclass(frozen=True)
class Population:
    """One aspect of a rated set, with judges; arrays of shape (groups, candidates)."""

    name: str
    ratings: Floats
    judges: tuple[Floats, ...]

    def groups(self, judge: int, which: Sequence[int], columns: Sequence[int] | None = None) -> list[GroupScores]:
        """The scores of one judge for some groups, which may recur."""
        place = np.ix_(which, range(self.ratings.shape[1]) if columns is None else columns)
        return groups_of(self.ratings[place], self.judges[judge][place])

    @property
    def everything(self) -> range:
        return range(len(self.ratings))


def populations(spec: str, seed: int, judges: int = 5) -> Iterator[Population]:
    """One for each aspect in whose groups the ratings usually differ; its judges' agreement is .3 to .6."""
    corpus = data.load(spec)
    size = min(len(g.candidates) for g in corpus.groups)
    tables = {
        name: np.array([[g.candidates[i].rating(name) for i in range(size)] for g in corpus.groups], dtype=float)
        for name in corpus.rated_aspects()
    }
    rng = np.random.default_rng(seed)
    for name, ratings in tables.items():
        if np.isnan(ratings).any() or np.mean(np.ptp(ratings, axis=1) > 0) < 0.8:
            continue
        others = np.mean([_standard(t) for n, t in tables.items() if n != name] or [_standard(ratings)], axis=0)
        scores = []
        for _ in range(judges):
            noise = rng.normal(size=ratings.shape) * rng.uniform(1.0, 4.0, size=(len(ratings), 1))
            scores.append(np.round(2 * (_standard(ratings) + others + noise)) / 2)
        yield Population(f"{corpus.origin.name} {name}", ratings, tuple(scores))


def _standard(values: Floats) -> Floats:
    return np.asarray((values - values.mean()) / values.std())
