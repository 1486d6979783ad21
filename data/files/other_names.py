"""Columns that are called otherwise than by our names: common words, raters' endings, and which words a guess takes.

Only `debate check` takes a column by such a word, and says so. All other readers suggest the `--columns` entry.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence

from debate_judge.data.errors import InputError, did_you_mean
from debate_judge.data.files.ratings import WORDS
from debate_judge.data.files.records import Record, looks_like_a_number

OTHER_NAMES: Mapping[str, tuple[str, ...]] = {
    "source": (
        *("question", "prompt", "input", "query", "instruction", "article", "document", "passage", "dialogue"),
        *("history", "conversation", "message", "user_message", "customer_message", "email", "ticket", "src"),
    ),
    "text": (
        *("answer", "output", "response", "reply", "completion", "generation", "generated", "summary", "prediction"),
        *("candidate_text", "model_output", "model_response", "translation", "content"),
    ),
    "candidate": ("system", "model", "model_name", "system_name", "candidate_id", "system_id"),
    "group": ("article_id", "doc_id", "question_id", "prompt_id", "source_id", "group_id"),
    "context": ("background", "fact", "facts", "knowledge", "policy", "passages"),
    "aspect": ("criterion", "criteria", "dimension", "metric", "quality", "attribute", "aspect_name"),
    "rating": ("score", "value", "grade", "label", "points", "mark", "stars", "judgement", "judgment"),
    "rater": (
        *("annotator", "judge", "worker", "user", "reviewer", "evaluator", "coder", "assessor", "rater_id"),
        *("annotator_id", "worker_id", "user_id", "reviewer_id", "evaluator_id", "coder_id"),
    ),
    "comment": ("rationale", "reason", "explanation", "note", "notes", "feedback", "justification", "remark"),
}
"""Role -> other common names of it. They are suggested in errors and notes; see `names_taken` for a guess."""

_NEAR = 0.6
"""How near a column's name is to one that is needed; less than elsewhere, since a source left unread changes groups."""

_PARTNER = {"aspect": "rating", "rating": "aspect"}
"""Roles that mean something only together."""

_WORD = "rater|annotator|judge|human|expert|worker|person"
_RATER = rf"(?:[_ .-]+(?:(?:{_WORD}|r|a)[_ .-]?)?(?:\d+|[A-Za-z])|[_ .-]*\((?:{_WORD})[_ .-]?(?:\d+|[A-Za-z])\))"


def even(name: str) -> str:
    """The form in which names are compared: lower case, with underscores for blanks and hyphens."""
    return re.sub(r"[\s_-]+", "_", name.strip().casefold())


def rater_base(key: str) -> str | None:
    """The column's name in the form of `even` without the ending that numbers a rater; None without such an ending."""
    match = re.fullmatch(rf"(.+?){_RATER}", key)
    return even(match.group(1)) if match else None


def missing(record: Record, role: str, keys: Iterable[str]) -> InputError:
    """The error for a required column that is missing; it suggests the column that may be meant."""
    names = [key for key in keys if even(key) in OTHER_NAMES.get(role, ())]
    near = did_you_mean(role, list(keys), "is it called {}?", _NEAR)
    guess = names[0] if names else "COLUMN"
    return record.error(
        f"the field {role!r} is missing",
        role,
        expected="a text in every row, or candidates in every group" if role == "text" else None,
        found="fields " + ", ".join(keys) if keys else "no fields",
        remedy=f"{near + ' ' if near else ''}say which column it is with --columns {role}={guess}",
    )


def lacks(role: str, keys: Collection[str]) -> bool:
    """Whether no column resembles `role`, so that the file does without it rather than calling it something else."""
    return did_you_mean(role, list(keys), cutoff=_NEAR) is None and _named(role, keys) is None


def by_other_name(name: str, names: Collection[str], unread: Collection[str]) -> str:
    """The `--columns` entry to suggest for a column whose name is a common one for one of ours; else empty.

    Args:
        name: The column's.
        names: Ours that no column matched.
        unread: All columns that matched none of ours.
    """
    role = next((role for role, words in OTHER_NAMES.items() if even(name) in words), "")
    partner = _PARTNER.get(role, "")
    if role == "comment" and role not in names and any(one.startswith("comments.") for one in names):
        return f"--columns comments.ASPECT={name} if it is that"
    if role not in names or (partner in names and _named(partner, unread) is None):
        return ""
    return f"--columns {role}={name} if it is that"


def names_taken(records: Sequence[Record], found: Mapping[str, str], rest: Sequence[str]) -> dict[str, str]:
    """Role -> column that a guess takes for it by a common name.

    The source and the text are taken by their name alone. An aspect and its rating are taken where the first holds
    words and the same text comes with several of them: then a row is one rating. A rater is taken where no two rows of
    one text (and aspect) have the same one, and, unless a row is one rating, where texts repeat at all.

    Args:
        records: All rows.
        found: Role -> column, for those that have our names or were named by the user.
        rest: Columns that match no role.
    """
    taken: dict[str, str] = {}
    roles = dict(found)

    def take(**columns: str | None) -> None:
        new = {role: column for role, column in columns.items() if column is not None and role not in roles}
        taken.update(new)
        roles.update(new)

    take(source=_named("source", rest), text=_named("text", rest))
    place = [roles[role] for role in ("group", "source", "context", "candidate", "text") if role in roles]
    aspect, rating = (roles.get(role) or _named(role, rest) for role in ("aspect", "rating"))
    long = aspect is not None and rating is not None
    if aspect is not None and rating is not None and not ("aspect" in roles and "rating" in roles):
        words = all(_is_a_word(record.values.get(aspect)) for record in records)
        long = words and _different(records, place) < _different(records, [*place, aspect])
        if long:
            take(aspect=aspect, rating=rating)
    if long:
        take(comment=_named("comment", rest))
        place = [*place, roles["aspect"]]
    rater = _named("rater", [key for key in rest if key not in roles.values()])
    repeated = long or _different(records, place) < len(records)
    if rater is not None and repeated and _different(records, [*place, rater]) == len(records):
        take(rater=rater)
    return taken


def _named(role: str, keys: Iterable[str]) -> str | None:
    """The column with the commonest of the other names of a role."""
    by_name = {even(key): key for key in reversed(list(keys))}
    return next((by_name[word] for word in OTHER_NAMES.get(role, ()) if word in by_name), None)


def _is_a_word(value: object) -> bool:
    text = value.strip() if isinstance(value, str) else ""
    return bool(text) and not looks_like_a_number(text) and text.lower() not in WORDS


def _different(records: Iterable[Record], columns: Sequence[str]) -> int:
    """How many different combinations of values the columns have."""
    return len({tuple(" ".join(str(record.values.get(column)).split()) for column in columns) for record in records})
