"""The legend of a comparison's table, its warnings, and the whole comparison as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from debate_judge.data.agreement.intervals import METHODS
from debate_judge.data.agreement.results import NAMES, WHY_NONE, AgreementTable, Table
from debate_judge.data.errors import InputError
from debate_judge.data.schema import Corpus
from debate_judge.data.splits import split
from debate_judge.programs.make_lm import OFFLINE
from debate_judge.runs.comparison.results import Comparison, EvalSetup
from debate_judge.runs.reports.text import power_text

FIGURES = (".png", ".svg", ".pdf")
"""Endings of a figure's file."""


@dataclass(frozen=True)
class Setting:
    """Part of the data, split and LM of a comparison."""

    part: str
    """all or held-out."""
    groups_in_file: int
    seed: int
    """Of the split."""
    held_out: str
    """Fingerprint of the held-out part, or empty for all groups."""
    lm: str
    """Its spec."""

    @property
    def where(self) -> str:
        """The part, worded for titles."""
        return "held-out" if self.part == "held-out" else "all groups"

    @property
    def note(self) -> str:
        """The line under a figure."""
        if self.lm == OFFLINE:
            return "offline LM: transparent text statistics, a stand-in, not a language model"
        return f"LM: {self.lm}"

    def about(self, setup: EvalSetup) -> dict[str, Any]:
        """Data, part and LM as plain values."""
        corpus = setup.corpus
        return {
            "data": {
                "name": corpus.origin.name,
                # Only the last part of the path: a published file should not reveal where a user keeps data.
                "location": Path(corpus.origin.location).name,
                "task": corpus.task.name,
                "aspects": [a.name for a in setup.aspects],
                "part": self.part,
                "groups": len(corpus.groups),
                "split_seed": self.seed,
                "digest": corpus.digest,
            },
            "lm": {"spec": self.lm, "stand_in": self.lm == OFFLINE},
            "resamples": setup.resamples,
        }


def part_of(corpus: Corpus, aspects: Sequence[str], part: str, seed: int) -> tuple[Corpus, str]:
    """The groups that are compared on, and the fingerprint of the held-out part if it is these.

    Raises:
        InputError: The corpus is too small to be split.
    """
    if part == "all":
        return corpus, ""
    try:
        parts = split(corpus, aspects=aspects, seed=seed)
    except InputError as error:
        remedy = "--part all compares on all groups, which is no evidence for a judge that was tuned on some of them"
        raise InputError(
            error.problem,
            file=error.file,
            line=error.line,
            field=error.field,
            expected=error.expected,
            found=error.found,
            remedy=f"{error.remedy}; {remedy}" if error.remedy else remedy,
        ) from None
    return parts.held_out, parts.fingerprints["held_out"]


def legend(comparison: Comparison, setting: Setting, *, priced: bool) -> str:
    """What the numbers are, which groups they come from, and what they do not show."""
    setup = comparison.setup
    groups = len(setup.corpus.groups)
    if setting.part == "held-out":
        part = f"{groups} held-out groups of {setting.groups_in_file} (the split of a compile with seed {setting.seed})"
    else:
        part = f"all {groups} groups of the data"
    lines = [
        f"{setup.level}-level {' / '.join(NAMES[s] for s in setup.statistics)} with the mean human rating; {part}",
        *_intervals(comparison),
        "marked: differs from every other judge of its column (p < 0.05, Holm over all columns)"
        if any(comparison.best.values())
        else "none is marked: in no column does a judge differ from every other one (p < 0.05, Holm over all columns)",
        *(f"{name} against {comparison.baseline}: {text}" for name, text in _powers(comparison).items() if text),
        *_constant(comparison),
        _cost(setting, priced),
        *([setting.note] if setting.lm == OFFLINE else []),
        *(f"{s.name}: {s.entry.note}" for s in comparison.results if s.entry.note),
        *_together(comparison),
        *_unscored(comparison),
        *(f"{name} has no row, it could score nothing: {why}" for name, why in comparison.failed.items()),
    ]
    if comparison.baseline in comparison.failed:
        lines.append(f"no differences: the baseline {comparison.baseline} has no row")
    return "\n".join(lines)


def _together(comparison: Comparison) -> list[str]:
    """Which judges saw candidates or aspects in shared calls, at most how many."""
    by_size: dict[tuple[int, int], list[str]] = {}
    for one in comparison.results:
        by_size.setdefault((one.entry.together, one.entry.joint), []).append(one.name)
    side_by_side = "up to {} candidates of a source were judged side by side"
    found = []
    for (candidates, aspects), names in by_size.items():
        sizes = [side_by_side.format(candidates)] if candidates > 1 else []
        sizes += [f"up to {aspects} aspects were judged jointly"] if aspects > 1 else []
        found += [f"{', '.join(names)}: {', '.join(sizes)}, in shared calls"] if sizes else []
    return found


def document(comparison: Comparison, setting: Setting) -> dict[str, Any]:
    """The comparison as the JSON of `--json`, without blocks that only some data call for."""
    return {**comparison.to_json(), **setting.about(comparison.setup)}


def tuned_elsewhere(held_out: str | None, setting: Setting) -> str | None:
    """A warning about an export whose held-out groups were not those of this table; None for other judges."""
    if held_out is None or held_out == setting.held_out:
        return None
    if setting.part == "all":
        return "tuned or selected on some of all groups, if it was compiled on these data"
    return (
        "compiled on another split or other data: some of these groups may be among those that it was tuned or "
        "selected on (its own --data, --task and --seed give its held-out groups; compiled by folds, it has used all)"
    )


def figure_file(path: str | None) -> Path | None:
    """The file of a figure.

    Raises:
        InputError: It has another ending than a figure.
    """
    if path is None or Path(path).suffix.lower() in FIGURES:
        return None if path is None else Path(path)
    raise InputError(
        "not a kind of figure", field="--figure", expected=f"a file ending in {', '.join(FIGURES)}", found=path
    )


def _intervals(comparison: Comparison) -> list[str]:
    """How intervals and p-values of the first statistic are made."""
    setup = comparison.setup
    cells = [table[setup.level][setup.statistics[0]] for s in comparison.results for table in _tables(s.table)]
    used = {cell.method for cell in cells} | {d.method for d in comparison.differences.values()}
    lines = [f"95 % intervals of the first statistic: {'; '.join(METHODS[m] for m in METHODS if m in used)}"]
    if setup.level == "system":
        drawn = "systems like these (systems resampled, too)" if setup.draw_systems else "these systems"
        lines.append(f"system-level intervals are about {drawn}, p-values about these systems")
        lines.append("few groups leave the systems' means noisy, which pulls system-level correlations towards 0")
    if any(p is None for p in comparison.corrected.values()):
        lines.append(f"differences are paired; no p-value is given: {WHY_NONE}")
    elif comparison.corrected:
        lines.append(
            "differences are paired; p-values by flipping the signs of groups (all ways with up to 16 groups, else "
            f"100,000 random ones), corrected over {len(comparison.corrected)} comparisons (Holm)"
        )
    return lines


def _powers(comparison: Comparison) -> dict[str, str]:
    return {name: power_text(found, "groups") for name, found in comparison.differences.items()}


def _tables(table: AgreementTable) -> list[Table]:
    return [*table.aspects.values(), table.average]


def _constant(comparison: Comparison) -> list[str]:
    """What counts 0 and what is left out, and the other convention's figure where it differs."""
    level, statistic = comparison.setup.level, comparison.setup.statistics[0]
    cells = {s.name: s.table.average[level][statistic] for s in comparison.results}
    lines = []
    if any(cell.constant for cell in cells.values()):
        shown = ", ".join(
            f"{name} {cell.constant} (without them {_or_dash(cell.value_without_constant)})"
            for name, cell in cells.items()
            if cell.constant
        )
        lines.append(
            f"groups to which a judge gave equal scores count 0, in cells and differences; over all aspects: {shown}"
        )
    counts = {name: cell.undefined for name, cell in cells.items()}
    if any(counts.values()):
        same = len(set(counts.values())) == 1
        shown = str(next(iter(counts.values()))) if same else ", ".join(f"{n} {count}" for n, count in counts.items())
        lines.append(f"groups whose ratings are all equal, left out, over all aspects: {shown}")
    return lines


def _or_dash(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _cost(setting: Setting, priced: bool) -> str:
    if setting.lm == OFFLINE:
        return "no price: the offline LM is free; with a real LM $ is what each judge would cost alone"
    if not priced:
        return f"no price is known for {setting.lm}: --config prices=FILE would give $"
    return "$: what each judge would cost alone, replies that it shares with others or that were stored included"


def _unscored(comparison: Comparison) -> list[str]:
    return [
        f"{s.name} left {sum(s.entry.unscored.values())} unscored: "
        + ", ".join(f"{why} {count}" for why, count in s.entry.unscored.items())
        for s in comparison.results
        if s.entry.unscored
    ]
