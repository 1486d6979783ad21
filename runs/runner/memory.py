"""The debates of a run, kept while it runs: what is asked again of the same judge about the same item is not even read.

Folds of a compile ask the same judges about the same sources many times over. The store of replies answers that at no
cost in LM calls; but to make the prompts of a debate again, and to read its replies, takes a few milliseconds each.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Sequence
from typing import Any

from debate_judge.data.schema import fingerprint
from debate_judge.programs.judge import DebateConfig, Judge
from debate_judge.programs.transcript import Transcript
from debate_judge.runs.runner.tables import CandidateTable

Ask = Callable[[list[CandidateTable]], list[list[Transcript]]]
"""From questions to what was said about the candidates of each."""


class DebateMemory:
    """Transcripts by judge and question. Debates with a failure are not kept: asked again, they may go well."""

    def __init__(self) -> None:
        self._debates: dict[tuple[str, str], tuple[int, list[Transcript]]] = {}
        self._ties: dict[tuple[str, str, tuple[Transcript, ...]], list[Transcript]] = {}

    def debates(self, judge: Judge, rounds: int, tables: Sequence[CandidateTable], ask: Ask) -> list[list[Transcript]]:
        """What the judge says in at most `rounds` rounds, one list for each question.

        A longer debate that is known is cut, for it holds the shorter one.
        """
        name = _name(judge)
        new = [t for t in tables if self._debates.get((name, t.key), (-1, []))[0] < rounds]
        told = dict(zip((t.key for t in new), ask(new) if new else [], strict=True))
        for key, transcripts in told.items():
            if all(transcript.failure is None for transcript in transcripts):
                self._debates[name, key] = rounds, transcripts
        return [
            told[t.key] if t.key in told else [each.until(rounds) for each in self._debates[name, t.key][1]]
            for t in tables
        ]

    def tie_breaks(
        self, judge: Judge, held: Sequence[Sequence[Transcript]], tables: Sequence[CandidateTable], ask: Ask
    ) -> list[list[Transcript]]:
        """What becomes of the debates `held`, one list for each question, when the judge's Tie-breaker is heard."""
        name = _name(judge)
        keys = [(name, t.key, tuple(own)) for t, own in zip(tables, held, strict=True)]
        new = {key: t for key, t in zip(keys, tables, strict=True) if key not in self._ties}
        told = dict(zip(new, ask(list(new.values())) if new else [], strict=True))
        self._ties |= {k: found for k, found in told.items() if all(each.failure is None for each in found)}
        return [told[key] if key in told else self._ties[key] for key in keys]


def _name(judge: Judge) -> str:
    """Fingerprint of all that decides what a judge says: its class, configuration and state, and those of the judges
    that speak for single aspects in it; but not how many rounds it would hold by itself."""
    known = [_state(judge), {aspect: _state(own) for aspect, own in judge.members().items()}]
    return fingerprint(json.dumps(known, sort_keys=True, default=str))


def _state(judge: Judge) -> list[Any]:
    # A shallow copy: thousands of times a deep one would take longer than what is saved.
    plain = copy.copy(judge)
    plain.debate_config = DebateConfig()
    state = [(name, one.signature.instructions, one.demos) for name, one in judge.named_predictors()]
    return [judge.kind, judge.together, judge.joint, judge.order, plain.config(), state]
