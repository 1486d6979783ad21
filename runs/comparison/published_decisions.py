"""Decisions that papers printed for judges on public sets, beside ours, apart and labelled like published correlations.

They were made by other LMs, and on all questions of a set or a sample of it, not on a held-out part. Positive is the
answer that is right, as in our tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from debate_judge.data.schema import Corpus
from debate_judge.runs.comparison.table import plain_table, prose
from debate_judge.runs.reports.terminal import Printed

MEASURES = ("accuracy", "kappa", "precision", "recall", "f1")

_NAMES = ("accuracy", "Cohen's kappa", "precision", "recall", "F1")


@dataclass(frozen=True)
class PublishedDecisions:
    """Figures of one source, data set and convention."""

    source: str
    data: tuple[str, ...]
    """Names that the set has after --data."""
    task: str
    convention: str
    rows: tuple[tuple[str, str, tuple[float | None, ...]], ...]
    """(judge, LM, its value in each of `MEASURES`, None where it was not printed)."""


_CLAIMS = "positive: factual; all claims and responses of the set"
_SAMPLED = "positive: factual; {} questions or texts, of each the right or the hallucinated candidate, by chance"
_CHATEVAL = "win, tie or loss against the majority of three people; mean of five runs; 80 questions"

PUBLISHED_DECISIONS: tuple[PublishedDecisions, ...] = (
    PublishedDecisions(
        "ChatEval (Chan et al. 2023), Table 1",
        ("faireval",),
        "open-questions",
        _CHATEVAL,
        (
            ("annotator 1", "–", (0.688, 0.50, None, None, None)),
            ("annotator 2", "–", (0.763, 0.62, None, None, None)),
            ("annotator 3", "–", (0.700, 0.50, None, None, None)),
            ("FairEval, MEC + BPC", "ChatGPT", (0.587, 0.31, None, None, None)),
            ("FairEval, MEC + BPC", "GPT-4", (0.625, 0.37, None, None, None)),
            ("ChatEval, single agent", "ChatGPT", (0.537, 0.27, None, None, None)),
            ("ChatEval, ensemble", "ChatGPT", (0.555, 0.29, None, None, None)),
            ("ChatEval", "ChatGPT", (0.600, 0.30, None, None, None)),
            ("ChatEval, single agent", "GPT-4", (0.608, 0.36, None, None, None)),
            ("ChatEval, ensemble", "GPT-4", (0.615, 0.38, None, None, None)),
            ("ChatEval", "GPT-4", (0.638, 0.40, None, None, None)),
        ),
    ),
    PublishedDecisions(
        "Sun et al. 2024, Table 2, claims",
        ("factool_claims",),
        "claim-factuality",
        _CLAIMS,
        (
            ("self-check, 0 examples", "ChatGPT", (0.7554, None, 0.8000, 0.9040, 0.8488)),
            ("self-check, 3 examples", "ChatGPT", (0.6953, None, 0.7912, 0.8136, 0.8023)),
            ("Factool", "ChatGPT", (0.7425, None, 0.9091, 0.7345, 0.8125)),
            ("hallucination debate", "ChatGPT", (0.7768, None, 0.8882, 0.8079, 0.8462)),
        ),
    ),
    PublishedDecisions(
        "Sun et al. 2024, Table 2, responses",
        ("factool",),
        "question-answering",
        _CLAIMS,
        (
            ("self-check, 0 examples", "ChatGPT", (0.5400, None, 0.5000, 0.6087, 0.5490)),
            ("self-check, 3 examples", "ChatGPT", (0.5400, None, 0.5000, 0.4783, 0.4889)),
            ("Factool", "ChatGPT", (0.6400, None, 0.6667, 0.4348, 0.5263)),
            ("hallucination debate", "ChatGPT", (0.7200, None, 0.8000, 0.5217, 0.6315)),
        ),
    ),
    PublishedDecisions(
        "Sun et al. 2024, Table 3, QA",
        ("halueval", "halueval_qa"),
        "question-answering",
        _SAMPLED.format(150),
        (
            ("HaluEval's prompt", "ChatGPT", (0.5600, None, 0.5421, 0.7733, 0.6374)),
            ("Factool", "ChatGPT", (0.6733, None, 0.6250, 0.8667, 0.7263)),
            ("hallucination debate", "ChatGPT", (0.7067, None, 0.6667, 0.8267, 0.7381)),
        ),
    ),
    PublishedDecisions(
        "Sun et al. 2024, Table 3, summarization",
        ("halueval", "halueval_summarization"),
        "summary-factuality",
        _SAMPLED.format(50),
        (
            ("HaluEval's prompt", "ChatGPT", (0.5800, None, 0.5435, 1.0, 0.7042)),
            ("Factool", "ChatGPT", (0.6400, None, 0.7059, 0.4800, 0.5714)),
            ("hallucination debate", "ChatGPT", (0.7000, None, 0.7273, 0.6400, 0.6809)),
        ),
    ),
    PublishedDecisions(
        "Sun et al. 2024, Table 3, dialogue",
        ("halueval", "halueval_dialogue"),
        "dialogue-factuality",
        _SAMPLED.format(150),
        (
            ("HaluEval's prompt", "ChatGPT", (0.6800, None, 0.6310, 0.7571, 0.6883)),
            ("Factool", "ChatGPT", (0.7467, None, 0.7424, 0.7000, 0.7206)),
            ("hallucination debate", "ChatGPT", (0.7600, None, 0.8148, 0.6286, 0.7097)),
        ),
    ),
)


def fitting_decisions(corpus: Corpus) -> list[PublishedDecisions]:
    """The published tables of the same set."""
    return [t for t in PUBLISHED_DECISIONS if corpus.origin.name in t.data and t.task == corpus.task.name]


def published_decisions(tables: Sequence[PublishedDecisions], style: str) -> list[Printed]:
    """The tables, each above a line that says where it is from and by which convention."""
    return [part for table in tables for part in ("", *_parts(table, style))][1:]


def decisions_to_json(tables: Sequence[PublishedDecisions]) -> list[dict[str, object]]:
    """The tables as plain values."""
    return [
        {
            "source": table.source,
            "data": table.data[-1],
            "convention": table.convention,
            "rows": [
                {"judge": judge, "lm": None if lm == "–" else lm, **dict(zip(MEASURES, values, strict=True))}
                for judge, lm, values in table.rows
            ],
        }
        for table in tables
    ]


def _parts(table: PublishedDecisions, style: str) -> list[Printed]:
    printed = [i for i in range(len(MEASURES)) if any(values[i] is not None for _, _, values in table.rows)]
    header = ["published, not run here", "LM", *(_NAMES[i] for i in printed)]
    rows = [[judge, lm, *(_cell(values[i]) for i in printed)] for judge, lm, values in table.rows]
    return [plain_table(header, rows, style), "", prose(f"{table.source}: {table.convention}", style)]


def _cell(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"
