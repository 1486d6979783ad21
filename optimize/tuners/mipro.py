"""MIPROv2, instructions only, seeded with the personas.

Differences from `dspy.MIPROv2`, each for a reason: no few-shot examples are bootstrapped (the judge is
zero-shot, as in the paper); instruction candidates are the original, the judge's seeds (the personas) and
the LM's proposals, for the tunable predictors alone; a candidate is evaluated on all groups at once over
one event loop, with the exact mean (DSPy rounds to two decimals of a percent), and an outage or an
interrupt ends the run (DSPy would score the candidate 0 and go on).
"""

from __future__ import annotations

from typing import Any

import dspy
from dspy.propose.grounded_proposer import TIPS, GroundedProposer

from debate_judge.optimize.tuners import Tuning
from debate_judge.optimize.tuners.dspy_optimizers import aborting, narrated_nowhere
from debate_judge.programs.judge import Judge


class _SeededMIPRO(dspy.MIPROv2):
    def __init__(self, tuning: Tuning) -> None:
        super().__init__(
            metric=_unused_metric,
            prompt_model=tuning.reflection,
            task_model=tuning.runner.lm,
            max_bootstrapped_demos=0,
            max_labeled_demos=0,
            auto=None,
            num_candidates=tuning.effort.proposals + 1,
            track_stats=False,
            # DSPy replaces a seed of 0 by its default; seeds start at 1 here.
            seed=tuning.seed + 1,
        )
        self._tuning = tuning

    def _bootstrap_fewshot_examples(self, *args: Any, **kwargs: Any) -> None:
        return None

    def _propose_instructions(
        self, program: Judge, trainset: list[dspy.Example], *args: Any, **kwargs: Any
    ) -> dict[int, list[str]]:
        tuning = self._tuning
        proposer = GroundedProposer(
            prompt_model=self.prompt_model,
            program=program,
            trainset=trainset,
            # Neither the source code nor the rated examples go into the proposer's prompt.
            program_aware=False,
            use_dataset_summary=False,
            use_task_demos=False,
            use_instruct_history=False,
            set_history_randomly=False,
            rng=self.rng,
            init_temperature=self.init_temperature,
        )
        candidates: dict[int, list[str]] = {}
        for index, (name, predictor) in enumerate(program.named_predictors()):
            texts = [predictor.signature.instructions]
            if name in program.tunable():
                texts += program.seeds(tuning.personas).get(name, ())
                texts += [self._propose(proposer, program, predictor, index, n) for n in range(tuning.effort.proposals)]
            candidates[index] = list(dict.fromkeys(t.strip() for t in texts if t.strip()))
        return candidates

    def _propose(self, proposer: GroundedProposer, program: Judge, predictor: Any, index: int, number: int) -> str:
        tip = TIPS[self.rng.choice(sorted(TIPS))]
        proposer.use_tip = bool(tip)
        text: str = proposer.propose_instruction_for_predictor(
            program=program,
            predictor=predictor,
            pred_i=index,
            demo_candidates=None,
            demo_set_i=number,
            trial_logs={},
            tip=tip,
        )
        return text

    def _optimize_prompt_parameters(
        self, program: Judge, instructions: Any, demos: Any, evaluate: Any, *args: Any
    ) -> Any:
        return super()._optimize_prompt_parameters(program, instructions, demos, self._evaluate, *args)

    def _evaluate(self, program: Judge, devset: list[dspy.Example], **_: Any) -> dspy.Prediction:
        tuning = self._tuning
        items = [item for example in devset for item in example.questions]
        with aborting():
            transcripts = tuning.runner.converse(program, items, tuning.rounds, f"{tuning.label}: tuning")
        judged = iter([program.verdict(t, tuning.rounds) for t in transcripts])
        values = [
            tuning.metric(example, dspy.Prediction(judgements=[next(judged) for _ in example.questions]))
            for example in devset
        ]
        return dspy.Prediction(score=100 * sum(values) / len(values), results=[])


def tune(tuning: Tuning) -> Judge:
    """Return a copy of the judge with the instructions that did best on the training examples.

    Raises:
        dspy.LMError: The LM failed for good.
    """
    optimizer = _SeededMIPRO(tuning)
    with narrated_nowhere(), dspy.context(lm=tuning.runner.lm, adapter=dspy.ChatAdapter(), disable_history=True):
        best: Judge = optimizer.compile(
            tuning.judge,
            trainset=tuning.examples,
            valset=tuning.examples,
            num_trials=tuning.effort.trials,
            minibatch=False,
            seed=tuning.seed + 1,
        )
    return best


def _unused_metric(*_: Any) -> float:
    raise AssertionError("candidates are evaluated group by group, never by a per-example metric of DSPy's")
