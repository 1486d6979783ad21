"""The log of held-out reuse: how many compiles showed held-out results on the same sources, and how much that inflates
the best of them.

Choosing the best of several compiles by their held-out agreement biases the best one upwards. The log,
`held_out_uses.jsonl` in the store, has one line per use: a compile that showed its held-out results. It lists
fingerprints of the held-out sources instead of the split, so that another seed, other aspects, another judge or LM on
the same sources count, too.
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

LOG_FILE = "held_out_uses.jsonl"

MIN_SHARED = 0.5
"""A use counts if at least this share of its held-out sources is among the sources of the compile."""


@dataclass(frozen=True, slots=True)
class HeldOutReuse:
    """How often held-out results were shown on a compile's sources."""

    times: int
    """Compiles, this one included; a repeated compile counts once."""
    inflation: float | None
    """Expected upward bias of the best of so many results; 0 at the first use, None without an interval."""
    unreadable: int = 0
    """Lines of the log that could not be read; uses among them are not counted."""

    def __str__(self) -> str:
        """A warning from the second use on, and one if lines of the log cannot be read."""
        messages = []
        if self.times > 1:
            size = "an unknown amount" if self.inflation is None else f"about {self.inflation:.2g}"
            messages.append(
                f"The held-out figures of these sources have been shown {self.times} times; the best of {self.times} "
                f"is inflated by {size}"
            )
        if self.unreadable:
            messages.append(f"lines of {LOG_FILE} that cannot be read and are not counted: {self.unreadable}")
        return "; ".join(messages)


FIRST_USE = HeldOutReuse(1, 0.0)


def record_held_out_use(
    store: Path, identity: str, corpus: Corpus, held_out: Corpus, agreement: Agreement, details: Mapping[str, object]
) -> HeldOutReuse:
    """Add a compile to the log, unless it is in it already, and count the uses of its sources.

    If the log cannot be written, a warning is logged and the compile, which is paid for by now, goes on.

    Args:
        store: Folder of the log.
        identity: Fingerprint of everything that the compile's result depends on.
        corpus: All sources of the compile.
        held_out: The held-out sources.
        agreement: The compiled judge's agreement on them, averaged over aspects; it is written to the log.
        details: Further JSON values for people who read the log.
    """
    from filelock import FileLock

    path = store / LOG_FILE
    entry = {
        "identity": identity,
        **details,
        **{name: getattr(agreement, name) for name in ("statistic", "level", "value", "low", "high")},
        "held_out": sorted(source_fingerprints(held_out)),
    }
    uses: dict[str, set[str]] = {}
    unreadable = 0
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Two compiles that end at once must not mix their lines.
        with FileLock(f"{path}.lock", timeout=120):
            content = path.read_bytes() if path.exists() else b""
            uses, unreadable = _read(content)
            if identity not in uses:
                line = json.dumps(entry, ensure_ascii=False, allow_nan=False).encode() + b"\n"
                # A line that was cut off, e.g. by a full disk, must not absorb this one.
                separator = b"" if content.endswith(b"\n") or not content else b"\n"
                with path.open("ab") as out:
                    out.write(separator + line)
    except OSError as error:
        logger.warning("the log of held-out reuse could not be written to %s: %s", path, error.strerror or error)
    sources = source_fingerprints(corpus)
    earlier_uses = [held_out_sources for key, held_out_sources in uses.items() if key != identity]
    times = 1 + sum(len(shown & sources) >= MIN_SHARED * len(shown) for shown in earlier_uses)
    return HeldOutReuse(times, inflation(times, agreement), unreadable)


def source_fingerprints(corpus: Corpus) -> set[str]:
    """The fingerprint of each source with its context; it does not depend on ratings, candidates and white space."""
    return {fingerprint([group.source_key, " ".join(group.context.split())]) for group in corpus.groups}


def inflation(times: int, agreement: Agreement) -> float | None:
    """The expected upward bias of the best of `times` held-out results.

    It is the expected maximum of so many independent draws from a normal distribution whose standard deviation is the
    standard error of `agreement`, taken from its 95 % interval. That assumes equally good judges and uses of different
    held-out sources. Uses of the same held-out sources are correlated and inflate less: in simulations on SummEval and
    Topical-Chat the best of 5 compiles was .016 and .025 too high on one split, and .035 and .057 with different seeds;
    so the estimate is conservative.

    Returns:
        0 for one use, None if `agreement` has no interval.
    """
    if times == 1:
        return 0.0
    if agreement.low is None or agreement.high is None:
        return None
    standard_error = (agreement.high - agreement.low) / (2 * t_quantile(agreement.groups))
    return standard_error * expected_largest(times)


def expected_largest(count: int) -> float:
    """The expected maximum of `count` independent standard normal values: the integral of z dF(z)^count."""
    from scipy.special import ndtr

    # By parts on a grid: E = 12 - the integral of F^count from -12 to 12; the tails beyond are negligible.
    grid = np.linspace(-12.0, 12.0, 4801)
    return float(12.0 - np.trapezoid(ndtr(grid) ** count, grid))


class _LogLine(BaseModel):
    """The fields of a line that are read."""

    identity: str
    held_out: list[str] = Field(min_length=1)


def _read(content: bytes) -> tuple[dict[str, set[str]], int]:
    """Identity -> held-out sources of each use, and the number of unreadable lines."""
    uses: dict[str, set[str]] = {}
    unreadable = 0
    for line in filter(bytes.strip, content.split(b"\n")):
        try:
            entry = _LogLine.model_validate_json(line, strict=True)
        except ValidationError:
            unreadable += 1
        else:
            uses[entry.identity] = set(entry.held_out)
    return uses, unreadable
