"""Which version of a registered judge is the champion: the one that is shown to agree better on the same sources.

A run keeps the held-out scores of its judge, group by group, as an artifact. A new version takes the alias `champion`
from the one that holds it only if both were measured on the same ratings and the whole interval of the paired
difference lies above 0, so that a lucky figure does not change what people load as `models:/NAME@champion`.
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

FILE = "held_out_scores.json"
"""Artifact of a run: its judge's held-out scores beside the ratings. Ids and numbers, no text."""

Scores = Mapping[str, Sequence[GroupScores]]
"""Aspect -> one judge's held-out groups."""


@dataclass(frozen=True)
class Challenger:
    """What a new version brings to be compared with the champion."""

    scores: Scores
    compare: Callable[[Scores, Scores], Difference]
    """Agreement of the first minus that of the second, in the measure that the compile chose by."""


_RECORD = TypeAdapter(dict[str, list[GroupScores]])


def to_json(scores: Scores) -> dict[str, Any]:
    """Held-out scores as `FILE` keeps them."""
    without_raters: Any = {"__all__": {"__all__": {"raters"}}}
    record = {aspect: list(groups) for aspect, groups in scores.items()}
    values: dict[str, Any] = _RECORD.dump_python(record, mode="json", exclude=without_raters)
    return values


def from_json(text: str) -> dict[str, list[GroupScores]]:
    """The scores that `to_json` wrote.

    Raises:
        ValueError: The text is no such record.
    """
    return _RECORD.validate_json(text)


def challenge(place: TrackingStore, name: str, version: str, new: Challenger) -> str:
    """Give the alias to a new version of a registered model if nothing holds it, or if the version is shown to be
    better than
    what does; returns what was decided and why, in a sentence.
    """
    holder = _holder(place, name)
    if holder is None:
        place.client.set_registered_model_alias(name, ALIAS, version)
        return f"version {version} of {name} is the {ALIAS}: there was none"
    kept = f"version {holder.version} of {name} stays the {ALIAS}"
    old = _scores(place, holder.run_id)
    if old is None:
        return f"{kept}: its held-out scores are not in its run"
    if not _same_ratings(old, new.scores):
        return f"{kept}: it was measured on other sources or ratings, so that nothing tells which is better"
    gain = new.compare(new.scores, old)
    difference = f"version {version} minus version {holder.version} on the same held-out sources: {gain}"
    if gain.low is None or gain.low <= 0:
        return f"{kept}: {difference}"
    place.client.set_registered_model_alias(name, ALIAS, version)
    return f"version {version} of {name} is the {ALIAS} now: {difference}"


def _holder(place: TrackingStore, name: str) -> Any:
    from mlflow.exceptions import MlflowException

    try:
        return place.client.get_model_version_by_alias(name, ALIAS)
    except MlflowException as error:
        # The one for an alias that nothing holds, the other, of some servers, for a name without versions.
        if error.error_code in ("INVALID_PARAMETER_VALUE", "RESOURCE_DOES_NOT_EXIST"):
            return None
        raise


def _scores(place: TrackingStore, run_id: str) -> Scores | None:
    """The held-out scores in a run; None where it has none that can be read, as when the run was deleted."""
    from mlflow.exceptions import MlflowException

    with TemporaryDirectory() as folder:
        try:
            file = Path(place.client.download_artifacts(run_id, FILE, folder))
            return from_json(file.read_text(encoding="utf-8"))
        except (MlflowException, OSError, ValueError):
            return None


def _same_ratings(first: Scores, second: Scores) -> bool:
    def ratings(scores: Scores) -> dict[str, dict[str, object]]:
        return {
            aspect: {g.group: dict(zip(g.candidates, g.ratings, strict=True)) for g in groups}
            for aspect, groups in scores.items()
        }

    return ratings(first) == ratings(second)
