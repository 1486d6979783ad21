"""Small texts with known defects, and roles that are asked about them."""

from __future__ import annotations

from typing import Any

from debate_judge.data.schema import Task
from debate_judge.data.tasks import DIALOGUE, SUMMARIZATION
from debate_judge.programs.debate.table import TieBreaking
from debate_judge.programs.judge import Item
from debate_judge.programs.offline import engine as offline
from debate_judge.programs.roles import parsing
from debate_judge.programs.roles.role import item_inputs
from tests.programs.prompts import ADAPTER

SOURCE = (
    "The town council of Elmford voted on Monday to close the old stone bridge for 14 months. Engineers found "
    "cracks in three of its five arches during an inspection in March. The bridge was built in 1874 and carries "
    "about 9,000 cars a day. Traffic will be sent over the new bypass north of the town. Mayor Anna Holt said that "
    "safety came first. Shop owners in the High Street fear that they will lose customers. The council has promised "
    "250,000 pounds to support them. Repairs will start in September and are expected to cost 6 million pounds."
)
CLOSED, CRACKS, REPAIRS = (SOURCE.split(". ")[i].rstrip(".") + "." for i in (0, 1, 7))
GOOD = f"{CLOSED} {CRACKS} {REPAIRS}"
WRONG_NUMBER = GOOD.replace("14 months", "26 months")
DEFECTS = [
    ("coherence", f"{REPAIRS} {CRACKS} {CLOSED}"),
    ("coherence", f"{GOOD} {CRACKS}"),
    ("coherence", "The town council of Elmford voted on Monday to close the. Engineers found cracks in three of its."),
    ("consistency", WRONG_NUMBER),
    ("consistency", f"{GOOD} The mayor resigned after a scandal about secret payments from a builder."),
    (
        "fluency",
        "The town council of Elmford voted on Monday to has close the. Engineers cracks arches the in of March",
    ),
    ("fluency", "Town the of council Elmford on voted Monday close to the bridge old stone months 14 for."),
    ("relevance", "The national team won its third match. The coach praised young players. Tickets are sold out."),
    ("relevance", "Shop owners in the High Street fear that they will lose customers."),
]
HISTORY = "do you like chess ?\ni do . i play online with my brother . the longest game took 269 moves ."
FACT = "the longest tournament game of chess was played in belgrade in 1989 between nikolic and arsovic ."
LIVELY = "Wow, 269 moves! That game was played in Belgrade in 1989 by Nikolic and Arsovic. Does your brother often win?"
STOCK = "i do n't know , i think it is a great game , i think i would like it ."


def item(aspect: str, text: str = GOOD, task: Task = SUMMARIZATION, fact: str = FACT) -> Item:
    if task is DIALOGUE:
        return Item("g", "c", task, task.aspect(aspect), HISTORY, text, fact)
    return Item("g", "c", task, task.aspect(aspect), SOURCE, text)


def answer(system: str, user: str) -> str:
    return offline.OfflineEngine().answer(system, user, {}).text


def prompt(signature: Any, asked: Item, debate: str = "", role: str | None = None, **more: str) -> tuple[str, str]:
    if role is not None:
        signature = signature.with_instructions(role)
    messages = ADAPTER.format(signature, [], {**item_inputs(asked, debate), "correction": "", **more})
    return messages[0]["content"], messages[-1]["content"]


def ask(signature: Any, asked: Item, debate: str = "", role: str | None = None, **more: str) -> dict[str, str]:
    reply = answer(*prompt(signature, asked, debate, role, **more))
    found = parsing.parse_fields(reply, [*signature.output_fields])
    assert not isinstance(found, parsing.Unreadable)
    return found


def final(asked: Item) -> float:
    value = parsing.parse_score(ask(TieBreaking, asked)["final_score"], asked.aspect.scale)
    assert not isinstance(value, parsing.Unreadable)
    return value
