"""The log of held-out reuse: how often held-out figures of the same sources have been seen, and by how much that
inflates the best.

Choosing the best of several compiles by their held-out figures makes the best figure too large, because the luck of
its sources is chosen along with it. The ledger, `looks.jsonl` in the store, has one line per compile whose held-out
figures became known. It names the held-out sources by their own fingerprints and not by the split, so that another
seed, other aspects, another judge or LM on the same sources count as well.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from pydantic import BaseModel, Field, ValidationError

from debate_judge.data.agreement.intervals import t_quantile
from debate_judge.data.agreement.results import Agreement
from debate_judge.data.schema import Corpus, fingerprint

logger = logging.getLogger(__name__)

FILE = "looks.jsonl"

SHARED = 0.5
"""A look counts if at least this share of its held-out sources is among the sources of the compile."""


@dataclass(frozen=True, slots=True)
class HeldOutReuse:
    """How often held-out figures of a compile's sources have been looked at."""

    times: int
    """Compiles, this one among them; the same compile again counts once."""
    inflation: float | None
    """About how much too large the best of so many figures is; 0 at the first look, None without an interval."""
    unreadable: int = 0
    """Lines of the ledger that could not be read; looks among them are not counted."""

    def __str__(self) -> str:
        """The warning, from the second look on; else what is broken in the ledger, if anything."""
        messages = []
        if self.times > 1:
            size = "an unknown amount" if self.inflation is None else f"about {self.inflation:.2g}"
            messages.append(
                f"The held-out figures of these sources have been seen {self.times} times; the best of {self.times} "
                f"is inflated by {size}"
            )
        if self.unreadable:
            messages.append(f"lines of {FILE} that cannot be read and are not counted: {self.unreadable}")
        return "; ".join(messages)


FIRST_USE = HeldOutReuse(1, 0.0)


def record_held_out_use(
    store: Path, identity: str, corpus: Corpus, held_out: Corpus, figure: Agreement, about: Mapping[str, object]
) -> HeldOutReuse:
    """Write a compile into the ledger, unless it is there already, and count the looks at its sources.

    A ledger that cannot be written costs a warning and not the compile, which is paid for by now.

    Args:
        store: Folder of the ledger.
        identity: Fingerprint of all that decides the compile's result.
        corpus: All sources of the compile.
        held_out: Those of them that `figure` rests on, the compiled judge's agreement averaged over aspects.
        figure: Which is kept in the ledger.
        about: More JSON values for people who read it.
    """
    from filelock import FileLock

    path = store / FILE
    entry = {
        "identity": identity,
        **about,
        **{name: getattr(figure, name) for name in ("statistic", "level", "value", "low", "high")},
        "held_out": sorted(source_fingerprints(held_out)),
    }
    uses: dict[str, set[str]] = {}
    unreadable = 0
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Two compiles that end at once must not write into each other's lines.
        with FileLock(f"{path}.lock", timeout=120):
            content = path.read_bytes() if path.exists() else b""
            uses, unreadable = _read(content)
            if identity not in uses:
                line = json.dumps(entry, ensure_ascii=False, allow_nan=False).encode() + b"\n"
                # A line that was cut off, by a full disk for one, must not swallow this one.
                whole = b"" if content.endswith(b"\n") or not content else b"\n"
                with path.open("ab") as out:
                    out.write(whole + line)
    except OSError as error:
        logger.warning("the look at held-out could not be written into %s: %s", path, error.strerror or error)
    sources = source_fingerprints(corpus)
    others = [held_out_sources for other, held_out_sources in uses.items() if other != identity]
    times = 1 + sum(len(held_out_sources & sources) >= SHARED * len(held_out_sources) for held_out_sources in others)
    return HeldOutReuse(times, inflation(times, figure), unreadable)


def source_fingerprints(corpus: Corpus) -> set[str]:
    """The fingerprint of each source with its context; ratings, candidates and white space do not count."""
    return {fingerprint([group.source_key, " ".join(group.context.split())]) for group in corpus.groups}


def inflation(times: int, figure: Agreement) -> float | None:
    """About how much too large the best of `times` held-out figures is.

    The expected largest of so many independent draws from a normal distribution whose deviation is the standard error
    of the held-out figure, which is read off its 95 % interval. It holds for judges that are equally good and looks at
    different held-out parts. Looks at the same part share the luck of its sources and inflate less: in simulations on
    SummEval and Topical-Chat the best of 5 compiles came out .016 and .025 too large on one part, and .035 and .057
    with the seed changed as well; so the estimate leans to the careful side.

    Returns:
        0 for one look, None where the figure has no interval.
    """
    if times == 1:
        return 0.0
    if figure.low is None or figure.high is None:
        return None
    error = (figure.high - figure.low) / (2 * t_quantile(figure.groups))
    return error * expected_largest(times)


def expected_largest(count: int) -> float:
    """The expected largest of `count` independent standard normal values: the integral of z dF(z)^count."""
    from scipy.special import ndtr

    # By parts on a grid: E = 12 - the integral of F^count from -12 to 12, beyond which nothing is left.
    grid = np.linspace(-12.0, 12.0, 4801)
    return float(12.0 - np.trapezoid(ndtr(grid) ** count, grid))


class _LedgerLine(BaseModel):
    """What is read of a line."""

    identity: str
    held_out: list[str] = Field(min_length=1)


def _read(content: bytes) -> tuple[dict[str, set[str]], int]:
    """Identity -> held-out sources of each look, and the number of lines that are none."""
    uses: dict[str, set[str]] = {}
    unreadable = 0
    for line in filter(bytes.strip, content.split(b"\n")):
        try:
            entry = _LedgerLine.model_validate_json(line, strict=True)
        except ValidationError:
            unreadable += 1
        else:
            uses[entry.identity] = set(entry.held_out)
    return uses, unreadable
