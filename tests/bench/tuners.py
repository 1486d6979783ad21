"""What each tuner reaches and takes: agreement of the tuned judge itself on held-out, and LM calls.

    python -m tests.bench.tuners --data sample --data summeval=PATH --tuners none,guide,gepa,mipro,dspy:GEPA --splits 5

For each split and aspect a debate of one round that reads side by side is tuned on train, with the offline LM. No
search chooses among judges here, so the figures show what the tuners do and not what a compile exports.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import dspy
import numpy as np

from debate_judge import data
from debate_judge.data.agreement.correlations import correlation
from debate_judge.data.schema import Aspect, Corpus
from debate_judge.data.splits import split
from debate_judge.optimize.settings import EFFORTS
from debate_judge.optimize.tuners import TunerContext, find_tuner
from debate_judge.optimize.tuners.rated import examples
from debate_judge.programs.debate.judge import Debate
from debate_judge.programs.judge import Judge, round_to_granularity
from debate_judge.programs.make_lm import make_lm
from debate_judge.runs.runner import JudgeRunner
from tests.bench.harness import Row, parser_of, publish


def measured(name: str, corpus: Corpus, aspect: Aspect, seed: int, effort: str) -> tuple[float, float, float, float]:
    """Summary-level Spearman on held-out with no round and with one, calls of the tuner, and seconds."""
    began = time.monotonic()
    parts = split(corpus, aspects=[aspect.name], seed=seed)
    train, held_out = (examples(part, [aspect], grouped=True, seed=seed) for part in (parts.train, parts.held_out))
    with JudgeRunner(make_lm("offline"), progress=False) as runner:
        tuning = TunerContext(
            statistic="spearman", runner=runner, reflection_lm=runner.lm,
            proposals=EFFORTS[effort][0], trials=EFFORTS[effort][1], seed=seed, label=aspect.name,
        )  # fmt: skip
        judge = find_tuner(name)(tuning).compile(Debate(rounds=1, together=16), trainset=train)
        calls = runner.lm.meter.executed.total()
        reached = [agreement(runner, judge, held_out, rounds) for rounds in (0, 1)]
    return reached[0], reached[1], calls, time.monotonic() - began


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


def main(argv: Sequence[str] | None = None) -> int:
    parser = parser_of(__doc__, splits=5, seed=0)
    parser.add_argument("--tuners", default="none,guide,gepa,mipro")
    parser.add_argument("--effort", default="light", choices=EFFORTS)
    given = parser.parse_args(argv)
    rows: list[Row] = []
    for spec in given.data or ["sample"]:
        corpus = data.load(spec)
        aspects = [corpus.task.aspect(name) for name in corpus.select_aspects(())]
        for name in given.tuners.split(","):
            seeds = range(given.seed, given.seed + given.splits)
            runs = [measured(name, corpus, aspect, seed, given.effort) for seed in seeds for aspect in aspects]
            figures = zip(("n = 0", "n = 1", "calls an aspect", "seconds"), np.mean(runs, axis=0).tolist(), strict=True)
            rows.append({"data": spec.partition("=")[0], "tuner": name, **dict(figures)})
    publish(rows, given.json)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
