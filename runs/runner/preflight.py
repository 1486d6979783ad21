"""One call for each role before a run spends anything: what would fail for all items is reported at once.

The calls are about the longest item of the run, and most of them are calls that the run needs anyway, which the
store of replies then answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import dspy

from debate_judge.data.errors import InputError
from debate_judge.data.schema import Aspect, Corpus
from debate_judge.programs.compiled import shared_judges
from debate_judge.programs.grouping import Question, group_into_questions
from debate_judge.programs.judge import Item, Judge, corpus_items
from debate_judge.programs.lm.client import JudgeLM
from debate_judge.programs.make_lm import OFFLINE
from debate_judge.programs.transcript import Failure
from debate_judge.runs.runner.runner import JudgeRunner

_SKIP_HINT = "; --config preflight=false starts without this check, and leaves such items unscored"

REMEDIES: Mapping[str, str] = {
    "unreadable reply": "the LM does not keep to the form of a reply; a larger or better instructed one may do; where "
    "the server has changed under the same name, use another --store, because earlier replies are kept" + _SKIP_HINT,
    "truncated": "give replies more room with --config max-tokens=8000; an LM that thinks aloud needs "
    "thousands of tokens" + _SKIP_HINT,
    "refused": "the provider withholds answers about this text; another LM may not" + _SKIP_HINT,
    "no log-probabilities": "choose the score-mode sampled:20 or text; an export keeps the mode that it was "
    "compiled with",
}
"""Why an item has no score -> what helps."""

_SHARED_CALL_REMEDY = (
    "the LM does not keep to the form of a reply about several candidates or aspects; compile with together = 0 and "
    "without joint, or choose a larger or better instructed LM" + _SKIP_HINT
)

_CONCERNS_ALL_ITEMS = "no log-probabilities"
"""The reason that holds for every item if it holds for one."""


@dataclass(frozen=True, slots=True)
class PreflightCheck:
    """A judge that is to be tried, and the item that it is tried on."""

    name: str
    judge: Judge
    questions: Sequence[Question]
    """Tried until one succeeds: a single item may fail for reasons of its own."""
    new: bool = False
    """Whether the items are any, and not the longest first: then one that is too long is that item's matter."""

    @classmethod
    def of(cls, name: str, judge: Judge, items: Sequence[Item]) -> PreflightCheck:
        """The trial on new items, as the judge is asked about them."""
        return cls(name, judge, group_into_questions(judge, items, compare_pairs=False).questions, new=True)


def preflight_checks(
    name: str, judges: Mapping[str, Judge], corpus: Corpus, aspects: Sequence[Aspect]
) -> list[PreflightCheck]:
    """What there is to try about a judge, with the judges of its aspects, on this corpus: one aspect of each scale, for
    a scale may be refused; where aspects share calls, all of them at once.
    """
    aspects_of_judge: dict[int, tuple[Judge, list[Aspect]]] = {}
    for shared in shared_judges({aspect.name: judges[aspect.name] for aspect in aspects}):
        aspects_of_judge.setdefault(id(shared.judge), (shared.judge, []))[1].extend(a for a in aspects if a.name in shared.aspects)
    checks = []
    for judge, judge_aspects in aspects_of_judge.values():
        scales = {aspect.scale: [aspect] for aspect in reversed(judge_aspects)}
        for aspect_names in [judge_aspects] if judge.joint else scales.values():
            items = [item for aspect in aspect_names for item in corpus_items(corpus, aspect)]
            checks.append(
                PreflightCheck(name, judge, longest_and_shortest(group_into_questions(judge, items, compare_pairs=False).questions))
            )
    return checks


def longest_and_shortest(questions: Iterable[Question]) -> list[Question]:
    """The longest and the shortest of the questions; the first of equals."""
    question_list = list(questions)
    if not question_list:
        return []
    return [max(question_list, key=_length), min(question_list, key=_length)]


def preflight(runner: JudgeRunner, checks: Sequence[PreflightCheck]) -> None:
    """Have each role of each judge speak once.

    Raises:
        InputError: A role cannot be played by this LM, with the reason and the remedy.
        dspy.LMError: The key is refused, the model unknown, the account empty.
    """
    if runner.lm.model.partition("/")[0] == OFFLINE:
        return
    runner.run_concurrently(
        [
            partial(_check, runner, check)
            for check in checks
            if check.questions and check.judge.named_predictors()
        ]
    )


def _check(runner: JudgeRunner, check: PreflightCheck) -> None:
    failure, others = _smoke_test(runner, check.judge, check.questions[0]), list(check.questions[1:])
    too_long = failure is not None and failure.reason == "too long"
    while failure is not None and others and failure.reason != _CONCERNS_ALL_ITEMS and (check.new or not too_long):
        failure = _smoke_test(runner, check.judge, others.pop(0))
    if failure is not None:
        raise _refusal(runner.lm, check, failure, too_long)


def _smoke_test(runner: JudgeRunner, judge: Judge, question: Question) -> Failure | None:
    # A job of the batch service may take a day, which is no way to find a wrong key.
    lm = runner.lm.without_batches()

    async def work() -> Failure | None:
        with dspy.context(lm=lm, disable_history=True, trace=None):
            return (await judge.smoke_test(question.items)).failure

    return runner.wait(work())


def _refusal(lm: JudgeLM, check: PreflightCheck, failure: Failure, too_long: bool) -> InputError:
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
    if failure.reason == "unreadable reply" and len(check.questions[0].items) > 1 and not check.judge.compares:
        remedy = _SHARED_CALL_REMEDY
    return InputError(
        f"{lm.model} cannot play the {failure.role}: {failure.reason}",
        field=f"{check.name}: {failure.role}",
        found=failure.detail,
        remedy=remedy,
    )


def _length(question: Question) -> int:
    first = question.items[0]
    return len(first.source) + len(first.context) + sum(map(len, question.texts))
