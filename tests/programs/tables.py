"""For tests of debates about several candidates: items of one source, and LMs that reply about tables."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from debate_judge.data.schema import Aspect, Scale
from debate_judge.programs.debate.judge import Debate
from debate_judge.programs.judge import Item, Judge, Judgement, Verdict
from debate_judge.runs.runner.runner import JudgeRunner
from tests.fakes import Script, ScriptedLM, debater, requested, scripted_lm, section
from tests.programs.debates import ITEM

COHERENCE = ITEM.aspect
STYLE = Aspect("plain style", "Are the words plain?", Scale(0, 10))
JOINT_TASK = replace(ITEM.task, aspects=(COHERENCE, STYLE))
"""Two aspects whose scales share no end."""


def items(*texts: str) -> list[Item]:
    """Candidates of one source, in the order given."""
    return [replace(ITEM, candidate=str(n), text=text) for n, text in enumerate(texts, 1)]


def cells(*texts: str) -> list[Item]:
    """Candidates of one source in two aspects, aspect by aspect as a corpus has them."""
    return [replace(item, task=JOINT_TASK, aspect=aspect) for aspect in JOINT_TASK.aspects for item in items(*texts)]


def joint_judge(rounds: int = 0, *, tie_breaker: bool = False, together: int = 8, score_mode: str = "text") -> Debate:
    return Debate(rounds=rounds, tie_breaker=tie_breaker, score_mode=score_mode, together=together, joint=True)


def block(name: str, text: object) -> str:
    return f"[[ ## {name} ## ]]\n{text}"


def headers(prompt: str) -> list[str]:
    return re.findall(r"^\[\[ ## (\w+) ## \]\]$", prompt, re.MULTILINE)


def shown_candidates(prompt: str) -> dict[int, str]:
    """Number -> text of the candidates in a prompt about several, by its headers."""
    material = prompt[: prompt.rindex("\n\nReply with")]
    numbers = dict.fromkeys(re.findall(r"candidate_(\d+)", " ".join(headers(material))))
    return {int(n): section(material, f"candidate_{n}") for n in numbers}


def requested_cells(prompt: str, field: str) -> list[str]:
    """Names of the cells in the description of a requested field."""
    request = prompt[prompt.rindex("Reply with") :]
    return list(dict.fromkeys(re.findall(r"candidate_\d+(?:_\w+)?", section(request, field))))


def joint_table_script(
    score: Callable[[str, str, str], object], issues: Callable[[str, str, str], str | None] | None = None
) -> Script:
    """A script that follows the protocol: it scores the text under each header, and quotes it.

    Args:
        score: From a prompt, a text and the label of an aspect (empty if there is only one) to the score, also the
            final one.
        issues: From the same to TOO HIGH or TOO LOW; None is no issue.
    """

    def about(prompt: str, name: str) -> tuple[str, str]:
        _, number, *aspect = name.split("_", 2)
        return shown_candidates(prompt)[int(number)], "".join(aspect)

    def script(prompt: str) -> str:
        if "decisions" in requested(prompt):
            named = {name: about(prompt, name) for name in requested_cells(prompt, "decisions")}
            decisions = {name: (issues(prompt, *of) if issues else None) or "NO ISSUE" for name, of in named.items()}
            evidence = [block(n, f"It says {named[n][0]}") for n, value in decisions.items() if value != "NO ISSUE"]
            return "\n\n".join([block("review", "Looked."), block("decisions", cell_lines(decisions)), *evidence])
        field = next(name for name in ("scores", "final_scores") if name in requested(prompt))
        scores = {name: score(prompt, *about(prompt, name)) for name in requested_cells(prompt, field)}
        reasons = [block(name, f"{' '.join(about(prompt, name)[::-1])}\nso.") for name in scores]
        return "\n\n".join([*reasons, block(field, cell_lines(scores))])

    return script


def cell_lines(values: Mapping[str, object]) -> str:
    return "\n".join(f"{name}: {value}" for name, value in values.items())


def table_script(score: Callable[[str, str], object], issues: Callable[[str, str], str | None] | None = None) -> Script:
    """`joint_table_script` for one aspect."""
    return joint_table_script(
        lambda prompt, text, _: score(prompt, text), issues and (lambda prompt, text, _: issues(prompt, text))
    )


def or_single_script(script: Script) -> Script:
    """The script, and replies to prompts about a single candidate."""
    alone = debater(decision="ISSUE")
    return lambda prompt: alone(prompt) if section(prompt, "candidate") else script(prompt)


def judged(judge: Judge, script: Script, candidates: Sequence[Item]) -> tuple[list[Judgement], ScriptedLM]:
    lm = scripted_lm(script)
    with JudgeRunner(lm, progress=False) as runner:
        return runner.judge(judge, candidates), lm


def values(judgements: Sequence[Judgement]) -> list[float | str]:
    return [j.score if isinstance(j, Verdict) else j.reason for j in judgements]
