"""What is sent between the driver of a distributed run, its actors and the service of the run."""

from __future__ import annotations

import tempfile
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

from debate_judge.programs.lm.options import BudgetCaps, LMOptions
from debate_judge.programs.lm.usage import Meter, Tokens
from debate_judge.runs.distributed.out_folder import OutFolder
from debate_judge.runs.scoring.output import RowTotals

if TYPE_CHECKING:
    from debate_judge.runs.export.manifest import Export


@dataclass(frozen=True)
class ScoringJob:
    """What an actor needs to score parts; holds no key, for these come from the environment of each process."""

    program: dict[str, bytes]
    """The export's files, so that no machine but the driver's must reach its folder."""
    judges: tuple[str, ...]
    lm: str | None
    api_base: str | None = field(repr=False)
    concurrency: int
    """LM calls that one actor may have in flight."""
    store: str
    """Folder of the replies."""
    replies: str | None = field(repr=False)
    """Address of a database of replies, if there is one."""
    options: LMOptions
    """Limits of one actor, without the budget, of which each has a share (`Service.share`)."""
    budgeted: bool
    """Whether the run has a budget."""
    prices: str | None
    """The content of `options.prices`."""
    max_tokens: int | None
    aspects: tuple[str, ...]
    scale: Literal["judge", "raters"]
    out: OutFolder
    interval: float | None = None
    """Level of the intervals, if there are any."""
    abstain: float | None = None
    """Width from which on scores are left to people."""
    path: tuple[str, ...] = ()
    """Where the driver imports from, for judges of the user's own."""


def packed(export: Export) -> dict[str, bytes]:
    """The files of an export that it is read from."""
    from debate_judge.runs.export.manifest import MANIFEST

    files = [export.folder / MANIFEST, *sorted((export.folder / "state").glob("*.json"))]
    return {str(file.relative_to(export.folder)): file.read_bytes() for file in files}


def unpacked(job: ScoringJob) -> tuple[Export, LMOptions]:
    """The export, and the options with the table of prices on this machine."""
    from debate_judge.runs.export.manifest import read

    folder = Path(tempfile.mkdtemp(prefix="debate-actor-"))
    for name, content in job.program.items():
        file = folder / "program" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    options = job.options
    if job.prices is not None:
        (folder / "prices.toml").write_text(job.prices, encoding="utf-8")
        options = replace(options, prices=folder / "prices.toml")
    return read(folder / "program", job.judges), options


@dataclass(frozen=True)
class MeterCopy:
    """The counts of one process at one time."""

    asked: Counter[str] = field(default_factory=Counter)
    executed: Counter[str] = field(default_factory=Counter)
    accounts: dict[tuple[str, int], Tokens] = field(default_factory=dict)

    @property
    def events(self) -> int:
        """Grows with everything that is counted."""
        hits = sum(tokens.cache_hits for tokens in self.accounts.values())
        return self.asked.total() + self.executed.total() + hits

    @classmethod
    def of(cls, meter: Meter) -> MeterCopy:
        asked, executed, accounts = meter.copied()
        return cls(asked, executed, accounts)


@dataclass(frozen=True)
class ActorNews:
    """What an actor tells every second."""

    actor: str
    """Id of the process."""
    meter: MeterCopy
    items: int = 0
    """Scored, of parts that are not finished."""
    process: int = 0
    closed: bool = False
    """Whether it has stopped, and all that it had in flight is kept."""


@dataclass(frozen=True)
class PartDone:
    """What an actor says of a part."""

    slice: str
    name: str = ""
    size: int = 0
    rows: RowTotals | None = None
    """None where there are none: the part was not scored, or stands for the end of a slice."""
    errors: tuple[str, ...] = ()
    unread: int = 0
    notes: tuple[str, ...] = ()
    parts: int | None = None
    """As in `runs.distributed.parts.ScoringPart`."""
    failure: tuple[int, str] | None = None
    """Exit code and message of what ends the run."""
    given_up: str = ""
    """Set where the part is not tried again in this run: which it is."""
    actor: str = ""
    meter: MeterCopy | None = None


def shares_of(budget: BudgetCaps, count: int) -> list[BudgetCaps]:
    """The budget in equal shares, which together are the whole; none where there is no cap."""

    def share(cap: int | None, number: int) -> int | None:
        return None if cap is None else cap // count + (number < cap % count)

    usd = None if budget.usd is None else budget.usd / count
    found = [BudgetCaps(share(budget.calls, n), share(budget.tokens, n), usd) for n in range(count)]
    return found if budget else []


class Service(Protocol):
    """The service of a run, as an actor reaches it."""

    def share(self) -> BudgetCaps | None:
        """A share of the budget that no process has had; None if all are given."""

    def begin(self, part: str) -> int:
        """Say that a part is begun; returns how often it was, this time included."""

    def tell(self, news: ActorNews) -> bool:
        """Give news; returns whether the run is to stop."""
