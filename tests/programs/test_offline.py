"""The offline LM: what it must see on small texts, and that it keeps nothing and answers whatever it is asked."""

from __future__ import annotations

import asyncio
import copy
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any, Literal

import dspy
import pytest

from debate_judge.data.schema import Aspect, Scale, Task
from debate_judge.data.tasks import DIALOGUE, SUMMARIZATION
from debate_judge.programs.chateval.referees import Comparing, Summarizing
from debate_judge.programs.debate.critic import Criticism
from debate_judge.programs.debate.judge import Debate
from debate_judge.programs.debate.personas import PERSONAS, STRICT, WEAK
from debate_judge.programs.debate.scorer import Scoring
from debate_judge.programs.debate.tie_breaker import TieBreaking
from debate_judge.programs.geval.steps import Deriving
from debate_judge.programs.judge import DebateConfig, Item, Verdict
from debate_judge.programs.make_lm import make_lm
from debate_judge.programs.offline import engine as offline
from debate_judge.programs.offline import persona as offline_persona
from debate_judge.programs.offline import rubric as offline_rubric
from debate_judge.programs.roles import parsing as replies
from debate_judge.programs.roles.role import ADAPTER, material

ROOT = Path(__file__).resolve().parents[2]

SOURCE = (
    "The town council of Elmford voted on Monday to close the old stone bridge for 14 months. Engineers found "
    "cracks in three of its five arches during an inspection in March. The bridge was built in 1874 and carries "
    "about 9,000 cars a day. Traffic will be sent over the new bypass north of the town. Mayor Anna Holt said that "
    "safety came first. Shop owners in the High Street fear that they will lose customers. The council has promised "
    "250,000 pounds to support them. Repairs will start in September and are expected to cost 6 million pounds."
)
LEAD = SOURCE[: SOURCE.index(" Traffic")]
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


def plain_lm() -> dspy.LM:
    """The engine in an LM of DSPy's own."""
    engine = offline.OfflineEngine()

    class Awaited:
        async def complete(self, request: Any) -> Any:
            return engine.complete(request)

    return dspy.LM(offline.MODEL, engine=engine, async_engine=Awaited(), cache=False)


def prompt(signature: Any, asked: Item, debate: str = "", role: str | None = None, **more: str) -> tuple[str, str]:
    if role is not None:
        signature = signature.with_instructions(role)
    messages = ADAPTER.format(signature, [], {**material(asked, debate), "correction": "", **more})
    return messages[0]["content"], messages[-1]["content"]


def ask(signature: Any, asked: Item, debate: str = "", role: str | None = None, **more: str) -> dict[str, str]:
    reply = answer(*prompt(signature, asked, debate, role, **more))
    found = replies.sections(reply, [*signature.output_fields])
    assert not isinstance(found, replies.Unreadable)
    return found


def scored(asked: Item, debate: str = "", role: str | None = None) -> float:
    value = replies.score(ask(Scoring, asked, debate, role)["score"], asked.aspect.scale)
    assert not isinstance(value, replies.Unreadable)
    return value


def final(asked: Item) -> float:
    value = replies.score(ask(TieBreaking, asked)["final_score"], asked.aspect.scale)
    assert not isinstance(value, replies.Unreadable)
    return value


def critique(asked: Item, role: str) -> list[str]:
    """All that a Critic of this character raises, until it is content."""
    said: list[str] = []
    for number in range(1, 20):
        reply = ask(Criticism, asked, "\n\n".join(said), role)
        if reply["decision"] == replies.NO_ISSUE:
            return said
        said.append(f"Critic, round {number}: {reply['feedback']}")
    raise AssertionError("the Critic never stops")


def in_new_process(program: str, seed: str, given: str) -> str:
    env = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", program]
    return subprocess.run(command, input=given, env=env, text=True, capture_output=True, check=True).stdout


def test_equal_answers_in_every_process_and_for_every_hash_seed() -> None:
    asked = [prompt(s, item(a, t)) for s in (Scoring, Criticism, TieBreaking) for a, t in DEFECTS]
    asked += [prompt(Scoring, item(a.name, t, DIALOGUE)) for a in DIALOGUE.aspects for t in (LIVELY, STOCK)]
    asked.append(("", "Write a new instruction within ``` blocks."))
    program = (
        "import json, sys; from debate_judge.programs.offline import engine;"
        "print([engine.OfflineEngine().answer(*p, {}).text for p in json.load(sys.stdin)])"
    )
    here = f"{[answer(*p) for p in asked]}\n"
    assert [in_new_process(program, seed, json.dumps(asked)) for seed in ("0", "1", "77")] == [here] * 3


def test_importing_it_loads_no_dspy() -> None:
    program = "import sys; from debate_judge.programs.offline import engine; print('dspy' in sys.modules)"
    assert in_new_process(program, "0", "").strip() == "False"


def test_only_the_critics_own_words_change_the_score() -> None:
    asked = item("consistency", WRONG_NUMBER)
    alone = scored(asked)
    raised = critique(asked, STRICT.text)[0]
    assert "numbers that the source does not have (1)" in raised
    assert scored(asked, raised) < alone
    assert scored(asked, f"Scorer, round 0, score 1: I gave 1.\n\n{raised}") == scored(asked, raised)
    # Said by another speaker, quoted, or in other words, it is no evidence.
    words = "numbers that the source does not have (1)"
    for said in (f"Scorer, round 0, score 2: {words}", f'Critic, round 1: it says "{words}"', "Critic, round 1: no!"):
        assert scored(asked, said) == alone


def test_a_wrong_number_lowers_consistency_only_once_it_was_raised() -> None:
    right, wrong = item("consistency"), item("consistency", WRONG_NUMBER)
    assert scored(wrong) == scored(right) == 5
    debate = "\n\n".join(critique(wrong, STRICT.text))
    assert '"26"' in debate
    assert scored(wrong, debate) < 4.5


@pytest.mark.parametrize(("aspect", "text"), DEFECTS)
def test_an_obvious_defect_costs_points(aspect: str, text: str) -> None:
    assert final(item(aspect, text)) < final(item(aspect)) - 0.25


def test_a_repeated_sentence_costs_coherence_through_the_debate() -> None:
    asked = item("coherence", f"{GOOD} {CRACKS}")
    debate = critique(asked, STRICT.text)
    assert "repeated word pairs" in debate[0]
    assert "lower score" in debate[0]
    assert scored(asked, debate[0]) < scored(asked)


@pytest.mark.parametrize("aspect", ["naturalness", "coherence", "engagingness", "groundedness", "overall"])
def test_stock_phrases_are_rated_below_a_reply_with_something_to_say(aspect: str) -> None:
    assert final(item(aspect, STOCK, DIALOGUE)) < final(item(aspect, LIVELY, DIALOGUE))


def test_where_no_fact_is_given_no_reply_misses_it() -> None:
    for text in (STOCK, LIVELY):
        assert final(item("groundedness", text, DIALOGUE, fact="")) == 1
    assert final(item("groundedness", STOCK, DIALOGUE)) < 0.5


@pytest.mark.parametrize("aspect", [a.name for a in SUMMARIZATION.aspects])
def test_a_mild_critic_has_no_issue_with_a_verbatim_lead(aspect: str) -> None:
    assert critique(item(aspect, LEAD), WEAK.text) == []


def test_a_stronger_persona_never_raises_fewer_items() -> None:
    by_strength = sorted(PERSONAS.values(), key=lambda p: -offline_persona.threshold(p.text))
    raised = [[len(critique(item(*defect), p.text)) for p in by_strength] for defect in DEFECTS]
    assert raised == [sorted(counts) for counts in raised]
    assert sum(counts[0] for counts in raised) < sum(counts[-1] for counts in raised) - len(DEFECTS)


def test_a_personas_wording_sets_the_threshold_by_degree() -> None:
    degree = offline_persona.threshold
    order = ["weakly-negative", "moderately-negative", "plain", "devils-advocate"]
    thresholds = [degree(PERSONAS[name].text) for name in order]
    assert thresholds == sorted(thresholds, reverse=True)
    assert degree("You are a critic.") == 0.04
    assert degree("You are a lenient critic.") == 0.08
    assert degree("You are not a lenient critic.") < 0.04
    assert degree("You play the devil's advocate.") == 0.02
    assert degree("You play the devil's advocate. Be strict.") < 0.02


@pytest.mark.parametrize("scale", [Scale(0, 1), Scale(1, 5), Scale(0, 100), Scale(-1, 1), Scale(1, 4.999)])
def test_scores_lie_on_the_scale(scale: Scale) -> None:
    aspect = Aspect("coherence (1 to 9, text)", "In order.", scale)
    task = Task("t", "article", "summary", (aspect,))
    for text in (GOOD, "Nothing.", "", SOURCE):
        given = scored(Item("g", "c", task, aspect, SOURCE, text))
        whole = scored(Item("g", "c", task, aspect, SOURCE, text), role="Give a whole number.")
        assert scale.contains(given)
        assert whole == int(whole) or whole == scale.high


def test_an_aspect_of_another_name_is_rated_by_the_whole() -> None:
    assert offline_rubric.rubric_for("summary", "charm") is offline_rubric.RUBRICS["summary"]["overall"]
    assert offline_rubric.rubric_for("summary", "Factual accuracy") is offline_rubric.RUBRICS["summary"]["consistency"]
    assert offline_rubric.rubric_for("dialogue", "consistency") is offline_rubric.RUBRICS["dialogue"]["groundedness"]


def test_no_phrase_is_part_of_another() -> None:
    phrases = [feature.phrase for feature in offline_rubric.FEATURES.values()]
    assert [(a, b) for a in phrases for b in phrases if a != b and a in b] == []


def test_the_real_debate_runs_on_it_both_ways() -> None:
    asked = item("coherence", f"{GOOD} {CRACKS}")

    def judged(lm: Any) -> Any:
        with dspy.context(lm=lm):
            return asyncio.run(Debate(debate_config=DebateConfig(rounds=3, tie_breaker=True)).judge(asked))

    verdict, same = judged(make_lm("offline")), judged(plain_lm())
    assert isinstance(verdict, Verdict)
    assert verdict.score == same.score == final(asked)
    assert verdict.stop_reason == "tie-breaker"


def test_the_engine_can_be_copied_and_pickled_and_answers_alike_by_all_ways() -> None:
    system, user = prompt(Scoring, item("fluency"))
    request = dspy.lm15.Request(model=offline.MODEL, system=system, messages=(dspy.lm15.Message.user(user),))
    engine = offline.OfflineEngine()
    copies = [copy.deepcopy(engine), pickle.loads(pickle.dumps(engine))]
    answers = [e.complete(request) for e in (engine, *copies)]
    assert len({a.message.text for a in answers}) == 1
    assert answers[0].usage.input_tokens == (len(system) + len(user)) // 4
    both = asyncio.run(
        engine.chat(offline.MODEL, [{"role": "system", "content": system}, {"role": "user", "content": user}], {})
    )
    assert both.text == answers[0].message.text
    lm = make_lm("offline")
    assert "Text statistics" in lm(user)[0]
    assert "Text statistics" in asyncio.run(lm.acall(user))[0]


def test_it_proposes_instructions_to_dspys_optimizers() -> None:
    from dspy.teleprompt.copro_optimizer import BasicGenerateInstruction
    from dspy.teleprompt.gepa import InstructionProposer

    seen = set()
    with dspy.context(lm=make_lm("offline"), adapter=dspy.ChatAdapter()):
        propose = dspy.Predict(BasicGenerateInstruction)
        for persona in PERSONAS.values():
            text = propose(basic_instruction=persona.text).proposed_instruction
            assert "NO ISSUE" in text
            seen.add(text)
        assert "final score" in propose(basic_instruction=TieBreaking.instructions).proposed_instruction
        assert "aspect" in propose(basic_instruction=Scoring.instructions).proposed_instruction
        examples = [{"Inputs": {"a": "b"}, "Generated Outputs": "c", "Feedback": "d"}]
        new = InstructionProposer()({"critic.predict": STRICT.text}, {"critic.predict": examples}, ["critic.predict"])
        assert "NO ISSUE" in new["critic.predict"]
    assert len({offline_persona.threshold(text) for text in seen}) > 1


class _Various(dspy.Signature):
    """Say many things."""

    question: str = dspy.InputField()
    remark: str = dspy.OutputField()
    choice: Literal["red", "blue"] = dspy.OutputField()
    sure: bool = dspy.OutputField()
    amount: float = dspy.OutputField()
    names: list[str] = dspy.OutputField(desc="of\nall")
    notes: dict[str, str] = dspy.OutputField()


@pytest.mark.parametrize("adapter", [dspy.ChatAdapter(use_json_adapter_fallback=False), dspy.JSONAdapter()])
def test_fields_it_knows_nothing_about_get_a_value_of_their_type(adapter: dspy.Adapter) -> None:
    with dspy.context(lm=make_lm("offline"), adapter=adapter):
        reply = dspy.Predict(_Various)(question="?")
    assert "text statistics" in reply.remark
    assert (reply.choice, reply.sure, reply.amount, reply.names, reply.notes) == ("red", False, 0.0, [], {})


def test_the_other_judges_roles_are_answered() -> None:
    asked = item("coherence", f"{GOOD} {CRACKS}")
    steps = ask(Deriving, asked)["steps"]
    assert steps.startswith("1. Look at agreement with the order of the source.")
    assert "repeated word pairs" in steps
    pair = ask(Comparing, asked, answer_1=GOOD, answer_2=asked.text, role="Other referees have the same task.")
    assert float(pair["score_1"]) > float(pair["score_2"])
    talk = "annotator, turn 1, score 3: repeated word pairs (9%)\n\ncritic, turn 1, score 2: no"
    summary = ask(Summarizing, asked, talk)["summary"]
    assert "repeated word pairs" in summary
    assert "annotator, turn 1, score 3; critic, turn 1, score 2" in summary
