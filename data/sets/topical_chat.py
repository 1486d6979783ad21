"""Topical-Chat with the ratings of USR (Mehri and Eskenazi 2020), in UniEval's packing.

Home: reproduce/data/dialogue/topical_chat.json in the GitHub repository maszhongming/UniEval: 60 dialogues with
6 replies each, means of 3 raters. The dialogues are under CDLA-Sharing-1.0, which binds whoever passes them on.
A record looks like this (made up):

    {"source": "do you like chess ? \\n i do . the longest game took 269 moves . \\n\\n",
     "system_id": "Nucleus Decoding (p = 0.3)", "system_output": "wow , that must have taken all day .\\n",
     "context": "the longest tournament game of chess was played in belgrade in 1989 .\\n",
     "scores": {"understandability": 1.0, "naturalness": 2.6666666667, "coherence": 3.0, "engagingness": 2.0,
                "groundedness": 0.3333333333, "overall": 3.6666666667}}

A group is a dialogue history. The reply that was really given stands among the candidates under the system
"Original Ground Truth"; it is rated like the others and is no reference. Where the speakers had no fact the
context is empty.
"""

from __future__ import annotations

from pathlib import Path

from debate_judge.data.errors import InputError
from debate_judge.data.files import reading
from debate_judge.data.schema import Corpus, Origin
from debate_judge.data.sets import hub as homes
from debate_judge.data.sets import unieval
from debate_judge.data.tasks import DIALOGUE

COMMIT = "9d9b51dc716f40f6b454a4455c7fe2f843aabfbb"
HOME = f"https://raw.githubusercontent.com/maszhongming/UniEval/{COMMIT}/reproduce/data/dialogue/topical_chat.json"
COLUMNS = ("source", "system_id", "system_output", "context", "scores")


def load(path: str | Path | None = None) -> Corpus:
    """Load the set from a local copy, or from its home.

    Raises:
        InputError: the copy cannot be used, or the home cannot be reached.
    """
    if path is None:
        records = homes.fetch("topical_chat", HOME, split="train", columns=COLUMNS)
        origin = Origin("topical_chat", HOME, COMMIT)
    else:
        records = list(reading.json_records(Path(path)))
        origin = Origin("topical_chat", str(path))
    for record in records:
        record.require(*COLUMNS)
    if not records:
        raise InputError("no records in the file", file=path, expected="records with " + ", ".join(COLUMNS))
    return Corpus(DIALOGUE, unieval.groups(records, DIALOGUE), origin)
