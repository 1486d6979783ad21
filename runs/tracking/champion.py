"""Decides which version of a registered judge has the alias `champion`.

A run keeps the held-out scores of its judge, group by group, as an artifact. A new version takes over the alias only if
both versions were measured on the same ratings and the interval of the paired difference lies above 0, so that a lucky
result does not change what people load as `models:/NAME@champion`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter

from debate_judge.data.agreement.results import Difference, GroupScores

if TYPE_CHECKING:
    from debate_judge.runs.tracking.store import TrackingStore

ALIAS = "champion"

SCORES_FILE = "held_out_scores.json"
"""Artifact of a run: its judge's held-out scores and the ratings. Ids and numbers, no text."""

HeldOutScores = Mapping[str, Sequence[GroupScores]]
"""Aspect -> one judge's held-out groups."""


@dataclass(frozen=True)
class Challenger:
    """The held-out scores of a new version, and how to compare them with the champion's."""

    scores: HeldOutScores
    compare: Callable[[HeldOutScores, HeldOutScores], Difference]
    """Agreement of the first minus that of the second, in the objective of the compile."""


_ADAPTER = TypeAdapter(dict[str, list[GroupScores]])


def to_json(scores: HeldOutScores) -> dict[str, Any]:
    """Held-out scores as `SCORES_FILE` has them."""
    without_raters: Any = {"__all__": {"__all__": {"raters"}}}
    record = {aspect: list(groups) for aspect, groups in scores.items()}
    values: dict[str, Any] = _ADAPTER.dump_python(record, mode="json", exclude=without_raters)
    return values


def from_json(text: str) -> dict[str, list[GroupScores]]:
    """The scores that `to_json` wrote.

    Raises:
        ValueError: The text is no such record.
    """
    return _ADAPTER.validate_json(text)


def challenge(tracking: TrackingStore, name: str, version: str, challenger: Challenger) -> str:
    """Give the alias to a new version of a registered model if no version has it, or if the new one is significantly
    better than the one that has it; returns the decision and its reason in a sentence.
    """
    champion = _champion(tracking, name)
    if champion is None:
        tracking.client.set_registered_model_alias(name, ALIAS, version)
        return f"version {version} of {name} is the {ALIAS}: there was none"
    stays = f"version {champion.version} of {name} stays the {ALIAS}"
    champion_scores = _read_scores(tracking, champion.run_id)
    if champion_scores is None:
        return f"{stays}: its held-out scores are not in its run"
    if not _same_ratings(champion_scores, challenger.scores):
        return f"{stays}: it was measured on other sources or ratings, so that nothing tells which is better"
    difference = challenger.compare(challenger.scores, champion_scores)
    result = f"version {version} minus version {champion.version} on the same held-out sources: {difference}"
    if difference.low is None or difference.low <= 0:
        return f"{stays}: {result}"
    tracking.client.set_registered_model_alias(name, ALIAS, version)
    return f"version {version} of {name} is the {ALIAS} now: {result}"


def _champion(tracking: TrackingStore, name: str) -> Any:
    from mlflow.exceptions import MlflowException

    try:
        return tracking.client.get_model_version_by_alias(name, ALIAS)
    except MlflowException as error:
        # The first for an alias that no version has, the other, of some servers, for a name without versions.
        if error.error_code in ("INVALID_PARAMETER_VALUE", "RESOURCE_DOES_NOT_EXIST"):
            return None
        raise


def _read_scores(tracking: TrackingStore, run_id: str) -> HeldOutScores | None:
    """The held-out scores in a run; None if they cannot be read, e.g. because the run was deleted."""
    from mlflow.exceptions import MlflowException

    with TemporaryDirectory() as folder:
        try:
            file = Path(tracking.client.download_artifacts(run_id, SCORES_FILE, folder))
            return from_json(file.read_text(encoding="utf-8"))
        except (MlflowException, OSError, ValueError):
            return None


def _same_ratings(first: HeldOutScores, second: HeldOutScores) -> bool:
    def ratings(scores: HeldOutScores) -> dict[str, dict[str, object]]:
        return {
            aspect: {g.group: dict(zip(g.candidates, g.ratings, strict=True)) for g in groups}
            for aspect, groups in scores.items()
        }

    return ratings(first) == ratings(second)
