"""Public sets of pairs: LLMBar (Zeng et al. 2024) and PandaLM's test set (Wang et al. 2024).

Location: Dataset/LLMBar/*/dataset.json in the GitHub repository princeton-nlp/LLMBar: 100 natural and 319 adversarial
pairs of answers to an instruction, each with the better one, on which the authors agree. And data/testset-v1.json in
WeOpenML/PandaLM: 999 pairs of answers to 170 instructions by five small LMs, compared by three people; pairs with an
empty answer are left out. Records look like this (made up):

    {"input": "Name a river.", "output_1": "The Ash.", "output_2": "Water.", "label": 1}
    {"instruction": "Name a river.", "input": "", "response1": "The Ash.", "response2": "Water.", "annotator1": 0,
     "annotator2": 1, "annotator3": 1}

where 1 and 2 are the better answer, and 0 is a tie. A group is a pair; an instruction may have several.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from debate_judge.data.files.pairs import PREFERENCE, PairColumns, comparisons_in, pair_columns
from debate_judge.data.files.records import Record
from debate_judge.data.schema import Candidate, Corpus, RatedGroup, fingerprint
from debate_judge.data.sets import hub
from debate_judge.data.tasks import PAIRS

logger = logging.getLogger(__name__)


def _llmbar(*parts: str) -> tuple[hub.RemoteSet, ...]:
    commit, columns = "900616bff90b6c6c8e1681f7d079250637c55992", ("input", "output_1", "output_2", "label")
    files = [f"Dataset/LLMBar/{part}/dataset.json" for part in parts]
    return tuple(hub.github("princeton-nlp/LLMBar", commit, file, *columns) for file in files)


_PANDALM = hub.github(
    "WeOpenML/PandaLM",
    "3871806e72b4832f815ecafd24d3503c73403f48",
    "data/testset-v1.json",
    *("instruction", "input", "response1", "response2", "annotator1", "annotator2", "annotator3"),
)
REMOTES: Mapping[str, tuple[hub.RemoteSet, ...]] = {
    "llmbar": _llmbar("Natural"),
    "llmbar_adversarial": _llmbar(*(f"Adversarial/{part}" for part in ("Neighbor", "GPTInst", "GPTOut", "Manual"))),
    "pandalm": (_PANDALM,),
}
"""Name of the set -> its files."""


def load(path: str | Path | None = None, part: str = "llmbar") -> Corpus:
    """Load one of the `REMOTES` from a local copy of one file, or download it."""
    remotes = REMOTES[part] if path is None else REMOTES[part][:1]
    loaded = [hub.read(part, path, remote) for remote in remotes]
    records = [record for file_records, _ in loaded for record in file_records]
    pairs = [(record, pair) for record in records if (pair := pair_columns(record))]
    complete = [(record, pair) for record, pair in pairs if all(str(record.value(c)).strip() for c in pair.texts)]
    if len(complete) < len(records):
        logger.warning("%s: %d pairs with an empty answer are left out", part, len(records) - len(complete))
    groups: dict[str, RatedGroup] = {}
    for group in (_group(record, pair) for record, pair in complete):
        # A pair that was compared twice gets the ratings of both comparisons.
        groups[group.id] = _merge_ratings(groups[group.id], group) if group.id in groups else group
    return Corpus(PAIRS, tuple(groups.values()), loaded[0][1])


def _merge_ratings(first: RatedGroup, second: RatedGroup) -> RatedGroup:
    both = zip(first.candidates, second.candidates, strict=True)
    rated = ((a, (*a.ratings[PREFERENCE], *b.ratings[PREFERENCE])) for a, b in both)
    return replace(first, candidates=tuple(replace(a, ratings={PREFERENCE: values}) for a, values in rated))


def _answer(record: Record, column: str) -> str:
    """An answer; in PandaLM's file, the answers `true` and `false` are JSON booleans."""
    value = record.value(column)
    return str(value) if isinstance(value, bool) else record.text(column)


def _group(record: Record, pair: PairColumns) -> RatedGroup:
    first = tuple(rating for *_, rating in comparisons_in(record, pair) if rating is not None)
    parts = (record.optional_text(field) for field in ("instruction", "input") if field in record.values)
    source = "\n\n".join(filter(str.strip, parts))
    texts = [_answer(record, column) for column in pair.texts]
    ratings = (first, tuple(1 - rating for rating in first))
    return RatedGroup(
        fingerprint([source, *texts]),
        source,
        tuple(Candidate(n, text, {PREFERENCE: r}) for n, text, r in zip("12", texts, ratings, strict=True)),
    )
