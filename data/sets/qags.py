"""QAGS (Wang et al. 2020): summaries of news articles, rated for factual consistency, in UniEval's packing.

Home: reproduce/data/fact/qags_cnndm.json and qags_xsum.json in the GitHub repository maszhongming/UniEval: 235
summaries of CNN/DM and 239 of XSum articles. Three raters said of every sentence whether the article supports it;
the rating is the share of sentences that the majority holds supported. A record looks like this (made up):

    {"doc_id": 0, "system_id": 0, "source": "The town of Elm has bought a plough .", "reference": "The town of …",
     "system_output": "Elm has sold a plough .", "scores": {"consistency": 0.0}}

A group is an article, nearly always with one summary, so agreement exists at sample level only. The packing
repeats the article under `reference`; that is no reference, and is left out.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from debate_judge.data.errors import InputError
from debate_judge.data.files import reading
from debate_judge.data.schema import Aspect, Corpus, Origin, Scale, Task
from debate_judge.data.sets import hub as homes
from debate_judge.data.sets import unieval
from debate_judge.data.sets.merging import merged

COMMIT = "9d9b51dc716f40f6b454a4455c7fe2f843aabfbb"
HOME = f"https://raw.githubusercontent.com/maszhongming/UniEval/{COMMIT}/reproduce/data/fact/"
COLUMNS = ("doc_id", "system_id", "source", "system_output", "scores")

TASK = Task(
    name="summary-consistency",
    source_label="news article",
    candidate_label="summary",
    aspects=(
        Aspect(
            "consistency",
            "How much of the summary the article supports. Check it sentence by sentence: a sentence counts as "
            "supported only if everything in it, names, numbers and who did what included, can be found in the "
            "article. 1 means every sentence is supported, 0 none, and values between are the share that is. Style and "
            "omissions do not count.",
            Scale(0, 1),
        ),
    ),
)


def load(path: str | Path | None = None, part: str = "cnndm") -> Corpus:
    """Load one part of the set from a local copy, or from its home.

    Args:
        path: A file in UniEval's packing, of either part.
        part: `cnndm` or `xsum`; decides what is loaded where no path is given.

    Raises:
        InputError: The copy cannot be used, or the home cannot be reached.
    """
    if path is None:
        home = f"{HOME}qags_{part}.json"
        records = homes.fetch(f"qags_{part}", home, split="train", columns=COLUMNS)
        origin = Origin(f"qags_{part}", home, COMMIT)
    else:
        records = list(reading.json_records(Path(path)))
        origin = Origin("qags", str(path))
    if not records:
        raise InputError("no records in the file", file=path, expected="records with " + ", ".join(COLUMNS))
    for record in records:
        record.require(*COLUMNS)
    groups = merged((record, group) for record in records for group in unieval.groups([record], TASK))
    return Corpus(TASK, tuple(replace(group, references=()) for group in groups), origin)
