"""Settings of a probe: the judges, the candidates, the LM."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator

from debate_judge.programs import JUDGES
from debate_judge.runs.comparison.flags import PartFlags
from debate_judge.runs.flags.common import EXPORT, JSON_FILE, MAX_UNSCORED, REPLIES, STORE, DataFlags
from debate_judge.runs.flags.declared import command_settings, flag_group, setting, unknown_name
from debate_judge.runs.flags.judge import JudgeOptionFlags
from debate_judge.runs.flags.lm import MAX_TOKENS, EndpointFlags, EstimateFlags, LimitFlags
from debate_judge.runs.probing.perturbations import PROBES


def _known(names: tuple[str, ...]) -> tuple[str, ...]:
    for name in names:
        if name not in PROBES:
            raise unknown_name("probe", "--probes", name, tuple(PROBES))
    return tuple(dict.fromkeys(names))


@flag_group("judges")
class ProbedFlags:
    """The judges that are probed."""

    program: tuple[str, ...] = setting(
        (),
        f"{EXPORT}; may be repeated",
        metavar="EXPORT",
        repeated=True,
    )
    judges: tuple[str, ...] = setting((), f"comma-separated: {', '.join(JUDGES)}, or an export as --program names it")
    probes: Annotated[tuple[str, ...], AfterValidator(_known)] = setting(
        (), f"manipulations to try, comma-separated: {', '.join(PROBES)}", shown="all"
    )
    max_unscored: float = MAX_UNSCORED


@flag_group("LM")
class ProbeLMFlags(EndpointFlags):
    """The LM of all roles; what is absent is as the first export was compiled."""

    lm: str | None = setting(
        None,
        "PROVIDER/MODEL, or offline for the built-in stand-in",
        shown="as the first export was compiled, or offline",
    )
    temperature: float | None = setting(None, "sampling temperature", ge=0, shown="as compiled, or 0")
    max_tokens: int | None = setting(None, MAX_TOKENS, ge=1, shown="as compiled, or 2000")


@flag_group("tracking and output")
class ProbeOutputFlags:
    """Where the results of a probe are written."""

    intervals: Literal["average", "all"] = setting("average", "columns of the table that show intervals", decides=False)
    name: str | None = setting(None, "name of the run in MLflow", decides=False)
    tracking_uri: str | None = setting(
        None,
        "MLflow server to log the result to; by default the embedded store in --store, if there is one",
        metavar="URL",
        decides=False,
    )
    store: str = STORE
    replies: str | None = REPLIES
    json: str | None = JSON_FILE


@command_settings
class ProbeFlags(
    DataFlags, PartFlags, ProbedFlags, JudgeOptionFlags, ProbeLMFlags, LimitFlags, ProbeOutputFlags, EstimateFlags
):
    """Settings of one probe."""
