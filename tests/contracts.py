"""What every judge and tuner must satisfy; for loaders see `debate_judge.data.testing`."""

from __future__ import annotations

import json

from debate_judge.optimize.tuners import Tuning
from debate_judge.programs import KINDS, Preset, build
from debate_judge.programs.judge import Item, Judge, Judgement, Verdict
from debate_judge.programs.make_lm import make_lm
from debate_judge.runs.runner.runner import JudgeRunner


def judged(judge: Judge, items: list[Item]) -> list[Judgement]:
    """Judge with the offline LM, from nothing."""
    with JudgeRunner(make_lm("offline"), progress=False) as runner:
        return runner.judge(judge, items)


def check_judge(preset: Preset, items: list[Item]) -> None:
    """Assert what scoring, tuning, search and export rely on:

    1. Every item gets a judgement whose score lies on the aspect's scale (a metric's may lie elsewhere), whose
       calls are those of its transcript, and whose transcript can be read as a text.
    2. The same judge gives the same judgements again, and so does one rebuilt from its configuration, which is
       plain JSON, and its DSPy state.
    3. The configuration of a rebuilt judge is the same, and its instructions are.
    4. A transcript can be cut at any number of rounds, and never at the price of a further call.
    5. What a tuner may rewrite are predictors that exist, and a variant is a judge of the same kind.
    """
    judge = build(preset.kind, preset.config)
    assert judge.kind == preset.kind
    first = judged(judge, items)
    for item, judgement in zip(items, first, strict=True):
        assert isinstance(judgement, Verdict), judgement
        assert judgement.calls == judgement.transcript.calls
        assert str(judgement.transcript) is not None
        if judgement.calls:
            assert item.aspect.scale.contains(judgement.score)
        for rounds in range(judge.rules.rounds + 1):
            shorter = judge.verdict(judgement.transcript.until(rounds), rounds)
            assert shorter.calls <= judgement.calls
    config = json.loads(json.dumps(judge.config()))
    again = build(preset.kind, config)
    again.load_state(json.loads(json.dumps(judge.dump_state())))
    assert again.config() == judge.config()
    assert again.instructions() == judge.instructions()
    assert [j.score for j in judged(again, items) if isinstance(j, Verdict)] == [
        j.score for j in first if isinstance(j, Verdict)
    ]
    assert set(judge.tunable()) <= set(judge.instructions())
    assert set(judge.seeds({"mine": "Be kind."})) <= set(judge.instructions())
    assert {type(v).kind for v in judge.variants({"mine": "Be kind."}).values()} == {preset.kind}
    assert preset.kind in KINDS


def check_tuned(tuning: Tuning, tuned: Judge, before: dict[str, str]) -> None:
    """Assert that a tuner returned a judge of the same kind and rules, and left the one it was given alone."""
    assert tuning.judge.instructions() == before
    assert type(tuned) is type(tuning.judge)
    assert tuned.rules == tuning.judge.rules
    assert set(tuned.instructions()) == set(before)
    untouched = set(before) - set(tuning.judge.tunable())
    assert all(tuned.instructions()[name] == before[name] for name in untouched)
    assert all(text.strip() for text in tuned.instructions().values())
