"""For tests of debates about several candidates: items of one source, and an LM that replies about each of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from debate_judge.programs.judge import Item, Judge, Judgement, Verdict
from debate_judge.runs.runner import JudgeRunner
from tests.fakes import Script, ScriptedLM, requested, scripted_lm, section
from tests.programs.debates import ITEM

COHERENCE = ITEM.aspect


def items(*texts: str) -> list[Item]:
    """Candidates of one source, in the order given."""
    return [replace(ITEM, candidate=str(n), text=text) for n, text in enumerate(texts, 1)]


def block(name: str, text: object) -> str:
    return f"[[ ## {name} ## ]]\n{text}"


def headers(prompt: str) -> list[str]:
    return re.findall(r"^\[\[ ## (\w+) ## \]\]$", prompt, re.MULTILINE)


def shown_candidates(prompt: str) -> dict[int, str]:
    """Number -> text of the candidates in a prompt about several, by its headers; empty for other prompts."""
    material = prompt[: prompt.rindex("\n\nReply with")]
    numbers = dict.fromkeys(re.findall(r"candidate_(\d+)", " ".join(headers(material))))
    return {int(n): section(material, f"candidate_{n}") for n in numbers}


def table_script(score: Callable[[str, str], object], issues: Callable[[str, str], str | None] | None = None) -> Script:
    """A script that follows the protocol about one candidate or several, and quotes each.

    Args:
        score: From a prompt and a candidate's text to the score, also the final one.
        issues: From the same to the Critic's feedback; None is no issue.
    """

    def script(prompt: str) -> str:
        shown = shown_candidates(prompt)
        # What follows may be a part of the candidate itself.
        alone = prompt.partition("[[ ## candidate ## ]]\n")[2].partition("\n\n[[ ## ")[0]
        texts = {}
        for name in requested(prompt):
            field, _, number = name.rpartition("_") if shown else (name, "", "0")
            text = shown.get(int(number), alone)
            quoting = f"It says {text}\nso."
            issue = issues(prompt, text) if issues else None
            values = {"score": score(prompt, text), "final_score": score(prompt, text), "side": "Critic"}
            values |= {"feedback": f"{issue} {quoting}" if issue else "NO ISSUE"}
            texts[name] = values.get(field, quoting)
        return "\n\n".join(block(name, text) for name, text in texts.items())

    return script


def judged(judge: Judge, script: Script, candidates: Sequence[Item]) -> tuple[list[Judgement], ScriptedLM]:
    lm = scripted_lm(script)
    with JudgeRunner(lm, progress=False) as runner:
        return runner.judge(judge, candidates), lm


def values(judgements: Sequence[Judgement]) -> list[float | str]:
    return [j.score if isinstance(j, Verdict) else j.reason for j in judgements]
