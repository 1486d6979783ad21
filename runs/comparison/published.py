"""Figures that papers printed for judges on public sets, to be shown beside ours, apart and labelled.

They were not computed here: other LMs, all sources of a set and not a held-out part, and rules for undefined groups
that the papers mostly do not state. Each table says where it is from. A figure is given as it was printed, an
average that is not the mean of its columns included.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from debate_judge.data.agreement.tables import Statistic
from debate_judge.data.schema import Level
from debate_judge.runs.comparison.results import EvalSetup
from debate_judge.runs.comparison.table import SYMBOLS, number, plain_table, prose
from debate_judge.runs.reports.terminal import Printed

_TAKEN_OVER = "†"


@dataclass(frozen=True)
class PublishedRow:
    """One judge as a paper printed it."""

    judge: str
    lm: str
    values: tuple[float | None, ...]
    """Average first, then the table's aspects; for each of them the table's statistics in turn. None: not printed."""


@dataclass(frozen=True)
class PublishedTable:
    """Figures of one source, data set and convention."""

    source: str
    data: str
    """Name of the set, as after --data."""
    level: Level
    statistics: tuple[Statistic, Statistic]
    aspects: tuple[str, ...]
    convention: str
    """What is known of how the figures were computed."""
    rows: tuple[PublishedRow, ...]

    def cell(self, row: PublishedRow, aspect: str | None, statistic: Statistic) -> float | None:
        """A printed figure, or None; no aspect stands for the average."""
        if statistic not in self.statistics:
            return None
        column = 0 if aspect is None else 1 + self.aspects.index(aspect)
        return row.values[column * len(self.statistics) + self.statistics.index(statistic)]


_SUMMEVAL = ("coherence", "consistency", "fluency", "relevance")
_TOPICAL_CHAT = ("naturalness", "coherence", "engagingness", "groundedness")

_DEBATE_CONVENTION = (
    "correlation per source text, averaged over the texts; undefined groups: not stated; "
    f"{_TAKEN_OVER}: taken over by the paper from Liu et al. (2023), computed as there"
)

# The LMs of the rows are as the text of the paper has them: its G-Eval, ChatEval and DEBATE with GPT-4 are those
# that section 3 compares (0.597 is 0.064 above 0.533).
PUBLISHED: tuple[PublishedTable, ...] = (
    PublishedTable(
        "DEBATE (Kim et al. 2024), Table 1",
        "summeval",
        "summary",
        ("spearman", "kendall"),
        _SUMMEVAL,
        f"{_DEBATE_CONVENTION}; variant of tau: not stated; 100 articles",
        (
            PublishedRow("ROUGE-L†", "–", (0.165, 0.128, 0.128, 0.099, 0.115, 0.092, 0.105, 0.084, 0.311, 0.237)),
            PublishedRow("BERTScore†", "–", (0.225, 0.175, 0.284, 0.211, 0.110, 0.090, 0.193, 0.158, 0.312, 0.243)),
            PublishedRow("UniEval†", "–", (0.474, 0.377, 0.575, 0.442, 0.446, 0.371, 0.449, 0.371, 0.426, 0.325)),
            PublishedRow("MoverScore†", "–", (0.191, 0.148, 0.159, 0.118, 0.157, 0.127, 0.129, 0.105, 0.318, 0.244)),
            PublishedRow("BARTScore†", "–", (0.385, 0.305, 0.448, 0.342, 0.382, 0.315, 0.356, 0.292, 0.356, 0.273)),
            # Its printed average in Spearman is not the mean of the printed columns (0.378).
            PublishedRow("GPTScore", "–", (0.394, 0.344, 0.284, 0.242, 0.506, 0.480, 0.415, 0.390, 0.306, 0.265)),
            PublishedRow(
                "G-Eval", "Gemini Pro", (0.290, 0.250, 0.350, 0.279, 0.403, 0.368, 0.158, 0.148, 0.248, 0.206)
            ),
            PublishedRow(
                "DEBATE", "Gemini Pro", (0.421, 0.356, 0.467, 0.365, 0.521, 0.501, 0.311, 0.302, 0.386, 0.256)
            ),
            PublishedRow("G-Eval", "GPT-3.5", (0.387, 0.320, 0.522, 0.406, 0.396, 0.331, 0.277, 0.267, 0.354, 0.277)),
            PublishedRow(
                "MultiAgent", "GPT-3.5", (0.350, 0.309, 0.407, 0.348, 0.354, 0.325, 0.241, 0.223, 0.398, 0.341)
            ),
            PublishedRow("DEBATE", "GPT-3.5", (0.472, 0.447, 0.565, 0.521, 0.516, 0.492, 0.397, 0.386, 0.410, 0.389)),
            PublishedRow("G-Eval", "GPT-4", (0.533, 0.450, 0.522, 0.420, 0.600, 0.553, 0.495, 0.416, 0.517, 0.412)),
            PublishedRow("ChatEval", "GPT-4", (0.528, 0.458, 0.477, 0.412, 0.595, 0.516, 0.501, 0.432, 0.539, 0.472)),
            PublishedRow("MultiAgent", "GPT-4", (0.507, 0.459, 0.486, 0.410, 0.628, 0.596, 0.410, 0.393, 0.505, 0.436)),
            PublishedRow("DEBATE", "GPT-4", (0.597, 0.575, 0.610, 0.588, 0.643, 0.614, 0.542, 0.515, 0.593, 0.582)),
        ),
    ),
    PublishedTable(
        "DEBATE (Kim et al. 2024), Table 3",
        "summeval",
        "summary",
        ("spearman", "kendall"),
        _SUMMEVAL,
        "as Table 1, with a longer prompt for the devil's advocate; 100 articles",
        (
            PublishedRow(
                "DEBATE, sophisticated", "GPT-4", (0.601, 0.573, 0.605, 0.592, 0.655, 0.610, 0.556, 0.521, 0.588, 0.569)
            ),
        ),
    ),
    PublishedTable(
        "G-Eval (Liu et al. 2023), as its copies have it",
        "summeval",
        "summary",
        ("spearman", "kendall"),
        (),
        "printed average of the four aspects, which is not the mean of the printed columns (0.523 or 0.536, by the "
        "copy); undefined groups: not stated",
        (PublishedRow("G-Eval", "GPT-4", (0.514, 0.418)),),
    ),
    PublishedTable(
        "Themis (2024), README",
        "summeval",
        "summary",
        ("spearman", "kendall"),
        (),
        "mean of the four aspects; undefined groups: not stated",
        (
            PublishedRow("Themis", "Themis-8B", (0.553, 0.499)),
            PublishedRow("plain prompt", "GPT-4 Turbo", (0.511, 0.423)),
        ),
    ),
    PublishedTable(
        "BinEval (2026), second-hand",
        "summeval",
        "summary",
        ("spearman", "kendall"),
        _SUMMEVAL,
        "mean of the four aspects; undefined groups: not stated",
        (
            PublishedRow(
                "BinEval", "Claude Sonnet 4", (0.563, 0.491, 0.652, None, 0.655, None, 0.540, None, 0.404, None)
            ),
        ),
    ),
    PublishedTable(
        "DEBATE (Kim et al. 2024), Table 1",
        "topical_chat",
        "summary",
        ("pearson", "spearman"),
        _TOPICAL_CHAT,
        f"{_DEBATE_CONVENTION}; 60 dialogues",
        (
            PublishedRow("ROUGE-L†", "–", (0.243, 0.244, 0.176, 0.146, 0.193, 0.203, 0.295, 0.300, 0.310, 0.327)),
            PublishedRow("BERTScore†", "–", (0.262, 0.273, 0.226, 0.209, 0.214, 0.233, 0.317, 0.335, 0.291, 0.317)),
            PublishedRow("UniEval†", "–", (0.552, 0.417, 0.455, 0.330, 0.602, 0.455, 0.573, 0.430, 0.577, 0.453)),
            # Its printed average in Spearman is not the mean of the printed columns (0.211).
            PublishedRow("MoverScore", "–", (0.222, 0.238, 0.169, 0.170, 0.247, 0.259, 0.275, 0.269, 0.198, 0.147)),
            PublishedRow("BARTScore", "–", (0.293, 0.276, 0.287, 0.266, 0.251, 0.225, 0.411, 0.406, 0.226, 0.205)),
            PublishedRow("GPTScore", "–", (0.367, 0.345, 0.353, 0.289, 0.279, 0.223, 0.472, 0.451, 0.362, 0.417)),
            PublishedRow(
                "G-Eval", "Gemini Pro", (0.353, 0.324, 0.266, 0.235, -0.015, 0.006, 0.508, 0.438, 0.651, 0.616)
            ),
            PublishedRow(
                "DEBATE", "Gemini Pro", (0.450, 0.418, 0.402, 0.412, 0.191, 0.113, 0.541, 0.516, 0.663, 0.631)
            ),
            PublishedRow("G-Eval", "GPT-3.5", (0.399, 0.394, 0.348, 0.362, 0.510, 0.500, 0.355, 0.361, 0.385, 0.353)),
            PublishedRow(
                "MultiAgent", "GPT-3.5", (0.368, 0.363, 0.237, 0.231, 0.295, 0.302, 0.540, 0.523, 0.398, 0.397)
            ),
            PublishedRow("DEBATE", "GPT-3.5", (0.499, 0.452, 0.502, 0.469, 0.485, 0.430, 0.556, 0.480, 0.452, 0.428)),
            PublishedRow("G-Eval", "GPT-4", (0.616, 0.623, 0.632, 0.609, 0.614, 0.619, 0.547, 0.579, 0.670, 0.684)),
            PublishedRow("ChatEval", "GPT-4", (0.675, 0.653, 0.620, 0.604, 0.657, 0.641, 0.687, 0.676, 0.737, 0.692)),
            PublishedRow("MultiAgent", "GPT-4", (0.656, 0.649, 0.590, 0.570, 0.665, 0.667, 0.709, 0.729, 0.659, 0.630)),
            PublishedRow("DEBATE", "GPT-4", (0.735, 0.729, 0.699, 0.683, 0.735, 0.727, 0.761, 0.705, 0.745, 0.800)),
        ),
    ),
    # The rows that this table takes over from G-Eval's paper are left out: what it calls tau there is Pearson's r.
    PublishedTable(
        "ChatEval (Chan et al. 2023), Table 2",
        "topical_chat",
        "sample",
        ("spearman", "kendall"),
        _TOPICAL_CHAT,
        "turn-level after Zhong et al. (2022), pooled over all replies; variant of tau: not stated; 60 dialogues",
        (
            PublishedRow(
                "ChatEval, single agent",
                "ChatGPT",
                (0.544, 0.503, 0.474, 0.421, 0.527, 0.482, 0.599, 0.549, 0.576, 0.558),
            ),
            PublishedRow(
                "ChatEval, ensemble", "ChatGPT", (0.545, 0.495, 0.421, 0.359, 0.486, 0.442, 0.611, 0.551, 0.661, 0.628)
            ),
            PublishedRow("ChatEval", "ChatGPT", (0.552, 0.510, 0.441, 0.396, 0.500, 0.454, 0.664, 0.607, 0.602, 0.583)),
            PublishedRow(
                "ChatEval, single agent",
                "GPT-4",
                (0.658, 0.611, 0.532, 0.483, 0.591, 0.535, 0.734, 0.676, 0.774, 0.750),
            ),
            PublishedRow(
                "ChatEval, ensemble", "GPT-4", (0.664, 0.611, 0.512, 0.450, 0.607, 0.544, 0.755, 0.693, 0.781, 0.756)
            ),
            PublishedRow("ChatEval", "GPT-4", (0.684, 0.632, 0.630, 0.571, 0.619, 0.561, 0.765, 0.695, 0.722, 0.700)),
        ),
    ),
)


def fitting(setup: EvalSetup) -> list[PublishedTable]:
    """The published tables of the same set, level and at least one of the statistics."""
    return [
        table
        for table in PUBLISHED
        if table.data == setup.corpus.origin.name
        and table.level == setup.level
        and set(table.statistics) & set(setup.statistics)
    ]


def published(setup: EvalSetup, style: str) -> list[Printed]:
    """The fitting tables as one, below a line that says what they are not."""
    tables = fitting(setup)
    if not tables:
        about = f"{setup.corpus.origin.name} at {setup.level} level in {' or '.join(setup.statistics)}"
        return [prose(f"no published figures are kept for {about}", style)]
    marks = "/".join(SYMBOLS[s] for s in setup.statistics)
    names = [a.name for a in setup.aspects]
    rows = [
        [
            row.judge,
            row.lm,
            *(_cells(table, row, name, setup) for name in names),
            # An average of other aspects than those of the table above would mislead.
            _cells(table, row, None, setup) if not table.aspects or set(table.aspects) == set(names) else "–",
            f"[{place}]",
        ]
        for place, table in enumerate(tables, 1)
        for row in table.rows
    ]
    header = ["published, not run here", "LM", *(f"{name} {marks}" for name in names), f"average {marks}", "source"]
    sources = "\n".join(f"[{i}] {table.source}: {table.convention}" for i, table in enumerate(tables, 1))
    return [plain_table(header, rows, style), "", prose(sources, style)]


def to_json(tables: Sequence[PublishedTable]) -> list[dict[str, object]]:
    """The tables as plain values."""
    return [
        {
            "source": table.source,
            "data": table.data,
            "level": table.level,
            "convention": table.convention,
            "rows": [
                {
                    "judge": row.judge,
                    "lm": None if row.lm == "–" else row.lm,
                    "average": {s: table.cell(row, None, s) for s in table.statistics},
                    "aspects": {a: {s: table.cell(row, a, s) for s in table.statistics} for a in table.aspects},
                }
                for row in table.rows
            ],
        }
        for table in tables
    ]


def _cells(table: PublishedTable, row: PublishedRow, aspect: str | None, setup: EvalSetup) -> str:
    if aspect is not None and aspect not in table.aspects:
        return "–"
    return "/".join(number(table.cell(row, aspect, s)) for s in setup.statistics)
