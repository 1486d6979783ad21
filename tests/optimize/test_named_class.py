"""DSPy optimizers as tuners, by `module:Class`."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import dspy
import pytest
from dspy.teleprompt.teleprompt import Teleprompter

from debate_judge import data
from debate_judge.data.errors import InputError
from debate_judge.data.schema import Corpus
from debate_judge.optimize import compile as command
from debate_judge.optimize.examples import examples
from debate_judge.optimize.tuners import TunerContext, find_tuner
from debate_judge.programs import build
from debate_judge.programs.judge import Judge
from debate_judge.programs.make_lm import make_lm
from debate_judge.runs.runner.runner import JudgeRunner
from tests.config_keys import keys
from tests.optimize.small_corpus import small_corpus

HERE = "tests.optimize.test_named_class"


def tuned(name: str, corpus: Corpus | None = None, *, grouped: bool = True) -> tuple[Judge, Judge, int]:
    """The judge before and after, and the calls that were made."""
    corpus = corpus or data.load("sample")
    small = type(corpus)(corpus.task, corpus.groups[:4], corpus.origin)
    judge = build("debate", {"persona": "plain", "rounds": 1, "tie_breaker": False, "together": 16})
    with JudgeRunner(make_lm("offline"), progress=False) as runner:
        tuning = TunerContext(
            statistic="spearman", runner=runner, reflection=runner.lm,
            proposals=1, trials=3, seed=0, label="coherence",
        )  # fmt: skip
        rated = examples(small, [corpus.task.aspects[0]], grouped=grouped, seed=0)
        return judge, find_tuner(name)(tuning).compile(judge, trainset=rated), runner.lm.meter.executed.total()


def test_an_optimizer_of_dspy_that_no_line_of_ours_names_tunes_a_judge(capsys: pytest.CaptureFixture[str]) -> None:
    judge, found, calls = tuned("dspy:BootstrapFewShot")
    assert [len(predictor.demos) > 0 for predictor in found.predictors()] == [True, True, False]
    assert not any(predictor.demos for predictor in judge.predictors())
    assert calls > 0
    assert capsys.readouterr().out == ""


class Stern(Teleprompter):
    """Eight lines: keeps the sterner persona if the metric says so."""

    def __init__(self, metric: Any, seed: int) -> None:
        self.metric, self.seed = metric, seed

    def compile(self, student: Judge, *, trainset: list[dspy.Example]) -> Judge:
        scores = [self.metric(example, student(**example.inputs())) for example in trainset]
        assert all(-1 <= score <= 1 for score in scores)
        critic = next(own for name, own in student.named_predictors() if name.endswith("critic"))
        critic.signature = critic.signature.with_instructions(f"Be stern. {self.seed}")
        return student


class Refusing(Teleprompter):
    def compile(self, student: Judge, *, trainset: list[dspy.Example]) -> Judge:
        raise ValueError("too few")


@pytest.mark.integration
def test_a_class_of_ones_own_gets_the_metric_and_is_chosen_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge, found, _ = tuned(f"{HERE}:Stern")
    assert found.instructions() == {**judge.instructions(), "critic": "Be stern. 0"}
    monkeypatch.chdir(tmp_path)
    arguments = ["--data", str(small_corpus(tmp_path, groups=10, candidates=3)), "--aspects", "coherence"]
    arguments += ["--folds", "1", "--max-rounds", "1", *keys(resamples=100, preflight=False, report="none")]
    assert command.main([*arguments, "--tuner", f"{HERE}:Stern", *keys(json="out.json")]) == 0
    (study,) = Path("runs/store/studies").glob("*.log")
    assert re.search(r"\btuned\b", study.read_text())
    assert json.loads(Path("out.json").read_text())["lm_calls"]["executed"] > 0


@pytest.mark.integration
def test_demonstrations_are_left_out_unless_texts_may_be_exported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = ["--data", str(small_corpus(tmp_path, groups=10, candidates=3)), "--aspects", "coherence"]
    arguments += ["--folds", "1", "--max-rounds", "0", *keys(resamples=100, preflight=False, report="none")]
    for more, kept in ((keys(export_examples=True), True), ([], False)):
        caplog.clear()
        store = ["--store", "kept" if kept else "left"]
        assert command.main([*arguments, *store, *more, "--tuner", "dspy:LabeledFewShot"]) == 0
        (study,) = Path(store[1]).glob("studies/*.log")
        assert bool(re.search(r"\btuned\b", study.read_text())) == kept
        assert ("export-examples=true" in caplog.text) != kept


def test_an_optimizer_that_refuses_is_told() -> None:
    with pytest.raises(InputError, match="coherence: too few"):
        tuned(f"{HERE}:Refusing")
    # Constructors of DSPy that need more than is offered.
    with pytest.raises(InputError, match="could not tune coherence"):
        tuned("dspy:KNNFewShot")


def test_sources_with_one_candidate_each_are_tuned_on_in_batches() -> None:
    corpus = data.load("sample")
    single = type(corpus)(
        corpus.task,
        tuple(type(g)(g.id, g.source, g.candidates[:1], g.context, g.references) for g in corpus.groups),
        corpus.origin,
    )
    judge, found, _ = tuned(f"{HERE}:Stern", single, grouped=False)
    assert found.instructions() == {**judge.instructions(), "critic": "Be stern. 0"}
