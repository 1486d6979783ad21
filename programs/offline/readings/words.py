"""Closed word lists of the offline LM: grammar words, everyday words, abbreviations, numbers, impossible pairs."""

from __future__ import annotations


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
    (
        _DETERMINERS,
        _DETERMINERS | _set("of against between into through during from")
        | _LINK | _VERBS | _SUBJECT | _END_MARKS,
    ),
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
