"""Topical-Chat with the ratings of USR (Mehri and Eskenazi 2020), in UniEval's layout.

Location: reproduce/data/dialogue/topical_chat.json in the GitHub repository maszhongming/UniEval: 60 dialogues with
6 replies each, means of 3 raters. The dialogues are under CDLA-Sharing-1.0, which binds those who pass them on.
A record looks like this (made up):

    {"source": "do you like chess ? \\n i do . the longest game took 269 moves . \\n\\n",
     "system_id": "Nucleus Decoding (p = 0.3)", "system_output": "wow , that must have taken all day .\\n",
     "context": "the longest tournament game of chess was played in belgrade in 1989 .\\n",
     "scores": {"understandability": 1.0, "naturalness": 2.6666666667, "coherence": 3.0, "engagingness": 2.0,
                "groundedness": 0.3333333333, "overall": 3.6666666667}}

A group is a dialogue history. The actual reply is among the candidates as the system "Original Ground Truth"; it is
rated like the others and not used as a reference. If the speakers had no fact, the context is empty.
"""

from __future__ import annotations

from pathlib import Path

from debate_judge.data.schema import Corpus
from debate_judge.data.sets import hub, unieval
from debate_judge.data.tasks import DIALOGUE

REPORTED = ("naturalness", "coherence", "engagingness", "groundedness")
"""The aspects in the tables of UniEval, G-Eval and DEBATE; understandability and overall are rated as well."""

REMOTE = unieval.remote("dialogue/topical_chat.json", "source", "system_id", "system_output", "context", "scores")


def load(path: str | Path | None = None) -> Corpus:
    """Load the set from a local copy, or download it."""
    records, origin = hub.read("topical_chat", path, REMOTE)
    return Corpus(DIALOGUE, unieval.groups(records, DIALOGUE), origin, REPORTED)
