"""One call for each role before a run, so that an error that concerns all items is reported before money is spent.

The calls are about the longest item of the run. Most of them are needed by the run anyway, and are then answered by the
store of replies.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import dspy

from debate_judge.data.errors import InputError
from debate_judge.data.schema import Aspect, Corpus
from debate_judge.programs.grouping import Question, group_into_questions
from debate_judge.programs.judge import Failure, Item, Judge, corpus_items
from debate_judge.programs.lm.engine import JudgeLM
from debate_judge.programs.make_lm import OFFLINE
from debate_judge.runs.runner.runner import JudgeRunner

_LOG = logging.getLogger(__name__)

_HARMLESS = "The bus leaves at noon."
"""In place of a text that the provider may refuse."""

_SKIP_HINT = "; --no-preflight starts without this check, and leaves such items unscored"

REMEDIES: Mapping[str, str] = {
    "unreadable reply": "the model ignores the reply format; try a larger or instruction-tuned model; if the "
    "server has a new model under the old name, use another --store, because earlier replies are kept" + _SKIP_HINT,
    "truncated": "give replies more room with --max-tokens 8000; a reasoning LM needs thousands of tokens" + _SKIP_HINT,
    "refused": "the provider withholds answers about this text; another LM may not" + _SKIP_HINT,
    "no log-probabilities": "choose the score-mode sampled:20 or text; an export keeps the mode that it was "
    "compiled with",
}
"""Reason why an item is unscored -> remedy."""

_ALL_ITEMS_REASON = "no log-probabilities"
"""The reason that holds for all items if it holds for one."""


@dataclass(frozen=True, slots=True)
class PreflightCheck:
    """A judge to be tried, and the questions to try it on."""

    name: str
    judge: Judge
    questions: Sequence[Question]
    """Tried one after the other until one succeeds: a single question may fail for reasons of its own."""
    longest_first: bool = True
    """Whether the first question is the longest of the run, so that all fail if it is too long."""

    @classmethod
    def of(cls, name: str, judge: Judge, items: Sequence[Item]) -> PreflightCheck:
        """A check on the first items of a stream, grouped as in the run."""
        return cls(name, judge, group_into_questions(judge, items, compare_pairs=False).questions, longest_first=False)


def preflight_checks(
    name: str, judges: Mapping[str, Judge], corpus: Corpus, aspects: Sequence[Aspect]
) -> list[PreflightCheck]:
    """The checks of an entrant with `judges` by aspect: on one aspect of each scale, because an LM may fail with one
    scale alone.
    """
    by_scale = {(id(judges[aspect.name]), aspect.scale): aspect for aspect in reversed(aspects)}
    checks = []
    for aspect in by_scale.values():
        judge = judges[aspect.name]
        grouping = group_into_questions(judge, corpus_items(corpus, aspect), compare_pairs=False)
        checks.append(PreflightCheck(name, judge, longest_and_shortest(grouping.questions)))
    return checks


def longest_and_shortest(questions: Iterable[Question]) -> list[Question]:
    """The longest and the shortest question; the first of equally long ones."""
    question_list = list(questions)
    if not question_list:
        return []
    return [max(question_list, key=_length), min(question_list, key=_length)]


def preflight(runner: JudgeRunner, checks: Sequence[PreflightCheck]) -> None:
    """Make one call for each role of each judge.

    Raises:
        InputError: The LM cannot play a role, with the reason and the remedy.
        dspy.LMError: The key is refused, the model unknown, the account empty.
    """
    if runner.lm.model.partition("/")[0] == OFFLINE:
        return
    runner.run_concurrently(
        [partial(_check, runner, check) for check in checks if check.questions and check.judge.named_predictors()]
    )


def _check(runner: JudgeRunner, check: PreflightCheck) -> None:
    failure, remaining = _smoke_test(runner, check.judge, check.questions[0]), list(check.questions[1:])
    too_long = failure is not None and failure.reason == "too long"
    remaining = [] if check.longest_first and too_long else remaining
    while failure is not None and remaining and failure.reason != _ALL_ITEMS_REASON:
        failure = _smoke_test(runner, check.judge, remaining.pop(0))
    if failure is not None and failure.reason in ("lm error", "refused") and not too_long:
        # The texts may be at fault: firewalls and filters refuse those that name passwords or wounds.
        harmless = [replace(i, source=_HARMLESS, context="", text=_HARMLESS) for i in check.questions[0].items]
        if _smoke_test(runner, check.judge, Question(tuple(harmless))) is None:
            _LOG.warning("%s: the first texts are refused and will have no score: %s", check.name, failure.detail)
            return
    if failure is not None:
        raise _preflight_error(runner.lm, check, failure, too_long)


def _smoke_test(runner: JudgeRunner, judge: Judge, question: Question) -> Failure | None:
    async def work() -> Failure | None:
        with dspy.context(lm=runner.lm, disable_history=True, trace=None):
            return (await judge.smoke_test(question.items)).failure

    return runner.wait(work())


def _preflight_error(lm: JudgeLM, check: PreflightCheck, failure: Failure, too_long: bool) -> InputError:
    if too_long:
        size = _length(check.questions[0])
        return InputError(
            f"the longest item does not fit into the context of {lm.model}",
            field=f"{check.name}: {failure.role}",
            expected=f"room for about {size // 4 + 2000:,} tokens, debate and reply included",
            found=failure.detail,
            remedy="choose an LM or a server setting with a larger context, or shorten the text (group "
            f"{check.questions[0].items[0].group!r})" + _SKIP_HINT,
        )
    remedy = REMEDIES.get(failure.reason, "fix what the message says" + _SKIP_HINT)
    return InputError(
        f"{lm.model} cannot play the {failure.role}: {failure.reason}",
        field=f"{check.name}: {failure.role}",
        found=failure.detail,
        remedy=remedy,
    )


def _length(question: Question) -> int:
    first = question.items[0]
    return len(first.source) + len(first.context) + sum(len(item.text) for item in question.items)
