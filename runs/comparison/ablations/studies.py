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
from debate_judge.programs.compiled import SharedGrouping, grouped_by_aspect
from debate_judge.programs.debate.personas import PLAIN, STRICT
from debate_judge.programs.judge import Item, Judge, Judgement, Unscored, corpus_items
from debate_judge.programs.lm.client import JudgeLM
from debate_judge.programs.transcript import Transcript
from debate_judge.runs.comparison.results import EvalSetup, Scores
from debate_judge.runs.runner.runner import JudgeRunner, calls_per_item, group_scores
from debate_judge.runs.runner.shared_pass import PassJob, run_together

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
    runner: JudgeRunner, setup: EvalSetup, judges: Mapping[str, tuple[Judge, int]]
) -> dict[str, RecordedDebates]:
    """Hold the debates of several judges in one pass.

    Args:
        runner: Where.
        ground: About what.
        judges: Name -> judge and rounds.

    Raises:
        dspy.LMError: The LM failed for good; what was answered is in its store.
        InputError: A judge cannot be had with this LM or on these scales.
    """

    items = _items(setup)
    jobs = [job for name in judges for job in _jobs(name, *judges[name], items)]
    found = _results(runner, jobs, "debates")
    return {name: RecordedDebates(judge, found[name]) for name, (judge, _) in judges.items()}


def by_rounds(setup: EvalSetup, held: RecordedDebates, rounds: int) -> Study:
    """Agreement at every n from 0 to `rounds`, read off debates that were held at least so long."""
    readings = {str(n): held.at(setup, n) for n in range(rounds + 1)}
    return _study(setup, "rounds", "Agreement by the number of rounds n, DEBATE without tie-breaker", readings, "0")


def by_persona(setup: EvalSetup, held: Mapping[str, RecordedDebates], rounds: int) -> Study:
    """Agreement by the Critic's persona at one n."""
    readings = {name: one.at(setup, rounds) for name, one in held.items()}
    title = f"Agreement by the Critic's persona, n = {rounds}, without tie-breaker"
    return _study(setup, "personas", title, readings, PLAIN.name)


def by_style(runner: JudgeRunner, setup: EvalSetup, held: Mapping[str, RecordedDebates], rounds: int) -> Study:
    """Agreement by debating style: neutral Critic or devil's advocate, each with and without Tie-breaker."""
    items = _items(setup)
    styles = {PLAIN.name: "plain", STRICT.name: "devil's advocate"}

    def job(persona: str, asked: SharedGrouping) -> _GroupedJob:
        told = [t.until(rounds) for aspect in asked.aspects for t in held[persona].transcripts[aspect]]
        tables = asked.grouping.tables
        open_at_n = {table.key: own for table, own in zip(tables, asked.grouping.by_table(told), strict=True)}
        return _GroupedJob(PassJob(persona, lambda t: asked.judge.break_ties(t.items, open_at_n[t.key]), tables), asked)

    jobs = [job(p, asked) for p in styles for asked in grouped_by_aspect(dict.fromkeys(items, held[p].judge), items)]
    found = _results(runner, jobs, "tie-breaks")
    readings: dict[str, StudyScores] = {}
    for persona, style in styles.items():
        judge = held[persona].judge
        readings[style] = held[persona].at(setup, rounds)
        settled = {a: [judge.verdict(t, rounds) for t in told] for a, told in found[persona].items()}
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
) -> list[RecordedDebates]:
    """Hold the same debates several times over, each time with other samples of the LM."""

    lms = {f"run {n}": runner.lm.another_sample(n, temperature) for n in range(1, runs + 1)}
    jobs = [job for name, lm in lms.items() for job in _jobs(name, judge, rounds, _items(setup), lm)]
    found = _results(runner, jobs, "repeated debates")
    return [RecordedDebates(judge, found[name]) for name in lms]


def in_orders(runner: JudgeRunner, setup: EvalSetup, judge: Judge, rounds: int) -> list[RecordedDebates]:
    """Hold the debates of a judge of tables once for each of several orders of the candidates, its own the first."""
    judges: dict[str, tuple[Judge, int]] = {}
    for number in range(ORDERS):
        one = judge.deepcopy()
        one.order = judge.order + number
        judges[f"order {one.order}"] = one, rounds
    return list(record_debates(runner, setup, judges).values())


@dataclass(frozen=True)
class _GroupedJob:
    """A job of a pass, and where its items sit."""

    job: PassJob[list[Transcript]]
    asked: SharedGrouping


def _items(setup: EvalSetup) -> dict[str, list[Item]]:
    return {a.name: corpus_items(setup.corpus, a) for a in setup.aspects}


def _jobs(
    name: str, judge: Judge, rounds: int, items: Mapping[str, Sequence[Item]], lm: JudgeLM | None = None
) -> list[_GroupedJob]:
    """The debates of one judge about all aspects."""

    def job(asked: SharedGrouping) -> _GroupedJob:
        work = PassJob(name, lambda t: asked.judge.converse(t.items, rounds), asked.grouping.tables, lm=lm)
        return _GroupedJob(work, asked)

    return [job(asked) for asked in grouped_by_aspect(dict.fromkeys(items, judge), items)]


def _results(runner: JudgeRunner, jobs: Sequence[_GroupedJob], what: str) -> dict[str, dict[str, list[Transcript]]]:
    """Owner of the jobs -> aspect -> what came of its items."""
    done = run_together(runner, [one.job for one in jobs], what)
    for error in done.failed.values():
        raise error
    found: dict[str, dict[str, list[Transcript]]] = {}
    for one, results in zip(jobs, done.results, strict=True):
        found.setdefault(one.job.owner, {}).update(one.asked.by_aspect(results))
    return found


def _study(setup: EvalSetup, name: str, title: str, readings: Mapping[str, StudyScores], baseline: str) -> Study:
    base: Mapping[str, Sequence[GroupScores]] = readings[baseline].scores
    differences = {n: setup.difference(r.scores, base) for n, r in readings.items() if n != baseline}
    corrected = correct_named({name: d.p_value for name, d in differences.items()})
    variants = {
        n: Variant(setup.agreement(r.scores), r.calls, r.unscored, differences.get(n), corrected.get(n))
        for n, r in readings.items()
    }
    return Study(name, title, baseline, variants)
