"""For tests of debates about several candidates: items of one source, and LMs that reply about tables."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from debate_judge.data.schema import Aspect, Scale
from debate_judge.programs.debate.judge import Debate
from debate_judge.programs.judge import DebateConfig, Item, Judgement, Verdict
from debate_judge.programs.lm.reply import Reply
from debate_judge.programs.make_lm import make_lm
from debate_judge.programs.offline.engine import OfflineEngine
from debate_judge.runs.runner.runner import JudgeRunner
from tests.fakes import Script, ScriptedLM, debater, requested, scripted_lm, section
from tests.programs.debates import ITEM

TextScore = Callable[[str, str], object]
"""From a prompt and a candidate's text to its score."""


def items(*texts: str) -> list[Item]:
    """Candidates of one source, in the order given."""
    return [replace(ITEM, candidate=str(n), text=text) for n, text in enumerate(texts, 1)]


def table_judge(rounds: int = 0, *, tie_breaker: bool = False, score_mode: str = "text", together: int = 8) -> Debate:
    return Debate(debate_config=DebateConfig(rounds, tie_breaker), score_mode=score_mode, together=together)


COHERENCE = ITEM.aspect
STYLE = Aspect("plain style", "Are the words plain?", Scale(0, 10))
JOINT_TASK = replace(ITEM.task, aspects=(COHERENCE, STYLE))
"""Two aspects whose scales share no end."""


def cells(*texts: str, source: str = ITEM.source) -> list[Item]:
    """Candidates of one source in two aspects, aspect by aspect as a corpus has them."""
    return [
        replace(ITEM, candidate=str(n), text=text, source=source, task=JOINT_TASK, aspect=aspect)
        for aspect in JOINT_TASK.aspects
        for n, text in enumerate(texts, 1)
    ]


def joint_judge(rounds: int = 0, *, tie_breaker: bool = False, together: int = 8, score_mode: str = "text") -> Debate:
    return Debate(debate_config=DebateConfig(rounds, tie_breaker), score_mode=score_mode, together=together, joint=True)


def requested_cells(prompt: str, field: str) -> list[str]:
    """Names of the cells in the description of a requested field."""
    request = prompt[prompt.rindex("Reply with") :]
    return list(dict.fromkeys(re.findall(r"candidate_\d+(?:_\w+)?", section(request, field))))


CellScore = Callable[[str, str, str], object]
"""From a prompt, a candidate's text and the label of an aspect to the score."""


def joint_table_script(score: CellScore, issues: Callable[[str, str, str], str | None] | None = None) -> Script:
    """`table_script` for several aspects; if there is only one, its label is empty."""

    def about(prompt: str, name: str) -> tuple[str, str]:
        _, number, *aspect = name.split("_", 2)
        return shown_candidates(prompt)[int(number)], "".join(aspect)

    def script(prompt: str) -> str:
        if "decisions" in requested(prompt):
            asked = {name: about(prompt, name) for name in requested_cells(prompt, "decisions")}
            found = {name: (issues(prompt, *of) if issues else None) or "NO ISSUE" for name, of in asked.items()}
            evidence = [block(n, f"It says {asked[n][0]}") for n, said in found.items() if said != "NO ISSUE"]
            return "\n\n".join([block("review", "Looked."), block("decisions", cell_lines(found)), *evidence])
        field = next(name for name in ("scores", "final_scores") if name in requested(prompt))
        scores = {name: score(prompt, *about(prompt, name)) for name in requested_cells(prompt, field)}
        reasons = [block(name, f"{name.split('_', 2)[-1]} of:\n{about(prompt, name)[0]}\nso.") for name in scores]
        return "\n\n".join([*reasons, block(field, cell_lines(scores))])

    return script


def cell_lines(values: Mapping[str, object]) -> str:
    return "\n".join(f"{name}: {value}" for name, value in values.items())


def numbers(text: str) -> list[int]:
    """Numbers of the candidates that a text names, in order, each once."""
    return list(dict.fromkeys(int(n) for n in re.findall(r"candidate_(\d+)", text)))


def shown_candidates(prompt: str) -> dict[int, str]:
    """Number -> text of the candidates in a prompt about several, by its headers."""
    material = prompt[: prompt.rindex("\n\nReply with")]
    return {n: section(material, f"candidate_{n}") for n in numbers(" ".join(headers(material)))}


def headers(prompt: str) -> list[str]:
    return re.findall(r"^\[\[ ## (\w+) ## \]\]$", prompt, re.MULTILINE)


def requested_candidates(prompt: str, field: str) -> list[int]:
    """Numbers of the candidates in the description of a requested field."""
    request = prompt[prompt.rindex("Reply with") :]
    return numbers(section(request, field))


def block(name: str, text: object) -> str:
    return f"[[ ## {name} ## ]]\n{text}"


def lines(values: Mapping[int, object]) -> str:
    return "\n".join(f"candidate_{number}: {value}" for number, value in values.items())


def table_script(score: TextScore, issues: Callable[[str, str], str | None] | None = None) -> Script:
    """A script that follows the protocol: it scores the text under each header, and quotes it.

    Args:
        score: From a prompt and a text to its score, also the final one.
        issues: From a prompt and a text to TOO HIGH or TOO LOW; None is no issue.
    """

    def script(prompt: str) -> str:
        texts = shown_candidates(prompt)
        if "decisions" in requested(prompt):
            asked = requested_candidates(prompt, "decisions")
            found = {n: (issues(prompt, texts[n]) if issues else None) or "NO ISSUE" for n in asked}
            evidence = [block(f"candidate_{n}", f"It says {texts[n]}") for n in asked if found[n] != "NO ISSUE"]
            return "\n\n".join([block("review", "Looked."), block("decisions", lines(found)), *evidence])
        field = next(name for name in ("scores", "final_scores") if name in requested(prompt))
        scores = {n: score(prompt, texts[n]) for n in requested_candidates(prompt, field)}
        reasons = [block(f"candidate_{n}", f"It reads:\n{texts[n]}\nso.") for n in scores]
        return "\n\n".join([*reasons, block(field, lines(scores))])

    return script


def or_single_script(script: Script) -> Script:
    """The script, and replies to prompts about a single candidate."""
    alone = debater(decision="ISSUE")
    return lambda prompt: alone(prompt) if section(prompt, "candidate") else script(prompt)


def judged(judge: Debate, script: Script, candidates: Sequence[Item]) -> tuple[list[Judgement], ScriptedLM]:
    """Judge in a runner, as all commands do."""
    lm = scripted_lm(script)
    with JudgeRunner(lm, progress=False) as runner:
        return runner.judge(judge, candidates), lm


def values(judgements: Sequence[Judgement]) -> list[float | str]:
    return [j.score if isinstance(j, Verdict) else j.reason for j in judgements]


def reply_limits(judge: Debate, asked: Sequence[Item], limit: int | None) -> list[int | None]:
    """`max_tokens` of each call of an LM that allows `limit` tokens for a reply about one score."""

    class Engine(OfflineEngine):
        def answer(self, system: str, user: str, settings: Mapping[str, Any]) -> Reply:
            found.append(settings.get("max_tokens"))
            return super().answer(system, user, settings)

    found: list[int | None] = []
    lm = make_lm("openai/mock", api_base="http://127.0.0.1:9/v1", engine=Engine(), max_tokens=limit)
    with JudgeRunner(lm, progress=False) as runner:
        runner.judge(judge, asked)
    return found
