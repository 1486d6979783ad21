"""A compiled judge: for each aspect its own judge and the granularity of its final score.

Which settings agree best with the raters differs by aspect, so persona, rounds, Tie-breaker and granularity are chosen
for each. The judges of all aspects are exported and used as one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from debate_judge.data.calibration import Calibration
from debate_judge.data.errors import InputError
from debate_judge.data.schema import Aspect, Granularity, Task
from debate_judge.programs.judge import Judge, Judgement, in_granularity

ScoreScale = Literal["judge", "raters"]
"""Whether scores are reported as the judge gives them or mapped to the raters' scale (`Calibration`)."""


@dataclass(frozen=True)
class AspectJudge:
    """The judge of one aspect."""

    judge: Judge
    granularity: Granularity = "given"
    calibration: Calibration | None = None
    """Map from reported scores to the raters' scale; None if none was fitted."""

    def __post_init__(self) -> None:
        if not self.judge.on_scale and self.granularity != "given":
            raise InputError(
                f"a score of {self.judge.kind!r} is not on the aspect's scale and has no place on its steps",
                field="granularity",
                expected="given",
                found=self.granularity,
            )

    def reported(self, judgement: Judgement, aspect: Aspect) -> float | None:
        """The score as this judge reports it, or None where there is none."""
        return in_granularity(judgement, aspect, self.granularity)


@dataclass(frozen=True)
class SharedJudge:
    """A judge with the aspects that it is asked about: several in one call if it reads them jointly."""

    judge: Judge
    aspects: tuple[str, ...]


def shared_judges(judges: Mapping[str, Judge]) -> list[SharedJudge]:
    """Group aspects by judge, so that aspects share LM calls where their judges can.

    Judges that read aspects jointly (`Judge.joint`) share calls if they have the same persona, rounds, Tie-breaker,
    score mode and reading, and the same instructions apart from the guide to the raters; guide, rated examples and
    granularity of scores are in the prompt for each aspect. All other judges are asked about each aspect by itself.

    Args:
        judges: Name of an aspect -> its judge.
    """
    groups: dict[str, list[str]] = {}
    for name, judge in judges.items():
        key = judge.joint_key()
        # Differs from every joint key, because those are JSON.
        groups.setdefault(f"alone: {name}" if key is None else key, []).append(name)
    found = []
    for names in groups.values():
        own = {name: judges[name] for name in names}
        first = own[names[0]]
        found.append(SharedJudge(first.jointly(own) if len(own) > 1 else first, tuple(names)))
    return found


def usual_granularity(judge: Judge, aspect: Aspect) -> Granularity:
    """The granularity of final scores if none is chosen: `given`, unless the scale demands whole steps (`on_steps`).

    It is then `half` where the judge is asked for half points (`--granularity half`), else `whole`. Scores that are not
    on the scale, and outcomes of comparisons, stay as given.
    """
    if not aspect.scale.on_steps or not judge.on_scale or judge.compares:
        return "given"
    return "half" if judge.config().get("granularity") == "half" else "whole"


@dataclass(frozen=True)
class CompiledJudge:
    """One judge for a task."""

    task: Task
    aspects: Mapping[str, AspectJudge]
    """Aspect name -> its judge, in the task's order."""

    def require_calibrated(self, aspects: Sequence[Aspect], scale: str) -> None:
        """Refuse to report scores on a scale that the judge has no map to.

        Raises:
            InputError: `scale` is not known, or is the raters' and the judge of an aspect was not calibrated.
        """
        known = get_args(ScoreScale)
        if scale not in known:
            raise InputError("unknown scale of scores", field="scale", expected=" or ".join(known), found=scale)
        without = [aspect.name for aspect in aspects if self.aspects[aspect.name].calibration is None]
        if scale == "raters" and without:
            raise InputError(
                f"the judge has no map to the raters' scale for {', '.join(without)}",
                field="scale",
                expected="a judge that was calibrated when it was compiled, which one of pairs is not",
                remedy="leave the scale out for the judge's own scores, or compile the judge again",
            )
