"""The text statistics of the offline LM, for texts made from a source and for replies in a conversation.

All are counts over words and characters. Nothing depends on the order of a set, so equal texts give equal numbers in
every process.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from difflib import SequenceMatcher
from functools import lru_cache
from itertools import pairwise, takewhile
from typing import Literal, NamedTuple

TextKind = Literal["summary", "dialogue"]
"""A text that was made from a source, or a reply in a conversation."""


class Measurement(NamedTuple):
    """The value of a feature, and the part of the text that explains it (may be empty)."""

    value: float | None
    """None if undefined, e.g. the use of a fact where none is given."""
    evidence: str = ""


# --- words ---


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


def _set(text: str) -> frozenset[str]:
    return frozenset(_words(text))


STOP_WORDS = _set(
    "a an the and or but nor so yet if then than that this these those there here it its it's he him his she her "
    "hers they them their theirs we us our ours you your yours i me my mine myself himself herself itself "
    "themselves who whom whose which what when where why how all any both each few more most other some such no "
    "not only own same too very can will just do does did doing done have has had having be am is are was were "
    "been being would could should may might must shall of in on at by for with about against between into "
    "through during before after above below to from up down out off over under again further once as because "
    "until while also n't 's 'm 're 've 'd 'll s t don't didn't doesn't isn't wasn't aren't weren't can't won't "
    "wouldn't couldn't shouldn't haven't hasn't hadn't i'm that's you're they're we're i've oh yes no yeah ya "
    "well like get got go really much many lot one two said say says told"
)
"""Words that carry grammar rather than content."""

EVERYDAY_WORDS = _words(
    "think know guess believe suppose wonder hope love enjoy agree prefer want need see look hear heard feel find "
    "try use make made take going goes come came keep good great nice cool bad best better worst interesting "
    "funny crazy amazing awesome weird strange scary sad fun wild neat pretty sure right true wrong big little "
    "old new different hard easy thing stuff something anything everything nothing someone everyone anyone people "
    "person guy man woman kid way time day year idea fact point kind sort bit reason part place maybe probably "
    "actually definitely totally absolutely haha lol wow ok okay hello hi hey bye thanks yep nope nah even still "
    "never always ever sometimes often watch seen play read happen seem sound work give gave let put mean talk "
    "tell call ask start stop help hate remember imagine bet wish care first last next long high early late able "
    "back around today now already soon ago since enough almost mind"
)
"""Words that fit any conversation."""

SELF_TALK = _set(
    "do don't dont would wouldn't think thought guess know knew wonder love loved like liked was am 'm m have haven't "
    "'ve ve agree believe suppose"
)
"""Words after `I` by which speakers talk about themselves."""

SELF_TALK_SHORT = _set("i'm i've i'd")

ABBREVIATIONS = _set(
    "mr mrs ms dr st sen rep gov gen lt col sgt capt prof rev jr sr vs etc inc corp co ltd jan feb mar apr jun "
    "jul aug sept sep oct nov dec"
)

NUMBER_VALUES = {
    word: str(first + step * i)
    for first, step, listed in (
        (0, 1, "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen"),
        (16, 1, "sixteen seventeen eighteen nineteen twenty"),
        (30, 10, "thirty forty fifty sixty seventy eighty ninety hundred"),
        (1, 1, "first second third fourth fifth sixth seventh eighth ninth tenth"),
        (1, 1, "once twice"),
        (2, 10, "double dozen"),
    )
    for i, word in enumerate(_words(listed))
}
"""Number word -> the number in digits."""

_DETERMINERS = _set("a an the his her their its my our your every")
_BE = _set("is was are were am")
_HAVE = _set("has have had")
_MODAL = _set("will would can could should may might must")
_SUBJECT = _set("he she they we i")
_LINK = _set("and or but nor")
_PREPOSITIONS = _set("of in on at by for with about against between into through during from to than as")
_END_MARKS = frozenset(".?!,;:")
_VERBS = _BE | _HAVE | _MODAL
IMPOSSIBLE_PAIRS: tuple[tuple[frozenset[str], frozenset[str]], ...] = (
    (_DETERMINERS, _DETERMINERS | _set("of against between into through during from")
        | _LINK | _VERBS | _SUBJECT | _END_MARKS),
    (_PREPOSITIONS, _LINK | _BE | (_HAVE - {"have"}) | (_MODAL - {"will", "may", "can"})),
    (_set("of from into than during between"), _END_MARKS | _set("of from to")),
    (_LINK, _LINK | _END_MARKS),
    (_MODAL, (_DETERMINERS - {"her"}) | _BE | frozenset(("has", "had")) | _MODAL),
    (_BE, _VERBS),
    (_HAVE, _BE | _MODAL | frozenset(("has", "have"))),
    (frozenset((",",)), frozenset((".", ",", ";"))),
)  # fmt: skip
"""(words, words that cannot follow them in English, with few exceptions)."""

MAY_REPEAT = frozenset(("had", "that", ".", "!", "?"))

_WORD = re.compile(r"[^\W_]+(?:[.,'-][^\W_]+)*|'[a-z]+")
_TOKEN = re.compile(r"[^\W_]+(?:[.,'-][^\W_]+)*|'[a-z]+|[.,;:?!]")
_END = re.compile(r"[.?!]+(?=\s|$)(?:\s*(?:''|[\"')]))*|\n+")
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}\b)")
_DIGITS = re.compile(r"\d+(?:\.\d+)?")
_STRAIGHT_QUOTES = str.maketrans({"’": "'", "‘": "'", "“": '"', "”": '"'})


def straighten_quotes(text: str) -> str:
    """The text with straight instead of typographic quotation marks."""
    return text.translate(_STRAIGHT_QUOTES)


def words(text: str) -> list[str]:
    """Lower-cased words and numbers, in order."""
    return _WORD.findall(straighten_quotes(text).lower())


@lru_cache(maxsize=65536)
def stem(word: str) -> str:
    """A crude stem: plural and past tense get that of their base form."""
    word = word.removesuffix("'s")
    if len(word) > 5 and word.endswith("ies"):
        return word[:-3] + "y"
    for ending in ("ingly", "edly", "ing", "ed", "es", "ly", "s"):
        if word.endswith(ending) and len(word) - len(ending) >= 3 and not word.endswith("ss"):
            word = word[: -len(ending)]
            if len(word) > 3 and word[-1] == word[-2] and word[-1] not in "lsz":
                word = word[:-1]
            break
    return word[:-1] if len(word) > 4 and word.endswith("e") else word


EVERYDAY_STEMS = frozenset(stem(word) for word in EVERYDAY_WORDS)
"""Stems of everyday words; all others are specific to a topic."""


def sentences(text: str) -> list[str]:
    """Split at . ? ! and line ends, but not after initials and common abbreviations."""
    text, start = straighten_quotes(text), 0
    parts: list[str] = []
    for match in _END.finditer(text):
        if match.group().strip() != "." or not _abbreviates(text[start : match.start()]):
            parts.append(text[start : match.end()].strip())
            start = match.end()
    result: list[str] = []
    for part in [*parts, text[start:].strip()]:
        if _WORD.search(part.lower()):
            result.append(part)
        elif part and result:
            result[-1] += " " + part
    return result


def _abbreviates(before: str) -> bool:
    if not before or before[-1].isspace():
        return False
    last = before.split()[-1].lower()
    return len(last) == 1 or last in ABBREVIATIONS or ("." in last and last.replace(".", "").isalpha())


class Text:
    """A text split into sentences, words and content stems."""

    def __init__(self, raw: str) -> None:
        self.raw = raw
        self.sentences = sentences(raw)
        self.words = [words(sentence) for sentence in self.sentences]
        """Words of each sentence."""
        self.content = [[stem(word) for word in sentence if word not in STOP_WORDS] for sentence in self.words]
        """Stems of the content words of each sentence, in order, with repetitions."""
        self.content_sets = [frozenset(content) for content in self.content]
        """The same as sets."""
        self.all_words = [word for sentence_words in self.words for word in sentence_words]
        self.all_content = [c for content in self.content for c in content]
        self.distinct_content = list(dict.fromkeys(self.all_content))
        """Content stems without repetition, in order of appearance."""
        self.vocabulary = frozenset(self.distinct_content)


DECAY = 0.25
"""Discount of the salience of a source's words per earlier sentence."""


class Source(Text):
    """A source, analysed once for all its candidates."""

    def __init__(self, raw: str) -> None:
        super().__init__(raw)
        self.windows = [a | b for a, b in pairwise([*self.content_sets, frozenset()])]
        """Content of each pair of adjacent sentences."""
        self.positions: dict[str, list[int]] = {}
        """Word -> its positions."""
        for i, word in enumerate(self.all_words):
            self.positions.setdefault(word, []).append(i)
        self.word_pairs = {pair for sentence_words in self.words for pair in pairwise(sentence_words)}
        self.sentence_ends = {tuple(sentence_words[-2:]) for sentence_words in self.words}
        """The last two words of each sentence."""
        self.salience: dict[str, float] = {}
        """Content stem -> salience: its occurrences, each discounted by how late its sentence comes."""
        for i, content in enumerate(self.content):
            for c in content:
                self.salience[c] = self.salience.get(c, 0.0) + 1 / (1 + DECAY * i)
        self.norm = math.sqrt(math.fsum(v * v for v in self.salience.values())) or 1.0
        self.numbers = numbers_in(raw)


_source = lru_cache(maxsize=128)(Source)
_text = lru_cache(maxsize=256)(Text)


def common_subsequences(a: Sequence[str], others: Iterable[Sequence[str]]) -> list[int]:
    """Length of the longest common subsequence of `a` with each other, by the bit-parallel rows of Hyyrö (2004)."""
    positions: dict[str, int] = {}
    for i, word in enumerate(a):
        positions[word] = positions.get(word, 0) | (1 << i)
    full = (1 << len(a)) - 1
    lengths = []
    for other in others:
        row = full
        for word in other:
            if word in positions:
                match = row & positions[word]
                row = ((row + match) | (row - match)) & full
        lengths.append(len(a) - row.bit_count())
    return lengths


def count_fragments(sentence: Sequence[str], source: Source) -> int:
    """The number of fragments of a sentence if each is the longest one that occurs in the source.

    A word that is not in the source is a fragment of its own.
    """
    count = start = 0
    while start < len(sentence):
        longest = 1
        for position in source.positions.get(sentence[start], ()):
            copied = zip(sentence[start:], source.all_words[position : position + len(sentence)], strict=False)
            longest = max(longest, sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], copied)))
        start += longest
        count += 1
    return count


def impossible_pairs(sentence: str) -> list[str]:
    """Adjacent words that are ungrammatical, such as `the of`, `is has`, or a doubled word."""
    tokens = _TOKEN.findall(straighten_quotes(sentence).lower())
    if not tokens or tokens[-1] not in ".?!":
        tokens.append(".")
    impossible = []
    for a, b in pairwise(tokens):
        if (a == b and a not in MAY_REPEAT and not a.isdigit()) or any(
            a in first and b in second for first, second in IMPOSSIBLE_PAIRS
        ):
            impossible.append(f"{a} {b}")
    return impossible


def digit_numbers(text: str) -> list[str]:
    """Numbers written in digits, in one spelling: 14,000 and 14000 are equal."""
    numbers = _DIGITS.findall(_THOUSANDS.sub("", straighten_quotes(text).lower()))
    return [n.rstrip("0").rstrip(".") if "." in n else n.lstrip("0") or "0" for n in numbers]


def numbers_in(text: str) -> frozenset[str]:
    """Every number that a text mentions, in digits or in words."""
    number_words = re.findall("[a-z]+", straighten_quotes(text).lower())
    return frozenset([*digit_numbers(text), *(NUMBER_VALUES[word] for word in number_words if word in NUMBER_VALUES)])


# --- measurements ---


@lru_cache(maxsize=2048)
def measure(kind: TextKind, source: str, context: str, candidate: str) -> Mapping[str, Measurement]:
    """Name of a feature, as in `programs.offline.rubric.PHRASES` -> its measurement on the candidate.

    The source is the text that the candidate was made from, or the conversation so far, one turn a line; the context is
    the fact that a reply may use.
    """
    if kind == "dialogue":
        fact = _text("" if context.strip().lower() in _NO_FACT else context)
        conversation, reply = _text(source), Text(candidate)
        return {**_style(reply), **_overlap(conversation, reply), **_use_of_fact(conversation, fact, reply)}
    source_text, text = _source(source), Text(candidate)
    if not text.sentences:
        return {name: Measurement(value) for name, value in EMPTY_CANDIDATE.items()}
    return {
        **_copying(source_text, text), **_order(source_text, text), **_repetition(text), **_salience(source_text, text),
        **_form(source_text, text),
    }  # fmt: skip


EMPTY_CANDIDATE = {
    "support": 0.0, "passage": 0.0, "wording": 0.0, "alignment": 0.0, "new_bigrams": 1.0, "fragments": 99.0,
    "numbers": 0.0, "order": 0.0, "opening": 0.0, "repeated_bigrams": 1.0, "overlap": 1.0, "repeated_words": 1.0,
    "topic": 0.0, "truncated": 9.0, "shortest": 0.0, "ungrammatical": 9.0, "unfinished": 1.0,
}  # fmt: skip
"""The measurements of an empty candidate."""


def _copying(source: Source, text: Text) -> dict[str, Measurement]:
    """How closely the words follow the source, a proxy for faithfulness."""
    unknown = [c for c in text.distinct_content if c not in source.vocabulary]
    passage = [
        _ratio(max((sum(c in window for c in content) for window in source.windows), default=0), len(content), 1.0)
        for content in text.content
    ]
    containments, similarities = _alignment(source, text)
    pairs = [p for ws in text.words for p in pairwise(ws)]
    spliced = [p for p in pairs if p not in source.word_pairs and p[0] in source.positions and p[1] in source.positions]
    splices = [count_fragments(ws, source) - 1 for ws in text.words]
    numbers = [n for n in digit_numbers(text.raw) if n not in source.numbers]
    supported = sum(c in source.vocabulary for c in text.all_content)
    return {
        "support": Measurement(_ratio(supported, len(text.all_content), 1.0), ", ".join(unknown[:3])),
        "passage": Measurement(math.fsum(passage) / len(passage), _at_worst(text, passage)),
        "wording": Measurement(min(containments), _at_worst(text, containments)),
        "alignment": Measurement(math.fsum(similarities) / len(similarities), _at_worst(text, similarities)),
        "new_bigrams": Measurement(_ratio(len(spliced), len(pairs), 0.0), " ".join(spliced[0]) if spliced else ""),
        "fragments": Measurement(float(sum(splices)), _at_worst(text, [-c for c in splices])),
        "numbers": Measurement(float(len(numbers)), ", ".join(numbers[:3])),
    }


def _alignment(source: Source, text: Text) -> tuple[list[float], list[float]]:
    """For each sentence, the maxima over the source's sentences of LCS / its length and of 2 LCS / both lengths."""
    containments, similarities = [], []
    for ws in text.words:
        common = common_subsequences(ws, source.words)
        containments.append(max(common, default=0) / len(ws))
        both = zip(common, source.words, strict=True)
        similarities.append(max((2 * n / (len(ws) + len(other)) for n, other in both), default=0.0))
    return containments, similarities


def _order(source: Source, text: Text) -> dict[str, Measurement]:
    """Kendall's tau between the order of the sentences and that of their best matches in the source."""
    positions = []
    for content in text.content_sets:
        shared = [len(content & other) for other in source.content_sets]
        positions.append(shared.index(max(shared)) if shared else 0)
    directions = [(b > a) - (b < a) for i, a in enumerate(positions) for b in positions[i + 1 :]]
    backward = next((i + 1 for i, (a, b) in enumerate(pairwise(positions)) if b < a), 0)
    evidence = _quote(text.sentences[backward]) if backward else ""
    return {"order": Measurement(_ratio(sum(directions), len(directions), 1.0), evidence)}


def _repetition(text: Text) -> dict[str, Measurement]:
    pairs = [p for ws in text.words for p in pairwise(ws) if not (p[0] in STOP_WORDS and p[1] in STOP_WORDS)]
    repeated = next((p for p, n in Counter(pairs).items() if n > 1), ())
    overlap, second = 0.0, ""
    for i, a in enumerate(text.content_sets):
        for j, b in enumerate(text.content_sets[i + 1 :], i + 1):
            share = _ratio(len(a & b), min(len(a), len(b)), 0.0)
            if share > overlap:
                overlap, second = share, _quote(text.sentences[j])
    repeated_shares = [_ratio(len(c) - len(set(c)), len(c), 0.0) for c in text.content]
    return {
        "repeated_bigrams": Measurement(1 - len(set(pairs)) / len(pairs) if pairs else 0.0, " ".join(repeated)),
        "overlap": Measurement(overlap, second),
        "repeated_words": Measurement(max(repeated_shares), _at_worst(text, [-share for share in repeated_shares])),
    }


def _salience(source: Source, text: Text) -> dict[str, Measurement]:
    """Coverage of the source's salient words: cosine similarities with its salience."""
    counts = Counter(text.all_content)
    length = math.sqrt(sum(n * n for n in counts.values())) or 1.0
    topic = math.fsum(n * source.salience.get(c, 0.0) for c, n in counts.items()) / (length * source.norm)
    first = tuple(dict.fromkeys(text.content[0]))
    opening = math.fsum(source.salience.get(c, 0.0) for c in first) / (math.sqrt(len(first) or 1) * source.norm)
    heaviest = sorted(source.salience, key=lambda c: -source.salience[c])[:10]
    missing = ", ".join([c for c in heaviest if c not in counts][:3])
    return {
        "topic": Measurement(topic, f"without {missing}" if missing else ""),
        "opening": Measurement(opening, _quote(text.sentences[0])),
    }


def _form(source: Source, text: Text) -> dict[str, Measurement]:
    """Sentences that are truncated, ungrammatical or fragments."""
    ends = [tuple(ws[-2:]) for ws in text.words]
    truncated = [i for i, end in enumerate(ends) if end in source.word_pairs and end not in source.sentence_ends]
    lengths = [len(ws) for ws in text.words]
    pairs = [s for sentence in text.sentences for s in impossible_pairs(sentence)]
    complete = text.raw.rstrip()[-1:] in tuple(".?!)'\"`”’…")
    return {
        "truncated": Measurement(
            float(len(truncated)), _quote(text.sentences[truncated[0]], tail=True) if truncated else ""
        ),
        "shortest": Measurement(float(min(lengths)), _at_worst(text, lengths)),
        "ungrammatical": Measurement(float(len(pairs)), ", ".join(pairs[:3])),
        "unfinished": Measurement(float(not complete), "" if complete else _quote(text.sentences[-1], tail=True)),
    }


def _ratio(part: float, whole: float, empty: float) -> float:
    return part / whole if whole else empty


def _at_worst(text: Text, merit: Sequence[float]) -> str:
    return _quote(text.sentences[merit.index(min(merit))])


def _quote(sentence: str, tail: bool = False, limit: int = 12) -> str:
    """The beginning or the end of a sentence."""
    tokens = sentence.split()
    if len(tokens) <= limit:
        return " ".join(tokens)
    return "… " + " ".join(tokens[-limit:]) if tail else " ".join(tokens[:limit]) + " …"


# --- replies, with an optional fact that they may use ---

_RUN_ON = re.compile(r", (?:and |but |so )?(?:i|he|she|it|they|we|that|there|you)\b")
_WINDOW = 20
_NO_FACT = ("_nofact", "nofact")
"""Markers of some corpora for a missing fact."""


def _style(text: Text) -> dict[str, Measurement]:
    # Words that fit any conversation are not counted.
    specific = [c for c in text.distinct_content if c not in EVERYDAY_STEMS]
    self_talk = [f"{a} {b}" for a, b in pairwise(text.all_words) if a == "i" and b in SELF_TALK]
    self_talk += [w for w in text.all_words if w in SELF_TALK_SHORT]
    run_ons = _RUN_ON.findall(" ".join(straighten_quotes(text.raw).lower().split()).replace(" ,", ","))
    return {
        "specific": Measurement(float(len(specific)), ", ".join(specific[:4])),
        "sentences": Measurement(float(len(text.sentences))),
        "self_talk": Measurement(float(len(self_talk)), ", ".join(self_talk[:3])),
        "variety": Measurement(_variety(text.all_words)),
        "run_ons": Measurement(float(len(run_ons))),
    }


def _variety(all_words: Sequence[str]) -> float:
    """Share of distinct words in a window of 20, averaged over all windows, which makes it independent of length."""
    if len(all_words) <= _WINDOW:
        return len(set(all_words)) / len(all_words) if all_words else 0.0
    windows = [len(set(all_words[i : i + _WINDOW])) / _WINDOW for i in range(len(all_words) - _WINDOW + 1)]
    return sum(windows) / len(windows)


def _overlap(conversation: Text, text: Text) -> dict[str, Measurement]:
    shared = [c for c in text.distinct_content if c in conversation.vocabulary]
    triples_before, triples = (
        list(zip(all_words, all_words[1:], all_words[2:], strict=False))
        for all_words in (conversation.all_words, text.all_words)
    )
    earlier_triples = set(triples_before)
    copied = [t for t in triples if t in earlier_triples]
    return {
        "shared_words": Measurement(float(len(shared)), ", ".join(shared[:3])),
        "copied_trigrams": Measurement(len(copied) / len(triples), " ".join(copied[0])) if copied else Measurement(0.0),
    }


def _use_of_fact(conversation: Text, fact: Text, text: Text) -> dict[str, Measurement]:
    if not fact.vocabulary:
        return dict.fromkeys(("fact_words", "new_fact_words", "fact_run"), Measurement(None))
    shared = [c for c in text.distinct_content if c in fact.vocabulary]
    new = [c for c in shared if c not in conversation.vocabulary]
    run = SequenceMatcher(None, text.all_content, fact.all_content, autojunk=False).find_longest_match()
    return {
        "fact_words": Measurement(float(len(shared)), ", ".join(shared[:3])),
        # A specific word of the fact counts as much as two everyday ones.
        "new_fact_words": Measurement(sum(0.5 if c in EVERYDAY_STEMS else 1.0 for c in new), ", ".join(new[:4])),
        "fact_run": Measurement(float(run.size)),
    }
