"""Measure the agreement of any scores with human ratings.

    python runs/agreement.py FILE
    python runs/agreement.py ratings.csv+scores.jsonl    # two files, joined by group, candidate and aspect
    python runs/agreement.py FILE --json table.json --aspects coherence,relevance
    python runs/agreement.py FILE --cut 3.5          # yes/no ratings, and scores on another scale

FILE has rows of {group, candidate, aspect, rating, score}, as JSON lines or CSV. RATINGS+SCORES joins two files; with a
column rater, the first has one row per rater. The command prints Pearson, Spearman and Kendall's tau-b at summary and
sample level with 95 % intervals over groups, and at system level. For two-valued ratings and pairs it adds accuracy,
Cohen's kappa and the like; for several ratings per text, the human ceiling, and the error and bias of
the scores.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from debate_judge.data.agreement.correlations import (
    AgreementTable,
    agreement_table,
    compare_with_raters,
    several_raters,
)
from debate_judge.data.agreement.decisions import DecisionResult, decision_rules_from_scores, evaluate_decisions
from debate_judge.data.agreement.figures import (
    AVERAGE,
    INTERVALS,
    LEVELS,
    STATISTIC_NAMES,
    STATISTICS,
    GroupScores,
    ScoresByAspect,
    plain,
)
from debate_judge.data.errors import InputError, require_writable, write_json
from debate_judge.data.files.formats import read_records
from debate_judge.data.schema import ALL, Level
from debate_judge.runs.flags import command_settings, run_command, setting
from debate_judge.runs.reports.evidence import decision_tables, raters_table
from debate_judge.runs.reports.tables import DataTable, OutputBlock, show
from debate_judge.runs.shared_flags import SEED

_LEVEL_TITLES: dict[Level, str] = {
    "summary": "summary level: the correlation within each group, averaged over groups",
    "sample": "sample level: all candidates pooled",
    "system": "system level: means of each candidate id over groups",
}

_COUNTS = {
    "constant": "groups whose scores are equal, counted 0",
    "undefined": "groups whose ratings are equal, left out",
    "unscored": "candidates with a rating and no score",
}
"""Count of what is left out -> what it is; those that are 0 everywhere are not shown."""


@command_settings
class AgreementFlags:
    """Settings of the command `agreement`."""

    file: str = setting(
        ..., "rows with scores and ratings, .jsonl or .csv, or RATINGS+SCORES", flag="FILE", metavar="FILE"
    )
    aspects: tuple[str, ...] = setting((), "aspects to report, comma-separated", default_text="all in the file")
    cut: float | None = setting(
        None,
        "threshold of yes/no decisions: scores of at least X are yes",
        default_text="the midpoint of the two ratings",
    )
    seed: int = SEED
    json: str | None = setting(
        None, "also write the result as JSON; - prints it instead of the tables", metavar="FILE", affects_results=False
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Print the agreement; returns the exit code (0 done, 2 bad input)."""
    return run_command("agreement", __doc__, AgreementFlags, _run, argv)


def _run(flags: AgreementFlags) -> int:
    if flags.json not in (None, "-"):
        out = Path(flags.json)
        if out.exists() and Path(flags.file).exists() and out.samefile(flags.file):
            remedy = "give it another name"
            raise InputError("the output would replace the input", field="--json", found=flags.json, remedy=remedy)
        require_writable(out, "--json")
    scores = read_rated_scores(Path(flags.file), flags.aspects)
    table, decisions = agreement_table(scores, seed=flags.seed), _decisions(flags, scores)
    level: Level = "summary" if any(len(g.candidates) > 1 for groups in scores.values() for g in groups) else "sample"
    raters = {
        name: compare_with_raters(groups, level=level, on_scale=_within_ratings(groups), seed=flags.seed)
        for name, groups in (scores.items() if several_raters(scores) else ())
    }
    kinds: dict[str, dict[str, Any]] = {"decisions": decisions, "raters": raters}
    record = plain(table) | {
        kind: {aspect: plain(figures) for aspect, figures in found.items()} for kind, found in kinds.items() if found
    }
    if flags.json == "-":
        print(json.dumps(record, indent=2, allow_nan=False))
        return 0
    rows = sum(len(group.candidates) for groups in scores.values() for group in groups)
    show(f"{rows} rows, {len(scores)} aspects; 95 % intervals over groups", *_level_tables(table))
    for each in decision_tables({"scores": decisions}, units="groups"):
        show("", each)
    if raters:
        show("", raters_table({"scores": raters}, level, "spearman"))
    if flags.json:
        write_json(flags.json, record, "--json")
    return 0


def _decisions(flags: AgreementFlags, scores: ScoresByAspect) -> dict[str, DecisionResult]:
    """Aspect -> agreement of decisions, for aspects whose ratings define one."""
    rules = decision_rules_from_scores(scores)
    for name, rule in rules.items():
        if flags.cut is not None:
            rules[name] = replace(rule, cut=flags.cut)
        elif rule.kind == "binary" and not _within_ratings(scores[name]):
            print(
                f"note: scores of {name} are outside the range of its two ratings, so their midpoint is no cut; "
                "set one with --cut",
                file=sys.stderr,
            )
            rules[name] = replace(rule, cut=None)
    return evaluate_decisions(scores, rules, seed=flags.seed)


def _within_ratings(groups: Sequence[GroupScores]) -> bool:
    ratings = [v for g in groups for values in g.raters for v in values]
    return all(min(ratings) <= s <= max(ratings) for g in groups for s in g.scores if s is not None)


def _level_tables(table: AgreementTable) -> list[OutputBlock]:
    """A table for each level under its title, and what its counts mean."""
    rows = {**table.aspects, **({AVERAGE: table.average} if len(table.aspects) > 1 else {})}
    figures = [figure for levels in rows.values() for row in levels.values() for figure in row.values()]
    counts = [name for name in _COUNTS if any(getattr(figure, name) for figure in figures)]
    header = ["aspect", *(STATISTIC_NAMES[s] for s in STATISTICS), "groups", *counts]
    blocks: list[OutputBlock] = []
    for level in LEVELS:
        body = []
        for name, levels in rows.items():
            row = levels[level]
            counted = [str(getattr(row["spearman"], count)) for count in ("groups", *counts)]
            body.append([name, *(str(row[s]) for s in STATISTICS), *counted])
        blocks += ["", DataTable(header, body, _LEVEL_TITLES[level], total=len(rows) > 1)]
    return [*blocks, "", f"95 % intervals: {INTERVALS}", *(f"{name}: {_COUNTS[name]}" for name in counts)]


def read_rated_scores(path: Path, aspects: tuple[str, ...] = ()) -> dict[str, list[GroupScores]]:
    """Read rows of {group, candidate, aspect, rating, score}.

    A rating is a number or a list of them, one per rater (in CSV `4;5;4`); a score is a number, or null or an empty
    cell where there is none.

    Args:
        path: The file.
        aspects: Names of the aspects to read; none, or `ALL`, for all.

    Returns:
        Aspect -> scores and ratings by group, in the order of the file.

    Raises:
        InputError: The file cannot be read, a row cannot be used, or no row is left.
    """
    aspects = () if aspects == (ALL,) else aspects
    rows: dict[str, dict[str, dict[str, tuple[tuple[float, ...], float | None]]]] = {}
    """Aspect -> group -> candidate -> ratings and score."""
    for record in read_records(path):
        aspect = record.text("aspect")
        if aspects and aspect not in aspects:
            continue
        group, candidate = record.identifier("group"), record.identifier("candidate")
        ratings, score = tuple(record.numbers("rating")), record.optional_number("score")
        candidates = rows.setdefault(aspect, {}).setdefault(group, {})
        before, known_score = candidates.get(candidate, ((), score))
        if before and (known_score != score or "rater" not in record.values):
            raise record.error(
                f"candidate {candidate!r} of group {group!r} occurs twice for aspect {aspect!r}",
                "candidate",
                remedy="keep one row for each candidate and aspect; a row of each rater needs a column rater",
            )
        candidates[candidate] = before + ratings, score
    if not rows and not aspects:
        raise InputError("no row of scores", file=path, expected="rows of group, candidate, aspect, rating, score")
    if missing := [aspect for aspect in aspects if aspect not in rows]:
        expected = f"one of its aspects: {', '.join(rows)}" if rows else None
        raise InputError(f"the file has no row of aspect {missing[0]!r}", file=path, field="aspect", expected=expected)
    pairs = [pair for groups in rows.values() for candidates in groups.values() for pair in candidates.values()]
    if not any(ratings and score is not None for ratings, score in pairs):
        raise InputError("no row has both a rating and a score", file=path, expected="at least two such rows")
    return {
        aspect: [
            GroupScores(
                group,
                tuple(candidates),
                tuple(math.fsum(ratings) / len(ratings) if ratings else None for ratings, _ in candidates.values()),
                tuple(score for _, score in candidates.values()),
                tuple(ratings for ratings, _ in candidates.values()),
            )
            for group, candidates in groups.items()
        ]
        for aspect, groups in rows.items()
    }


if __name__ == "__main__":
    raise SystemExit(main())
