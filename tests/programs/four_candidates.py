"""Four candidates of one source and replies about them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

from tests.programs.tables import items, shown

FOUR = items("one", "two", "three", "four")


def by_text(prompt: str, text: str) -> int:
    return {"one": 1, "two": 2, "three": 3, "four": 4}[text]


def number_of(prompt: str, text: str) -> int:
    return next(number for number, told in shown(prompt).items() if told == text)


def line_of(prompt: str, text: str) -> str:
    return f"candidate_{number_of(prompt, text)}: {by_text(prompt, text)}"


# --- what is read of a reply ---

ORDERS: dict[str, Callable[[str, str], str]] = {
    "backwards": lambda prompt, reply: "\n\n".join(reply.split("\n\n")[::-1]),
    "numbers alone": lambda prompt, reply: re.sub(r"^candidate_(\d: )", r"\1", reply, flags=re.MULTILINE),
    "bold": lambda prompt, reply: re.sub(r"^candidate_(\d): (\d)$", r"- **Candidate \1**: **\2**", reply, flags=re.M),
    "a table": lambda prompt, reply: re.sub(r"^candidate_(\d): (\d)$", r"| candidate_\1 | \2 |", reply, flags=re.M),
    "of the scale": lambda prompt, reply: re.sub(r"^(candidate_\d: \d)$", r"\1/5", reply, flags=re.MULTILINE),
    "nothing but the lines": lambda prompt, reply: reply.partition("[[ ## scores ## ]]\n")[2],
    "an object": lambda prompt, reply: json.dumps({"scores": {n: by_text("", t) for n, t in shown(prompt).items()}}),
    "the same line twice": lambda prompt, reply: f"{reply}\n{line_of(prompt, 'two')}",
    "words around": lambda prompt, reply: reply.replace("scores ## ]]\n", "scores ## ]]\nHere they are:\n") + "\nDone.",
    "thoughts first": lambda prompt, reply: f"<think>\ncandidate_1: 5\n</think>\n{reply}",
}  # fmt: skip
