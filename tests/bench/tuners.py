"""What each tuner reaches and takes: agreement of the tuned judge itself on held-out, and LM calls.

    python tests/bench/tuners.py --data sample --data summeval=PATH --tuners none,guide,gepa,mipro,dspy:GEPA --splits 5

For each split and aspect a debate of one round that reads side by side is tuned on train, with the offline LM. No
search chooses among judges here, so the figures show what the tuners do and not what a compile exports.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

import dspy

from debate_judge import data
from debate_judge.data.agreement.tables import correlation
from debate_judge.data.schema import Aspect, Corpus
from debate_judge.data.splits import split
from debate_judge.optimize.examples import examples
from debate_judge.optimize.settings import EFFORTS
from debate_judge.optimize.tuners import Tuning, find_tuner
from debate_judge.programs.debate.judge import Debate
from debate_judge.programs.judge import Judge, round_to_granularity
from debate_judge.programs.make_lm import make_lm
from debate_judge.runs.runner.runner import JudgeRunner


def measured(name: str, corpus: Corpus, aspect: Aspect, seed: int, effort: str) -> tuple[float, float, float]:
    """Summary-level Spearman on held-out with no round and with one, and the calls of the tuner."""
    parts = split(corpus, aspects=[aspect.name], seed=seed)
    train, held_out = (examples(part, [aspect], grouped=True, seed=seed) for part in (parts.train, parts.held_out))
    with JudgeRunner(make_lm("offline"), progress=False) as runner:
        tuning = Tuning(
            statistic="spearman", runner=runner,
            reflection=runner.lm, proposals=EFFORTS[effort][0], trials=EFFORTS[effort][1], seed=seed, label=aspect.name,
        )  # fmt: skip
        judge = find_tuner(name)(tuning).compile(Debate(rounds=1, together=16), trainset=train)
        calls = runner.lm.meter.executed.total()
        return agreement(runner, judge, held_out, 0), agreement(runner, judge, held_out, 1), calls


def agreement(runner: JudgeRunner, judge: Judge, rated: Sequence[dspy.Example], rounds: int) -> float:
    values = []
    for example in rated:
        judgements = runner.judge(judge.with_debate(rounds=rounds), example.questions)
        pairs = [
            (rating, score)
            for rating, item, judgement in zip(example.ratings, example.questions, judgements, strict=True)
            if rating is not None and (score := round_to_granularity(judgement, item.aspect, "given")) is not None
        ]
        values.append(correlation([rating for rating, _ in pairs], [score for _, score in pairs], "spearman") or 0.0)
    return sum(values) / len(values)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", action="append", required=True)
    parser.add_argument("--tuners", default="none,guide,gepa,mipro")
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--effort", default="light", choices=EFFORTS)
    chosen = parser.parse_args(arguments)
    print(f"{'data':28} {'tuner':10} {'n = 0':>6} {'n = 1':>6} {'calls an aspect':>16} {'seconds':>8}")
    for spec in chosen.data:
        corpus = data.load(spec)
        aspects = [corpus.task.aspect(name) for name in corpus.select_aspects(())]
        for name in chosen.tuners.split(","):
            began = time.monotonic()
            found = [
                measured(name, corpus, aspect, seed, chosen.effort)
                for seed in range(chosen.splits)
                for aspect in aspects
            ]
            none, one, calls = (sum(column) / len(found) for column in zip(*found, strict=True))
            seconds = (time.monotonic() - began) / len(found)
            print(f"{spec[-28:]:28} {name:10} {none:6.3f} {one:6.3f} {calls:16.0f} {seconds:8.1f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
