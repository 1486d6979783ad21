"""What the offline LM measures: on a text that was made from a source, and on a reply in a conversation.

Everything here is a count over the letters of a text. Nothing depends on the order of a set, so that equal texts give
equal numbers in every process.
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

Kind = Literal["summary", "dialogue"]
"""A text that was made from a source, or a reply in a conversation."""


class Measurement(NamedTuple):
    """One measurement: its value, and the place in the text that explains it (may be empty)."""

    value: float | None
    """None if there is nothing to measure, e.g. the use of a fact that was not given."""
    evidence: str = ""


# --- words ---


def _words(listed: str) -> tuple[str, ...]:
    return tuple(listed.split())


def _set(listed: str) -> frozenset[str]:
    return frozenset(_words(listed))


STOP = _set(
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

EVERYDAY = _words(
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
"""Words after `I` with which speakers talk about themselves."""

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
IMPOSSIBLE: tuple[tuple[frozenset[str], frozenset[str]], ...] = (
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
"""(first words, words that cannot follow them in English, with few exceptions)."""

MAY_REPEAT = frozenset(("had", "that", ".", "!", "?"))

_WORD = re.compile(r"[^\W_]+(?:[.,'-][^\W_]+)*|'[a-z]+")
_TOKEN = re.compile(r"[^\W_]+(?:[.,'-][^\W_]+)*|'[a-z]+|[.,;:?!]")
_END = re.compile(r"[.?!]+(?=\s|$)(?:\s*(?:''|[\"')]))*|\n+")
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}\b)")
_DIGITS = re.compile(r"\d+(?:\.\d+)?")
_STRAIGHT = str.maketrans({"’": "'", "‘": "'", "“": '"', "”": '"'})


def straight(text: str) -> str:
    """The text with typewriter quotation marks."""
    return text.translate(_STRAIGHT)


def words(text: str) -> list[str]:
    """Lower-cased words and numbers, in order."""
    return _WORD.findall(straight(text).lower())


@lru_cache(maxsize=65536)
def stem(word: str) -> str:
    """A crude stem: enough that plural and past tense meet their base form."""
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


PLAIN = frozenset(stem(word) for word in EVERYDAY)
"""Stems of everyday words that fit any conversation; what is left is specific to a topic."""


def sentences(text: str) -> list[str]:
    """Cut at . ? ! and line ends, but not after initials and common abbreviations."""
    text, start = straight(text), 0
    parts: list[str] = []
    for match in _END.finditer(text):
        if match.group().strip() != "." or not _abbreviates(text[start : match.start()]):
            parts.append(text[start : match.end()].strip())
            start = match.end()
    out: list[str] = []
    for piece in [*parts, text[start:].strip()]:
        if _WORD.search(piece.lower()):
            out.append(piece)
        elif piece and out:
            out[-1] += " " + piece
    return out


def _abbreviates(before: str) -> bool:
    if not before or before[-1].isspace():
        return False
    last = before.split()[-1].lower()
    return len(last) == 1 or last in ABBREVIATIONS or ("." in last and last.replace(".", "").isalpha())


class Text:
    """A text cut into sentences, words and content stems."""

    def __init__(self, raw: str) -> None:
        self.raw = raw
        self.sentences = sentences(raw)
        self.words = [words(sentence) for sentence in self.sentences]
        """Words of each sentence."""
        self.content = [[stem(word) for word in sentence_words if word not in STOP] for sentence_words in self.words]
        """Stems of the content words of each sentence, in order, with repetitions."""
        self.sets = [frozenset(content) for content in self.content]
        """The same as sets."""
        self.all_words = [word for sentence_words in self.words for word in sentence_words]
        self.all_content = [c for content in self.content for c in content]
        self.distinct = list(dict.fromkeys(self.all_content))
        """Content stems without repetition, in order of appearance."""
        self.vocabulary = frozenset(self.distinct)


DECAY = 0.25
"""How much less a word of a source counts with each sentence that comes before it."""


class Source(Text):
    """A source, prepared once for all its candidates."""

    def __init__(self, raw: str) -> None:
        super().__init__(raw)
        self.windows = [a | b for a, b in pairwise([*self.sets, frozenset()])]
        """Content of each pair of adjacent sentences."""
        self.places: dict[str, list[int]] = {}
        """Word -> its positions."""
        for i, word in enumerate(self.all_words):
            self.places.setdefault(word, []).append(i)
        self.pairs = {pair for sentence_words in self.words for pair in pairwise(sentence_words)}
        self.ends = {tuple(sentence_words[-2:]) for sentence_words in self.words}
        """The last two words of each sentence."""
        self.weight: dict[str, float] = {}
        """Content stem -> salience: its occurrences, each discounted by how late its sentence comes."""
        for i, content in enumerate(self.content):
            for c in content:
                self.weight[c] = self.weight.get(c, 0.0) + 1 / (1 + DECAY * i)
        self.norm = math.sqrt(math.fsum(v * v for v in self.weight.values())) or 1.0
        self.numbers = values(raw)


_source = lru_cache(maxsize=128)(Source)
_text = lru_cache(maxsize=256)(Text)


def common_subsequences(a: Sequence[str], others: Iterable[Sequence[str]]) -> list[int]:
    """Length of the longest common subsequence of `a` with each other, by the bit-parallel rows of Hyyrö (2004)."""
    places: dict[str, int] = {}
    for i, word in enumerate(a):
        places[word] = places.get(word, 0) | (1 << i)
    full = (1 << len(a)) - 1
    lengths = []
    for other in others:
        row = full
        for word in other:
            if word in places:
                hit = row & places[word]
                row = ((row + hit) | (row - hit)) & full
        lengths.append(len(a) - row.bit_count())
    return lengths


def pieces(sentence: Sequence[str], source: Source) -> int:
    """How many fragments a sentence is made of when each is copied from the source as long as possible.

    A word that the source does not have is a fragment of its own.
    """
    count = start = 0
    while start < len(sentence):
        longest = 1
        for place in source.places.get(sentence[start], ()):
            copied = zip(sentence[start:], source.all_words[place : place + len(sentence)], strict=False)
            longest = max(longest, sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], copied)))
        start += longest
        count += 1
    return count


def slips(sentence: str) -> list[str]:
    """Word pairs that cannot stand next to each other, such as `the of`, `is has`, or a doubled word."""
    tokens = _TOKEN.findall(straight(sentence).lower())
    if not tokens or tokens[-1] not in ".?!":
        tokens.append(".")
    impossible = []
    for a, b in pairwise(tokens):
        if (a == b and a not in MAY_REPEAT and not a.isdigit()) or any(
            a in first and b in second for first, second in IMPOSSIBLE
        ):
            impossible.append(f"{a} {b}")
    return impossible


def digits(text: str) -> list[str]:
    """Numbers written in digits, in one spelling: 14,000 and 14000 are equal."""
    numbers = _DIGITS.findall(_THOUSANDS.sub("", straight(text).lower()))
    return [n.rstrip("0").rstrip(".") if "." in n else n.lstrip("0") or "0" for n in numbers]


def values(text: str) -> frozenset[str]:
    """Every number that a text mentions, in digits or in words."""
    cli_name = re.findall("[a-z]+", straight(text).lower())
    return frozenset([*digits(text), *(NUMBER_VALUES[word] for word in cli_name if word in NUMBER_VALUES)])


# --- measurements ---


@lru_cache(maxsize=2048)
def measured(kind: Kind, source: str, context: str, candidate: str) -> Mapping[str, Measurement]:
    """Name, as in `programs.offline.rubric.PHRASES`, -> measurement of the candidate.

    The source is the text that it was made from, or the conversation so far, one turn a line; the context is the fact
    that a reply may use.
    """
    if kind == "dialogue":
        fact = _text("" if context.strip().lower() in _NO_FACT else context)
        past, reply = _text(source), Text(candidate)
        return {**_words_of(reply), **_grounds(past, reply), **_use_of_fact(past, fact, reply)}
    about, text = _source(source), Text(candidate)
    if not text.sentences:
        return {name: Measurement(value) for name, value in WORST.items()}
    return {
        **_copying(about, text), **_order(about, text), **_repetition(text), **_salience(about, text),
        **_form(about, text),
    }  # fmt: skip


WORST = {
    "support": 0.0, "passage": 0.0, "wording": 0.0, "whole": 0.0, "joints": 1.0, "fragments": 99.0, "numbers": 0.0,
    "order": 0.0, "opening": 0.0, "repeats": 1.0, "overlap": 1.0, "echoes": 1.0, "topic": 0.0, "cuts": 9.0,
    "shortest": 0.0, "slips": 9.0, "unfinished": 1.0,
}  # fmt: skip
"""The measurements of an empty candidate."""


def _copying(source: Source, text: Text) -> dict[str, Measurement]:
    """How closely the words follow the source, as a measure of faithfulness."""
    unknown = [c for c in text.distinct if c not in source.vocabulary]
    passage = [
        _share(max((sum(c in window for c in content) for window in source.windows), default=0), len(content), 1.0)
        for content in text.content
    ]
    kept, whole = _alignment(source, text)
    grams = [p for ws in text.words for p in pairwise(ws)]
    joints = [p for p in grams if p not in source.pairs and p[0] in source.places and p[1] in source.places]
    cut = [pieces(ws, source) - 1 for ws in text.words]
    numbers = [n for n in digits(text.raw) if n not in source.numbers]
    known = sum(c in source.vocabulary for c in text.all_content)
    return {
        "support": Measurement(_share(known, len(text.all_content), 1.0), ", ".join(unknown[:3])),
        "passage": Measurement(math.fsum(passage) / len(passage), _at_worst(text, passage)),
        "wording": Measurement(min(kept), _at_worst(text, kept)),
        "whole": Measurement(math.fsum(whole) / len(whole), _at_worst(text, whole)),
        "joints": Measurement(_share(len(joints), len(grams), 0.0), " ".join(joints[0]) if joints else ""),
        "fragments": Measurement(float(sum(cut)), _at_worst(text, [-c for c in cut])),
        "numbers": Measurement(float(len(numbers)), ", ".join(numbers[:3])),
    }


def _alignment(source: Source, text: Text) -> tuple[list[float], list[float]]:
    """Per sentence, over the source's sentences: most of its words, and of both sentences' words, kept in order."""
    kept, whole = [], []
    for ws in text.words:
        common = common_subsequences(ws, source.words)
        kept.append(max(common, default=0) / len(ws))
        both = zip(common, source.words, strict=True)
        whole.append(max((2 * n / (len(ws) + len(other)) for n, other in both), default=0.0))
    return kept, whole


def _order(source: Source, text: Text) -> dict[str, Measurement]:
    """Whether the sentences come in the order of the source: Kendall's tau of their places."""
    places = []
    for content in text.sets:
        shared = [len(content & other) for other in source.sets]
        places.append(shared.index(max(shared)) if shared else 0)
    steps = [(b > a) - (b < a) for i, a in enumerate(places) for b in places[i + 1 :]]
    back = next((i + 1 for i, (a, b) in enumerate(pairwise(places)) if b < a), 0)
    return {"order": Measurement(_share(sum(steps), len(steps), 1.0), _quote(text.sentences[back]) if back else "")}


def _repetition(text: Text) -> dict[str, Measurement]:
    grams = [p for ws in text.words for p in pairwise(ws) if not (p[0] in STOP and p[1] in STOP)]
    twice = next((p for p, n in Counter(grams).items() if n > 1), ())
    overlap, second = 0.0, ""
    for i, a in enumerate(text.sets):
        for j, b in enumerate(text.sets[i + 1 :], i + 1):
            share = _share(len(a & b), min(len(a), len(b)), 0.0)
            if share > overlap:
                overlap, second = share, _quote(text.sentences[j])
    echoes = [_share(len(c) - len(set(c)), len(c), 0.0) for c in text.content]
    return {
        "repeats": Measurement(1 - len(set(grams)) / len(grams) if grams else 0.0, " ".join(twice)),
        "overlap": Measurement(overlap, second),
        "echoes": Measurement(max(echoes), _at_worst(text, [-e for e in echoes])),
    }


def _salience(source: Source, text: Text) -> dict[str, Measurement]:
    """Whether the words that matter most in the source are there: cosines with its salience."""
    counts = Counter(text.all_content)
    length = math.sqrt(sum(n * n for n in counts.values())) or 1.0
    topic = math.fsum(n * source.weight.get(c, 0.0) for c, n in counts.items()) / (length * source.norm)
    first = tuple(dict.fromkeys(text.content[0]))
    opening = math.fsum(source.weight.get(c, 0.0) for c in first) / (math.sqrt(len(first) or 1) * source.norm)
    heaviest = sorted(source.weight, key=lambda c: -source.weight[c])[:10]
    missing = ", ".join([c for c in heaviest if c not in counts][:3])
    return {
        "topic": Measurement(topic, f"without {missing}" if missing else ""),
        "opening": Measurement(opening, _quote(text.sentences[0])),
    }


def _form(source: Source, text: Text) -> dict[str, Measurement]:
    """Sentences that are truncated, ungrammatical or fragments."""
    ends = [tuple(ws[-2:]) for ws in text.words]
    cut = [i for i, end in enumerate(ends) if end in source.pairs and end not in source.ends]
    lengths = [len(ws) for ws in text.words]
    stumbles = [s for sentence in text.sentences for s in slips(sentence)]
    closed = text.raw.rstrip()[-1:] in tuple(".?!)'\"`”’…")
    return {
        "cuts": Measurement(float(len(cut)), _quote(text.sentences[cut[0]], tail=True) if cut else ""),
        "shortest": Measurement(float(min(lengths)), _at_worst(text, lengths)),
        "slips": Measurement(float(len(stumbles)), ", ".join(stumbles[:3])),
        "unfinished": Measurement(float(not closed), "" if closed else _quote(text.sentences[-1], tail=True)),
    }


def _share(part: float, whole: float, empty: float) -> float:
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
"""Words by which some corpora mark that there is no fact."""


def _words_of(text: Text) -> dict[str, Measurement]:
    # Words that fit any conversation are not counted.
    specific = [c for c in text.distinct if c not in PLAIN]
    talk = [f"{a} {b}" for a, b in pairwise(text.all_words) if a == "i" and b in SELF_TALK]
    talk += [w for w in text.all_words if w in SELF_TALK_SHORT]
    glued = _RUN_ON.findall(" ".join(straight(text.raw).lower().split()).replace(" ,", ","))
    return {
        "specific": Measurement(float(len(specific)), ", ".join(specific[:4])),
        "sentences": Measurement(float(len(text.sentences))),
        "selftalk": Measurement(float(len(talk)), ", ".join(talk[:3])),
        "variety": Measurement(_variety(text.all_words)),
        "runon": Measurement(float(len(glued))),
    }


def _variety(words: Sequence[str]) -> float:
    """Share of distinct words in a window of 20, averaged over all windows, which makes it independent of length."""
    if len(words) <= _WINDOW:
        return len(set(words)) / len(words) if words else 0.0
    windows = [len(set(words[i : i + _WINDOW])) / _WINDOW for i in range(len(words) - _WINDOW + 1)]
    return sum(windows) / len(windows)


def _grounds(past: Text, text: Text) -> dict[str, Measurement]:
    links = [c for c in text.distinct if c in past.vocabulary]
    before, triples = (
        list(zip(all_words, all_words[1:], all_words[2:], strict=False))
        for all_words in (past.all_words, text.all_words)
    )
    heard = set(before)
    parroted = [t for t in triples if t in heard]
    return {
        "links": Measurement(float(len(links)), ", ".join(links[:3])),
        "parroted": Measurement(len(parroted) / len(triples), " ".join(parroted[0])) if parroted else Measurement(0.0),
    }


def _use_of_fact(past: Text, known: Text, text: Text) -> dict[str, Measurement]:
    if not known.vocabulary:
        return dict.fromkeys(("fact", "newfact", "factrun"), Measurement(None))
    shared = [c for c in text.distinct if c in known.vocabulary]
    new = [c for c in shared if c not in past.vocabulary]
    run = SequenceMatcher(None, text.all_content, known.all_content, autojunk=False).find_longest_match()
    return {
        "fact": Measurement(float(len(shared)), ", ".join(shared[:3])),
        # A specific word of the fact is worth two everyday ones.
        "newfact": Measurement(sum(0.5 if c in PLAIN else 1.0 for c in new), ", ".join(new[:4])),
        "factrun": Measurement(float(run.size)),
    }
