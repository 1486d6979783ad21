"""Which columns of a table are the source, the text, the rater and so on, where their names leave it open."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence

from debate_judge.data.files.columns import RATER_NAME, TEXT_ROLES, column_with_common_name, normalized_name
from debate_judge.data.files.ratings import YES_NO_WORDS
from debate_judge.data.files.records import Record, is_missing, looks_like_a_number

_MAX_REPEATED_SHARE, _MIN_REPEATED = 0.2, 5
"""Share and number of repeated texts above which each row is suspected to be one rater's."""


def guess_roles(records: Sequence[Record], matched: Mapping[str, str], unmatched: Sequence[str]) -> dict[str, str]:
    """Role -> column, guessed from other common names of the role.

    Source and text are guessed by name alone. Aspect and rating are guessed where the first holds words and a text
    occurs with several of them: a row is then one rating. A rater is guessed where hardly any rows of one text (and
    aspect) have the same one, and, unless a row is one rating, where texts repeat at all.

    Args:
        records: All rows.
        matched: Role -> column, for roles that are already matched.
        unmatched: Columns that match no role.
    """
    common = {
        role: column_with_common_name(role, unmatched) for role in ("source", "text", "aspect", "rating", "comment")
    }
    roles = {role: column for role in ("source", "text") if (column := common[role])} | dict(matched)
    text_columns = [roles[role] for role in TEXT_ROLES if role in roles]
    aspect, rating = (roles.get(role) or common[role] for role in ("aspect", "rating"))
    is_long = "aspect" in roles and "rating" in roles
    if aspect and rating and not is_long:
        words = all(_is_word(record.values.get(aspect)) for record in records)
        is_long = words and count_distinct(records, text_columns) < count_distinct(records, [*text_columns, aspect])
        roles |= {"aspect": aspect, "rating": rating} if is_long else {}
    if is_long and common["comment"]:
        roles.setdefault("comment", common["comment"])
    if rater := rater_column(records, roles, unmatched):
        roles["rater"] = rater
    return {role: column for role, column in roles.items() if role not in matched}


def rater_column(records: Sequence[Record], roles: Mapping[str, str], unmatched: Iterable[str]) -> str | None:
    """The column with a rater's name that distinguishes the rows of each text, up to a few; None without one."""
    is_long = "aspect" in roles and "rating" in roles
    text_columns = [roles[role] for role in (*TEXT_ROLES, *(("aspect",) if is_long else ())) if role in roles]
    names = [key for key in unmatched if key not in roles.values() and column_with_common_name("rater", [key])]
    repeated = len(records) - count_distinct(records, text_columns)
    if not names or "rater" in roles or not (is_long or repeated):
        return None
    unexplained = {name: len(records) - count_distinct(records, [*text_columns, name]) for name in names}
    best = min(names, key=unexplained.__getitem__)
    # A few rows that a rater repeats are refused later, with their line.
    return best if unexplained[best] <= _MAX_REPEATED_SHARE * repeated else None


def refuse_repeated_texts(records: Sequence[Record], roles: Mapping[str, str], unmatched: Sequence[str]) -> None:
    """Ask what distinguishes the rows, if many repeat a text.

    Raises:
        InputError: More than `_MAX_REPEATED_SHARE` of the rows do.
    """
    text_columns = [roles[role] for role in ("group", "source", "context", "text") if role in roles]
    repeated = len(records) - count_distinct(records, text_columns)
    if repeated <= max(_MIN_REPEATED, _MAX_REPEATED_SHARE * len(records)):
        return
    not_ratings = [key for key in unmatched if not all(_is_rating(record.values.get(key)) for record in records)]
    distinguishing = [key for key in not_ratings if count_distinct(records, [*text_columns, key]) == len(records)]
    name = next((key for key in distinguishing if count_distinct(records, [key]) <= len(records) / 2), None)
    columns = f"--columns rater={name or 'COLUMN'}", f"--columns candidate={name or 'COLUMN'}"
    missing = "" if name else " (add the column where there is none)"
    raise records[0].error(
        f"{repeated} of {len(records)} rows repeat a text: does each row hold the rating of one rater?",
        roles["text"],
        found=records[0].field_names,
        remedy=f"if so, name the column of raters: {columns[0]}; if the same text was written by several systems, name "
        f"theirs: {columns[1]}{missing}",
    )


def refuse_other_meaning(
    records: Sequence[Record], roles: Mapping[str, str], unmatched: Sequence[str], named: Collection[str]
) -> None:
    """Ask which column is the source, or the text, where one of that name holds short values that repeat.

    `source` may say where a row is from, e.g. `web`, beside a column `question`. And `text` may be what was summarized,
    beside a column `summary`, where no column is the source. Roles that the user has `named` are not asked about.

    Raises:
        InputError: A column with another name of the role holds more and longer texts; or texts without a source.
    """
    for role in ("source", "text"):
        column, other = roles.get(role), column_with_common_name(role, unmatched)
        if column is None or other is None or role in named:
            continue
        cells, texts = ({str(record.values.get(c) or "").strip() for record in records} for c in (column, other))
        if len(cells) < len(texts) and max(map(len, cells)) * len(texts) < sum(map(len, texts)):
            raise records[0].error(
                f"is {column!r} or {other!r} the {role}?",
                column,
                found=f"{len(cells):,} short values, e.g. {min(cells)!r}, and {len(texts):,} longer ones in {other!r}",
                remedy=f"say which: --columns {role}={other}, or {role}={column}",
            )
        differ = 2 * len(texts) >= len(cells) and not any(map(_is_rating, texts))
        if role == "text" and "source" not in roles and differ:
            raise records[0].error(
                f"is {column!r} or {other!r} the text that was rated?",
                column,
                expected="a column source beside two columns of texts",
                found=records[0].field_names,
                remedy=f"say which: --columns source={column},text={other}, or text={column}",
            )


_STATISTIC = re.compile(
    r"(?:mean|avg|average|median|std|sd)_(?P<after>.+)|(?P<before>.+)_(?:mean|avg|average|median|std|sd|sum|total)"
)


def summarized_name(name: str) -> str | None:
    """The normalized name of which `name` is a statistic, e.g. of `tone_mean` and `avg tone`; None for other names."""
    match = _STATISTIC.fullmatch(normalized_name(name))
    return (match["after"] or match["before"]) if match else None


_NUMBERED_RATER = re.compile(rf"(?:{RATER_NAME.pattern}|[arp])_?\d+")
"""A rater's name as the stem of several columns, which are then several aspects: `rater1_tone`, `rater1_wit`."""


def join_raters_hint(names: Sequence[str], aspects: Collection[str] = ()) -> str:
    """The advice to join columns whose names share a stem, such as `tone (Ann)`, `tone_bob` or `R1 tone`; else empty.

    Args:
        names: Columns of ratings, one per aspect so far.
        aspects: If given, only these are stems.
    """
    for rater_is_last in (True, False):
        columns_of: dict[str, list[str]] = {}
        for name in names:
            stem = _stem(name, rater_is_last)
            if stem and not _NUMBERED_RATER.fullmatch(stem) and (not aspects or stem in aspects):
                columns_of.setdefault(stem, []).append(name)
        several = {stem: columns for stem, columns in columns_of.items() if len(columns) > 1}
        named = {stem: columns for stem, columns in several.items() if len(stem) > 2 and not RATER_NAME.fullmatch(stem)}
        if several:
            entries = named or {"ASPECT": next(iter(several.values()))}
            entry = shlex.quote(",".join(f"{aspect}={'+'.join(columns)}" for aspect, columns in entries.items()))
            listed = ", ".join(map(repr, next(iter(entries.values()))))
            return f"if {listed} are raters of one aspect, join them: --columns {entry}"
    return ""


def _stem(name: str, rater_is_last: bool) -> str:
    """The normalized name of a column without its last word, or without its first one."""
    if rater_is_last and name.endswith(")"):
        return normalized_name(name.split("(")[0])
    words = [word for word in re.split(r"[^\w.]+|_+|(?<=[A-Za-z])(?=\d+$)", name) if word]
    return normalized_name(" ".join(words[:-1] if rater_is_last else words[1:]))


def _is_rating(value: object) -> bool:
    text = str(value).strip().lower()
    return is_missing(value) or looks_like_a_number(text) or text in YES_NO_WORDS


def _is_word(value: object) -> bool:
    text = value.strip() if isinstance(value, str) else ""
    return bool(text) and not looks_like_a_number(text) and text.lower() not in YES_NO_WORDS


def count_distinct(records: Iterable[Record], columns: Sequence[str]) -> int:
    """Number of different combinations of values in the columns."""
    return len({tuple(" ".join(str(record.values.get(column)).split()) for column in columns) for record in records})
