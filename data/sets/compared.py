"""Public sets of pairs: LLMBar (Zeng et al. 2024) and PandaLM's test set (Wang et al. 2024).

Home: Dataset/LLMBar/*/dataset.json in the GitHub repository princeton-nlp/LLMBar: 100 natural and 319 adversarial pairs
of answers to an instruction, each with the better one, on which the authors agree. And data/testset-v1.json in
WeOpenML/PandaLM: 999 pairs of answers to 170 instructions by five small LMs, compared by three people; pairs with an
empty answer are left out. Records look like this (made up):

    {"input": "Name a river.", "output_1": "The Ash.", "output_2": "Water.", "label": 1}
    {"instruction": "Name a river.", "input": "", "response1": "The Ash.", "response2": "Water.", "annotator1": 0,
     "annotator2": 1, "annotator3": 1}

where 1 and 2 are the better answer, and 0 is a tie. A group is a pair; an instruction may have several.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from debate_judge.data.files.pairs import PREFERENCE, PairColumns, outcome
from debate_judge.data.files.records import Record
from debate_judge.data.schema import Candidate, Corpus, Origin, RatedGroup, fingerprint
from debate_judge.data.sets import hub
from debate_judge.data.tasks import PAIRS

logger = logging.getLogger(__name__)

LLMBAR = (
    "https://raw.githubusercontent.com/princeton-nlp/LLMBar/900616bff90b6c6c8e1681f7d079250637c55992/Dataset/LLMBar/"
)
PANDALM = (
    "https://raw.githubusercontent.com/WeOpenML/PandaLM/3871806e72b4832f815ecafd24d3503c73403f48/data/testset-v1.json"
)


class _PairFields(NamedTuple):
    texts: tuple[str, str]
    verdicts: tuple[str, ...]
    source: tuple[str, ...]
    """Fields that make up the instruction."""


_OF_LLMBAR = _PairFields(("output_1", "output_2"), ("label",), ("input",))
_OF_PANDALM = _PairFields(
    ("response1", "response2"), ("annotator1", "annotator2", "annotator3"), ("instruction", "input")
)
PARTS: dict[str, tuple[_PairFields, tuple[str, ...]]] = {
    "llmbar": (_OF_LLMBAR, (f"{LLMBAR}Natural/dataset.json",)),
    "llmbar_adversarial": (
        _OF_LLMBAR,
        tuple(f"{LLMBAR}Adversarial/{part}/dataset.json" for part in ("Neighbor", "GPTInst", "GPTOut", "Manual")),
    ),
    "pandalm": (_OF_PANDALM, (PANDALM,)),
}
"""Name of the set -> its layout and the files at its home."""


def load(path: str | Path | None = None, part: str = "llmbar") -> Corpus:
    """Load a set from a local copy, or from its home.

    Args:
        path: One file in the layout of the set.
        part: One of `PARTS`.

    Raises:
        InputError: The copy cannot be used, or the home cannot be reached.
    """
    layout, addresses = PARTS[part]
    columns = (*layout.source, *layout.texts, *layout.verdicts)
    homes = [hub.Home(address, address.split("/")[5], columns) for address in addresses]
    read = [hub.read(part, path, home) for home in (homes if path is None else homes[:1])]
    records = [record for found, _ in read for record in found]
    for record in records:
        record.require(*columns)
    whole = [record for record in records if all(str(record.value(column)).strip() for column in layout.texts)]
    if len(whole) < len(records):
        logger.warning("%s: %d pairs with an empty answer are left out", part, len(records) - len(whole))
    groups: dict[str, RatedGroup] = {}
    for group in (_group(record, layout) for record in whole):
        # A pair that was compared twice has the ratings of both.
        groups[group.id] = _together(groups[group.id], group) if group.id in groups else group
    origin = read[0][1] if path is not None else Origin(part, addresses[0], homes[0].revision)
    return Corpus(PAIRS, tuple(groups.values()), origin)


def _together(one: RatedGroup, other: RatedGroup) -> RatedGroup:
    both = zip(one.candidates, other.candidates, strict=True)
    rated = ((a, (*a.ratings[PREFERENCE], *b.ratings[PREFERENCE])) for a, b in both)
    return replace(one, candidates=tuple(replace(a, ratings={PREFERENCE: values}) for a, values in rated))


def _answer(record: Record, column: str) -> str:
    """An answer; PandaLM's file has some that are the word alone as true and false of JSON."""
    value = record.value(column)
    return str(value) if isinstance(value, bool) else record.text(column)


def _group(record: Record, layout: _PairFields) -> RatedGroup:
    pair = PairColumns(layout.texts, {}, ("1", "2"))
    first = [outcome(record, column, record.value(column), pair) for column in layout.verdicts]
    ratings = (tuple(first), tuple(1 - rating for rating in first))
    source = "\n\n".join(filter(str.strip, (record.optional_text(field) for field in layout.source)))
    texts = [_answer(record, column) for column in layout.texts]
    return RatedGroup(
        fingerprint([source, *texts]),
        source,
        tuple(
            Candidate(str(number), text, {PREFERENCE: values})
            for number, (text, values) in enumerate(zip(texts, ratings, strict=True), start=1)
        ),
    )
