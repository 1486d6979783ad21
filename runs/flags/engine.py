"""Settings of a run that many processes or machines share."""

from __future__ import annotations

from typing import Literal

from debate_judge.runs.flags.declared import flag_group, setting


@flag_group("engine")
class EngineFlags:
    """Who scores: this process, or actors of Ray."""

    engine: Literal["local", "ray"] = setting(
        "local",
        "ray: --in may be a glob or URL, and --out is a folder of parts",
        decides=False,
    )
    actors: int = setting(2, "processes that score; concurrency is that of all together", ge=1, decides=False)
    address: str | None = setting(
        None, "of a running Ray cluster, or set RAY_ADDRESS; without either it starts here", decides=False
    )
