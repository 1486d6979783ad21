"""The offline LM has no state, replies equally in every process, and replies to DSPy's proposers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import dspy
import pytest

from debate_judge.data.tasks import DIALOGUE
from debate_judge.programs.debate.personas import PERSONAS, STRICT
from debate_judge.programs.debate.table import Criticism, Scoring, TieBreaking
from debate_judge.programs.make_lm import make_lm
from debate_judge.programs.offline import roles as offline_roles
from tests.programs.offline_items import DEFECTS, LIVELY, STOCK, answer, item, prompt

ROOT = Path(__file__).resolve().parents[2]


def in_new_process(program: str, seed: str, given: str) -> str:
    env = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", program]
    return subprocess.run(command, input=given, env=env, text=True, capture_output=True, check=True).stdout


@pytest.mark.integration
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
        new = InstructionProposer()({"critic": STRICT.text}, {"critic": examples}, ["critic"])
        assert "NO ISSUE" in new["critic"]
    assert len({offline_roles.threshold(text) for text in seen}) > 1
