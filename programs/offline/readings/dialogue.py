"""What the offline LM measures on a reply in a conversation, with an optional fact that it may use."""

from __future__ import annotations

import re
from functools import lru_cache

from debate_judge.programs.offline.readings import text as tools
from debate_judge.programs.offline.readings.summary import Measurement
from debate_judge.programs.offline.readings.text import PLAIN, Text
from debate_judge.programs.offline.readings.words import SELF_TALK, SELF_TALK_SHORT

_RUN_ON = re.compile(r", (?:and |but |so )?(?:i|he|she|it|they|we|that|there|you)\b")
_WINDOW = 20
_NO_FACT = frozenset(("", "_nofact", "nofact"))


def has_fact(fact: str) -> bool:
    """Whether there is a fact; some corpora mark its absence with a word."""
    return fact.strip().lower() not in _NO_FACT


@lru_cache(maxsize=256)
def _prepare(text: str) -> Text:
    return tools.read(text)


@lru_cache(maxsize=2048)
def readings(history: str, fact: str, reply: str) -> dict[str, Measurement]:
    """Measure a reply. The names are those of `offline_rubric.FEATURES`.

    Args:
        history: The turns so far, one a line.
        fact: The fact that the reply may use; empty if there is none.
        reply: The candidate.
    """
    past, known, text = _prepare(history), _prepare(fact if has_fact(fact) else ""), tools.read(reply)
    return {**_wording(text), **_grounds(past, known, text)}


def _wording(text: Text) -> dict[str, Measurement]:
    # Words that fit any conversation are not counted.
    specific = [c for c in text.distinct if c not in PLAIN]
    talk = [f"{a} {b}" for a, b in tools.pairs(text.all_words) if a == "i" and b in SELF_TALK]
    talk += [w for w in text.all_words if w in SELF_TALK_SHORT]
    glued = _RUN_ON.findall(" ".join(tools.straight(text.raw).lower().split()).replace(" ,", ","))
    return {
        "specific": Measurement(float(len(specific)), ", ".join(specific[:4])),
        "sentences": Measurement(float(len(text.sentences))),
        "selftalk": Measurement(float(len(talk)), ", ".join(talk[:3])),
        "variety": Measurement(_variety(text.all_words)),
        "runon": Measurement(float(len(glued))),
    }


def _variety(words: tuple[str, ...]) -> float:
    """Share of distinct words in a window of 20, averaged over all windows, which makes it independent of length."""
    if len(words) <= _WINDOW:
        return len(set(words)) / len(words) if words else 0.0
    windows = [len(set(words[i : i + _WINDOW])) / _WINDOW for i in range(len(words) - _WINDOW + 1)]
    return sum(windows) / len(windows)


def _grounds(past: Text, known: Text, text: Text) -> dict[str, Measurement]:
    distinct = text.distinct
    links = [c for c in distinct if c in past.vocabulary]
    heard = frozenset(tools.grams(past.all_words, 3))
    triples = tools.grams(text.all_words, 3)
    parroted = [t for t in triples if t in heard]
    return {
        "links": Measurement(float(len(links)), ", ".join(links[:3])),
        "parroted": Measurement(len(parroted) / len(triples), " ".join(parroted[0])) if parroted else Measurement(0.0),
        **(_use_of_fact(past, known, text) if known.vocabulary else dict.fromkeys(_FACT, Measurement(None))),
    }


_FACT = ("fact", "newfact", "factrun")


def _use_of_fact(past: Text, known: Text, text: Text) -> dict[str, Measurement]:
    shared = [c for c in text.distinct if c in known.vocabulary]
    new = [c for c in shared if c not in past.vocabulary]
    return {
        "fact": Measurement(float(len(shared)), ", ".join(shared[:3])),
        # A specific word of the fact is worth two everyday ones.
        "newfact": Measurement(sum(0.5 if c in PLAIN else 1.0 for c in new), ", ".join(new[:4])),
        "factrun": Measurement(float(tools.longest_run(text.all_content, known.all_content))),
    }
