"""A cache of the debates of a run: the same question to the same judge is answered from memory.

Folds of a compile ask the same judges about the same sources many times. The store of replies answers without LM calls,
but formatting the prompts and parsing the replies of a debate takes a few milliseconds each time.
"""

from __future__ import annotations

import copy
import json
import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from debate_judge.data.schema import fingerprint
from debate_judge.programs.grouping import Question
from debate_judge.programs.judge import DebateConfig, Judge, Transcript

AskQuestions = Callable[[list[Question]], list[list[Transcript]]]
"""Questions -> transcripts of each, one per item."""


class DebateCache:
    """Transcripts by judge and question. If two threads need the same transcript, one asks and the other waits.

    Debates with a failure are not kept, because another attempt may succeed.
    """

    def __init__(self) -> None:
        self._debates: _Cache = {}
        self._tie_breaks: _Cache = {}
        self._lock = threading.Lock()

    def debates(
        self, judge: Judge, rounds: int, questions: Sequence[Question], ask: AskQuestions
    ) -> list[list[Transcript]]:
        """The judge's debates of at most `rounds` rounds, one list for each question.

        A longer debate in the cache is cut, because it contains the shorter one.
        """
        name = _judge_fingerprint(judge)
        by_key: dict[Hashable, Question] = {(name, question.key): question for question in questions}
        cached = self._get_or_ask(self._debates, rounds, by_key, ask)
        return [[debate.until(rounds) for debate in cached[name, question.key]] for question in questions]

    def tie_breaks(
        self, judge: Judge, debates: Sequence[Sequence[Transcript]], questions: Sequence[Question], ask: AskQuestions
    ) -> list[list[Transcript]]:
        """`debates` after the decisions of the judge's Tie-breaker, one list for each question."""
        name = _judge_fingerprint(judge)
        keys = [(name, question.key, tuple(debate)) for question, debate in zip(questions, debates, strict=True)]
        cached = self._get_or_ask(self._tie_breaks, 0, dict(zip(keys, questions, strict=True)), ask)
        return [cached[key] for key in keys]

    def _get_or_ask(
        self, cache: _Cache, rounds: int, questions: Mapping[Hashable, Question], ask: AskQuestions
    ) -> dict[Hashable, list[Transcript]]:
        """Key -> transcripts of at least `rounds` rounds; calls `ask` for those not cached and not in flight."""
        new: dict[Hashable, Question] = {}
        with self._lock:
            for key, question in questions.items():
                if key not in cache or cache[key].rounds < rounds:
                    new[key], cache[key] = question, _CachedDebate(rounds)
            debates = {key: cache[key] for key in questions}
        try:
            for key, transcripts in zip(new, ask(list(new.values())) if new else [], strict=True):
                debates[key].result.set_result(transcripts)
        finally:
            with self._lock:
                for key in new:
                    # Threads that wait for a question that failed are released with an error.
                    failed = debates[key].result.cancel() or any(t.failure for t in debates[key].result.result())
                    if failed and cache[key] is debates[key]:
                        del cache[key]
        return {key: debate.result.result() for key, debate in debates.items()}


@dataclass(frozen=True, eq=False)
class _CachedDebate:
    rounds: int
    result: Future[list[Transcript]] = field(default_factory=Future)


_Cache = dict[Hashable, _CachedDebate]


def _judge_fingerprint(judge: Judge) -> str:
    """Fingerprint of what a judge's replies depend on: class, configuration and state, but not the number of rounds,
    which the caller gives."""
    # A shallow copy: deep copies, made thousands of times, would take longer than the cache saves.
    default_rounds = copy.copy(judge)
    default_rounds.debate_config = DebateConfig()
    state = [(name, predictor.signature.instructions, predictor.demos) for name, predictor in judge.named_predictors()]
    return fingerprint(
        json.dumps([judge.kind, judge.together, default_rounds.config(), state], sort_keys=True, default=str)
    )
