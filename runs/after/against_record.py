"""What an export says about itself: its data, its objective, and the held-out scores that it keeps of its judge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from debate_judge.data.agreement.results import GroupScores
from debate_judge.data.errors import InputError

if TYPE_CHECKING:
    from debate_judge.data.agreement.correlations import Statistic
    from debate_judge.data.schema import Aspect, Corpus, Level
    from debate_judge.runs.after.asking import Scores
    from debate_judge.runs.export.manifest import Export
    from debate_judge.runs.export.recorded import RecordedScores

RELIABLE = 0.8
"""Krippendorff's alpha from which on raters are customarily taken to agree (Krippendorff 2019, chapter 12)."""


def objective(export: Export, corpus: Corpus) -> tuple[Statistic, Level]:
    """The correlation, and its level, that the export was chosen by."""
    chosen: Mapping[str, Any] = export.manifest["evidence"].get("objective") or {}
    return chosen.get("statistic", "spearman"), chosen.get("level", "summary" if corpus.grouped else "sample")


def settled_aspects(export: Export) -> dict[str, str]:
    """Aspect -> what the compile showed of its judge and a single call, where it could tell them apart."""
    gains: Mapping[str, Any] = export.manifest["evidence"].get("gains") or {}
    return {
        name: f"compiled judge minus single call {gain['value']:+.2f} [{gain['low']:+.2f}, {gain['high']:+.2f}]"
        for name, gain in gains.items()
        if gain["low"] is not None and gain["high"] is not None and not gain["low"] <= 0 <= gain["high"]
    }


def raters_needed(export: Export, aspects: Sequence[str]) -> dict[str, int]:
    """Aspect -> how many people should rate a text: as many as at the compile where these disagreed, else one."""
    by_judge: Mapping[str, Any] = export.manifest["evidence"].get("raters") or {}
    known: Mapping[str, Any] = next(iter(by_judge.values()), {})
    return {
        name: int(known[name]["raters"])
        if name in known and known[name]["alpha"] is not None and known[name]["alpha"] < RELIABLE
        else 1
        for name in aspects
    }


def data_of(export: Export) -> str:
    """The name of the data that an export was compiled on, where anyone can load them.

    Raises:
        InputError: They are a file of the user's.
    """
    from debate_judge.data import LOADERS

    name = str((export.manifest["evidence"].get("data") or {}).get("name", ""))
    if name not in LOADERS:
        raise InputError(
            "the data that the export was compiled on are not known here",
            field="--data",
            expected="a file with rated texts" + (f", such as {name}" if name else ""),
        )
    return name


def proving(corpus: Corpus) -> tuple[Corpus, list[str]]:
    """The sources that were not chosen to be rated, and what to say about those that were.

    Raises:
        InputError: All were.
    """
    kept = corpus.at_random
    chosen = len(corpus.groups) - len(kept.groups)
    if not kept.groups:
        raise InputError(
            "all sources were chosen to be rated, which proves nothing about others",
            file=corpus.origin.location,
            field="drawn",
            expected="sources that were drawn at random, with nothing in this column",
            found=f"{chosen} chosen ones",
            remedy="rate sources that `debate next` draws at random, as it does without --draw chosen",
        )
    return kept, [f"{chosen} sources were chosen to be rated and are left out, for they prove nothing"] * bool(chosen)


def unseen_part(corpus: Corpus, recorded: RecordedScores | None) -> tuple[Corpus, bool, list[str]]:
    """The sources to measure an exported judge on again.

    Returns:
        Those that it was measured on, where the data have any; else those that it has never seen; else all. Whether it
        was neither tuned nor chosen on them. What to say about them.
    """
    from debate_judge.runs.export.recorded import source_hash

    corpus, notes = proving(corpus)
    if recorded is None:
        note = "the export does not say which sources it was measured on, so that all are used"
        return corpus, False, [*notes, note]
    hashes = {group.id: source_hash(group) for group in corpus.groups}
    known = [g for g in corpus.groups if hashes[g.id] in recorded.sources]
    everything = recorded.known
    new = [g for g in corpus.groups if hashes[g.id] not in everything]
    if known and recorded.by == "export" and not recorded.sources & recorded.seen:
        missing = len(recorded.sources) - len(known)
        notes += [f"{missing} of {len(recorded.sources)} held-out sources are not in the data"] * bool(missing)
        return replace(corpus, groups=tuple(known)), True, notes
    if new:
        return replace(corpus, groups=tuple(new)), True, notes
    note = "the judge was tuned and chosen on these sources with the old LM, which favours that one"
    return corpus, False, [*notes, note]


def recorded_scores(export: Export, part: Corpus, aspects: Sequence[Aspect]) -> Scores:
    """The scores that an export keeps of these texts, with their present ratings and ids; None for others.

    Raises:
        InputError: It keeps none of them, or only those of the judges of folds.
    """
    from debate_judge.runs.export.recorded import candidate_hashes, recorded_in, source_hash

    recorded = recorded_in(export.manifest)
    if recorded is None or recorded.by == "folds":
        raise InputError(
            "the export keeps no scores of its judge",
            file=export.folder,
            field="evidence.recorded",
            expected="scores of held-out sources"
            if recorded is None
            else "scores of the exported judge; those of folds are of other judges",
            remedy="ask the old LM, or name the store with its replies by --store; else compile the judge again",
        )
    found: Scores = {}
    for aspect in aspects:
        known = {
            (group.group, text): score
            for group in recorded.scores.get(aspect.name, ())
            for text, score in zip(group.candidates, group.scores, strict=True)
        }
        found[aspect.name] = [
            GroupScores(
                group.id,
                tuple(c.id for c in group.candidates),
                tuple(group.ratings(aspect.name)),
                tuple(known.get((source_hash(group), text)) for text in candidate_hashes(group)),
            )
            for group in part.groups
        ]
    if not any(score is not None for groups in found.values() for group in groups for score in group.scores):
        raise InputError("the export keeps no score of these texts", file=part.origin.location, field="--data")
    return found
