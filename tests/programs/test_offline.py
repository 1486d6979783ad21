"""The offline LM on texts with known defects: no state, equal replies in every process; and a user's
own judge, whose fields it does not know."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any, Literal

import dspy
import pytest

from debate_judge.data.tasks import SUMMARIZATION
from debate_judge.programs import parsing
from debate_judge.programs.debate.prompts import Criticism, Scoring, TieBreaking, TwoBriefs
from debate_judge.programs.judge import EMPTY, Item, ItemJudge, Transcript, Turn
from debate_judge.programs.offline import OfflineTransport
from debate_judge.programs.role import Fields, JudgeSignature, Role, RoleLastAdapter, item_inputs
from debate_judge.programs.testing import check_judge

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
    ("consistency", WRONG_NUMBER),
    ("consistency", f"{GOOD} The mayor resigned after a scandal about secret payments from a builder."),
    ("fluency", "Town the of council Elmford on voted Monday close to the bridge old stone months 14 for."),
    ("relevance", "The national team won its third match. The coach praised young players. Tickets are sold out."),
    ("relevance", "Shop owners in the High Street fear that they will lose customers."),
]


def item(aspect: str, text: str = GOOD) -> Item:
    return Item("g", "c", SUMMARIZATION, SUMMARIZATION.aspect(aspect), SOURCE, text)


def prompt(signature: Any, about: Item) -> tuple[str, str]:
    messages = RoleLastAdapter().format(signature, [], {**item_inputs(about, ""), "correction": ""})
    return messages[0]["content"], messages[-1]["content"]


@pytest.mark.parametrize(("aspect", "text"), DEFECTS)
def test_an_obvious_defect_costs_points(aspect: str, text: str) -> None:
    replies = [OfflineTransport().answer(*prompt(TieBreaking, item(aspect, t)), {}).text for t in (text, GOOD)]
    defective, good = (float(parsing.parse_fields(reply, ["final_score"])["final_score"]) for reply in replies)
    assert defective < good - 0.25


@pytest.mark.integration
def test_equal_answers_in_every_process_and_for_every_hash_seed() -> None:
    prompts = [prompt(s, item(a, t)) for s in (Scoring, Criticism, TwoBriefs, TieBreaking) for a, t in DEFECTS]
    prompts.append(("", "Write a new instruction within ``` blocks."))
    program = (
        "import json, sys; from debate_judge.programs import offline as engine;"
        "print([engine.OfflineTransport().answer(*p, {}).text for p in json.load(sys.stdin)])"
    )
    here = f"{[OfflineTransport().answer(*p, {}).text for p in prompts]}\n"
    for seed in ("0", "77"):
        command, env = [sys.executable, "-c", program], {**os.environ, "PYTHONHASHSEED": seed}
        assert subprocess.check_output(command, input=json.dumps(prompts), env=env, text=True) == here


class Weighing(JudgeSignature):
    """Weigh the candidate."""

    musings: str = dspy.OutputField(desc="whatever comes to your mind")
    side: Literal["poor", "fair", "good"] = dspy.OutputField(desc="one word")
    weight: int = dspy.OutputField(desc="a grade from 1 to 10")
    sound: bool = dspy.OutputField()
    agreed: str = dspy.OutputField(desc="yes or no and nothing else")
    advice: str = dspy.OutputField(desc="keep or drop")
    names: list[str] = dspy.OutputField(desc="the names in it")


class Scales(ItemJudge):
    """A judge whose fields the offline LM does not know."""

    def __init__(self) -> None:
        super().__init__()
        self.weigher = Role("weigher", Weighing)
        self.fields: Fields = {}

    async def converse_about(self, item: Item, rounds: int) -> Transcript:
        def read(fields: Fields) -> float:
            self.fields = fields
            return {"poor": item.aspect.scale.low, "good": item.aspect.scale.high}.get(fields["side"], 3.0)

        answer = await self.weigher.ask(item, read)
        return EMPTY.add(Turn("weigher", 0, "", score=answer.value, calls=answer.calls))

    def config(self) -> dict[str, Any]:
        return {}


def test_the_offline_lm_answers_fields_by_type_and_description() -> None:
    judge = Scales()
    check_judge(judge)
    fields = judge.fields
    assert fields["musings"].startswith("Text statistics: ")
    assert fields["side"] in ("poor", "fair", "good")
    assert 1 <= int(fields["weight"]) <= 10
    assert fields["sound"] in ("True", "False")
    assert fields["agreed"] in ("yes", "no")
    assert fields["advice"] in ("keep", "drop")
    assert all(isinstance(name, str) for name in json.loads(fields["names"]))
