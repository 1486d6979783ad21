"""The ablations of DEBATE (section 3, Figure 2; appendices B and E.1): rounds, persona, style, scores, stability; and
the order in which candidates are shown together.

Debates are held once, each to the greatest number of rounds that anything here needs. What fewer rounds would
have given is read off them (`Transcript.until`) at no LM call; only tie-breaks and repeats ask again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from debate_judge.data.agreement.sign_flips import correct_named
from debate_judge.data.agreement.tables import AgreementTable, Difference, GroupScores
from debate_judge.programs.debate.personas import PLAIN, STRICT
from debate_judge.programs.judge import Item, Judge, Judgement, Unscored, corpus_items
from debate_judge.programs.lm.client import JudgeLM
from debate_judge.programs.transcript import Transcript
from debate_judge.runs.comparison.results import EvalSetup, Scores
from debate_judge.runs.runner.runner import JudgeRunner, calls_per_item, group_scores
from debate_judge.runs.runner.shared_pass import PassJob, run_together
from debate_judge.runs.runner.tables import Seating, seated

USUAL = ("rounds", "personas", "styles", "distribution", "stability")

ABLATIONS = (*USUAL, "order")
"""The last for judges of several candidates at once alone."""

ORDERS = 5
"""Seeded orders of the candidates that are judged together."""

Transcripts = Mapping[str, Sequence[Transcript]]
"""Aspect -> one for each of its items, in corpus order."""


@dataclass(frozen=True)
class StudyScores:
    """Judgements of all items under one choice."""

    scores: Scores
    calls: float
    """LM calls per item, shared with other judges or not."""
    unscored: int


@dataclass(frozen=True)
class Variant:
    """One row of a study."""

    table: AgreementTable
    calls: float
    unscored: int
    difference: Difference | None
    """To the study's baseline, averaged over aspects; None for the baseline itself."""
    corrected: float | None
    """P-value of that difference, corrected over the study (Holm); None for the baseline and below six groups."""


@dataclass(frozen=True)
class Study:
    """What one choice does to agreement."""

    name: str
    title: str
    baseline: str
    variants: Mapping[str, Variant]


@dataclass(frozen=True)
class RecordedDebates:
    """Debates as they were held, to be read at any smaller number of rounds."""

    judge: Judge
    transcripts: Transcripts

    def at(self, setup: EvalSetup, rounds: int) -> StudyScores:
        """The judgements, had the debates been stopped after `rounds` rounds."""
        return study_scores(
            setup,
            {
                aspect: [self.judge.verdict(t.until(rounds), rounds) for t in transcripts]
                for aspect, transcripts in self.transcripts.items()
            },
        )


def study_scores(setup: EvalSetup, judged: Mapping[str, Sequence[Judgement]]) -> StudyScores:
    """Judgements laid beside the ratings."""
    scores = {a.name: group_scores(setup.corpus, a, judged[a.name], "given") for a in setup.aspects}
    everything = [j for judgements in judged.values() for j in judgements]
    return StudyScores(scores, calls_per_item(everything), sum(isinstance(j, Unscored) for j in everything))


def record_debates(
    runner: JudgeRunner, setup: EvalSetup, judges: Mapping[str, tuple[Judge, int]], *, progress: bool = True
) -> dict[str, RecordedDebates]:
    """Hold the debates of several judges in one pass.

    Args:
        runner: Where.
        ground: About what.
        judges: Name -> judge and rounds.
        progress: Whether to show it.

    Raises:
        dspy.LMError: The LM failed for good; what was answered is in its store.
        InputError: A judge cannot be had with this LM or on these scales.
    """

    items = {a.name: corpus_items(setup.corpus, a) for a in setup.aspects}
    jobs = [_SeatedJob.of(name, *judges[name], items[a]) for name in judges for a in items]
    found = iter(_results(runner, jobs, "debates", progress))
    return {name: RecordedDebates(judge, {a: next(found) for a in items}) for name, (judge, _) in judges.items()}


def by_rounds(setup: EvalSetup, held: RecordedDebates, rounds: int) -> Study:
    """Agreement at every n from 0 to `rounds`, read off debates that were held at least so long."""
    readings = {str(n): held.at(setup, n) for n in range(rounds + 1)}
    return _study(setup, "rounds", "Agreement by the number of rounds n, DEBATE without tie-breaker", readings, "0")


def by_persona(setup: EvalSetup, held: Mapping[str, RecordedDebates], rounds: int) -> Study:
    """Agreement by the Critic's persona at one n."""
    readings = {name: one.at(setup, rounds) for name, one in held.items()}
    title = f"Agreement by the Critic's persona, n = {rounds}, without tie-breaker"
    return _study(setup, "personas", title, readings, PLAIN.name)


def by_style(
    runner: JudgeRunner, setup: EvalSetup, held: Mapping[str, RecordedDebates], rounds: int, *, progress: bool = True
) -> Study:
    """Agreement by debating style: neutral Critic or devil's advocate, each with and without Tie-breaker."""
    items = {a.name: corpus_items(setup.corpus, a) for a in setup.aspects}
    styles = {PLAIN.name: "plain", STRICT.name: "devil's advocate"}

    def job(persona: str, aspect: str) -> _SeatedJob:
        judge, told = held[persona].judge, held[persona].transcripts[aspect]
        seating = seated(judge, items[aspect])
        at_n = seating.by_table([t.until(rounds) for t in told])
        open_at_n = {table.key: own for table, own in zip(seating.tables, at_n, strict=True)}
        return _SeatedJob(
            PassJob(persona, lambda t: judge.break_ties(t.items, open_at_n[t.key]), seating.tables), seating
        )

    found = iter(_results(runner, [job(p, a) for p in styles for a in items], "tie-breaks", progress))
    readings: dict[str, StudyScores] = {}
    for persona, style in styles.items():
        judge = held[persona].judge
        readings[style] = held[persona].at(setup, rounds)
        settled = {a: [judge.verdict(t, rounds) for t in next(found)] for a in items}
        readings[f"{style} + tie-breaker"] = study_scores(setup, settled)
    title = f"Agreement by debating style, n = {rounds}"
    return _study(setup, "styles", title, readings, "plain")


def repeats(
    runner: JudgeRunner,
    setup: EvalSetup,
    judge: Judge,
    rounds: int,
    runs: int,
    temperature: float,
    *,
    progress: bool = True,
) -> list[RecordedDebates]:
    """Hold the same debates several times over, each time with other samples of the LM."""

    items = {a.name: corpus_items(setup.corpus, a) for a in setup.aspects}
    lms = [runner.lm.another_sample(number, temperature) for number in range(1, runs + 1)]
    jobs = [_SeatedJob.of(f"run {n}", judge, rounds, items[a], lm) for n, lm in enumerate(lms, 1) for a in items]
    found = iter(_results(runner, jobs, "repeated debates", progress))
    return [RecordedDebates(judge, {a: next(found) for a in items}) for _ in lms]


def in_orders(
    runner: JudgeRunner, setup: EvalSetup, judge: Judge, rounds: int, *, progress: bool = True
) -> list[RecordedDebates]:
    """Hold the debates of a judge of tables once for each of several orders of the candidates, its own the first."""
    judges: dict[str, tuple[Judge, int]] = {}
    for number in range(ORDERS):
        one = judge.deepcopy()
        one.order = judge.order + number
        judges[f"order {one.order}"] = one, rounds
    return list(record_debates(runner, setup, judges, progress=progress).values())


@dataclass(frozen=True)
class _SeatedJob:
    """A job of a pass, and where its items sit."""

    job: PassJob[list[Transcript]]
    seating: Seating

    @classmethod
    def of(cls, name: str, judge: Judge, rounds: int, items: Sequence[Item], lm: JudgeLM | None = None) -> _SeatedJob:
        seating = seated(judge, items)
        return cls(PassJob(name, lambda t: judge.converse_table(t.items, rounds), seating.tables, lm=lm), seating)


def _results(runner: JudgeRunner, jobs: Sequence[_SeatedJob], what: str, progress: bool) -> list[list[Transcript]]:
    done = run_together(runner, [one.job for one in jobs], what, progress=progress)
    for error in done.failed.values():
        raise error
    return [one.seating.by_item(results) for one, results in zip(jobs, done.results, strict=True)]


def _study(setup: EvalSetup, name: str, title: str, readings: Mapping[str, StudyScores], baseline: str) -> Study:
    base: Mapping[str, Sequence[GroupScores]] = readings[baseline].scores
    differences = {n: setup.difference(r.scores, base) for n, r in readings.items() if n != baseline}
    corrected = correct_named({name: d.p_value for name, d in differences.items()})
    variants = {
        n: Variant(setup.agreement(r.scores), r.calls, r.unscored, differences.get(n), corrected.get(n))
        for n, r in readings.items()
    }
    return Study(name, title, baseline, variants)
