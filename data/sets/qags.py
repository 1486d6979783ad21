"""QAGS (Wang et al. 2020): summaries of news articles, rated for factual consistency, in UniEval's layout.

Location: reproduce/data/fact/qags_cnndm.json and qags_xsum.json in the GitHub repository maszhongming/UniEval: 235
summaries of CNN/DM and 239 of XSum articles. Three raters said of every sentence whether the article supports it;
the rating is the share of sentences that the majority holds supported. A record looks like this (made up):

    {"doc_id": 0, "system_id": 0, "source": "The town of Elm has bought a plough .", "reference": "The town of …",
     "system_output": "Elm has sold a plough .", "scores": {"consistency": 0.0}}

A group is an article, nearly always with one summary, so agreement exists at sample level only. The layout
repeats the article under `reference`; this is not a reference summary, and is left out.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from debate_judge.data.schema import Aspect, Corpus, Scale, Task
from debate_judge.data.sets import hub, unieval

COLUMNS = ("doc_id", "system_id", "source", "system_output", "scores")
REMOTES = {part: unieval.remote(f"fact/qags_{part}.json", *COLUMNS) for part in ("cnndm", "xsum")}

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
    """Load a copy of either part in UniEval's layout, or download a part, `cnndm` or `xsum`."""
    records, origin = hub.read("qags" if part == "cnndm" else f"qags_{part}", path, REMOTES[part])
    groups = hub.merge_groups((record, group) for record in records for group in unieval.groups([record], TASK))
    return Corpus(TASK, tuple(replace(group, references=()) for group in groups), origin)
