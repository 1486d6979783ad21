"""Cost estimate of a run by a dry run: calls, tokens and money, before anything is spent.

The run's own code is executed on a sample with an LM that costs nothing, in two cases: as expected, debates go as with
the offline LM; at most, no debate ends before its last round (`programs.dry_run`). Replies in the run's store are not
counted, because they are not paid for again. Nothing is written and no LM is called.
"""

from __future__ import annotations

import os
import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from math import ceil
from pathlib import Path
from typing import Any

from debate_judge.data.errors import InputError
from debate_judge.data.schema import Aspect, RatedGroup
from debate_judge.programs.dry_run import REPLY_TOKENS, DryRunTransport, EstimateCase, ItemReply
from debate_judge.programs.grouping import Question, group_into_questions
from debate_judge.programs.judge import CompiledJudge, Item
from debate_judge.programs.lm.limits import TOKENS_PER_BYTE
from debate_judge.programs.lm.replies import FILE, Reply, ReplyStore, SqlStore, replies_folder
from debate_judge.programs.lm.settings import BudgetCaps, LMOptions, Price, price_of
from debate_judge.programs.make_lm import OFFLINE, make_lm, server_address
from debate_judge.runs.progress import STAGE, stage
from debate_judge.runs.reports.tables import DataTable, OutputBlock
from debate_judge.runs.runner import DebateCache, JudgeRunner, group_by_source, judge_in_order
from debate_judge.runs.shared_flags import LimitFlags, lm_options

_CONCURRENCY = 64
NO_LIMITS = LMOptions(rpm=1e9, tpm=1e12)
"""Options of an LM without a provider."""

_SAMPLED_ITEMS = 200
"""Size of the sample of a scoring run, over all aspects."""

_MIN_GROUPS = 2
"""Fewest groups of a sample, so that correlations are defined."""


@dataclass(frozen=True)
class EstimateTarget:
    """The LM of the run, and the folder of its stored replies."""

    spec: str
    """PROVIDER/MODEL, or offline."""
    api_base: str | None = None
    replies: Path | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Further arguments of `make_lm`, as the run would have them."""
    options: LMOptions = field(default_factory=LMOptions)
    reply_tokens: tuple[int, int] = REPLY_TOKENS
    other_lms: Mapping[str, str] = field(default_factory=dict)
    """Role -> its LM, where that is another one."""

    @classmethod
    def of(
        cls,
        flags: LimitFlags,
        store: str,
        reply_lengths: str,
        spec: str,
        api_base: str | None,
        settings: Mapping[str, Any],
        other_lms: Mapping[str, str] | None = None,
    ) -> EstimateTarget:
        """The LM of a command; `reply_lengths` is the value of `--estimate`.

        Raises:
            InputError: A value of the flags cannot be used.
        """
        folder, lengths = replies_folder(store, spec), reply_tokens(reply_lengths)
        return cls(spec, api_base, folder, settings, lm_options(flags), lengths, other_lms or {})

    def price(self, role: str) -> Price | None:
        """The price of a role's calls, if it is known."""
        spec = self.other_lms.get(role, self.spec)
        if spec == OFFLINE:
            return Price(0.0, 0.0, 0.0)
        server = server_address(spec, self.api_base if spec == self.spec else None)
        return price_of(spec, self.options.prices, use_litellm=server is None)


def reply_tokens(text: str) -> tuple[int, int]:
    """Parse the value of `--estimate`: two lengths of a reply in tokens; the default ones if it is empty.

    Raises:
        InputError: It is neither.
    """
    if not text:
        return REPLY_TOKENS
    numbers = [int(part) for part in text.split(",") if part.strip().isdecimal()]
    if len(numbers) != 2 or text.count(",") != 1 or not 1 <= numbers[0] <= numbers[1]:
        example = ",".join(map(str, REPLY_TOKENS))
        expected = f"nothing, or two numbers of tokens, expected and at most, such as {example}"
        raise InputError("not lengths of a reply", field="--estimate", expected=expected, found=text)
    return numbers[0], numbers[1]


# --- the dry run ---


@dataclass(frozen=True)
class CallTotals:
    """Calls and tokens, scaled up from a sample, so that they need not be whole numbers."""

    calls: float = 0.0
    input_tokens: float = 0.0
    output_tokens: float = 0.0
    usd: float | None = 0.0
    """None where no price is known."""

    def __add__(self, other: CallTotals) -> CallTotals:
        return self._with(other, lambda a, b: a + b)

    def at_least(self, other: CallTotals) -> CallTotals:
        """The greater number of each kind."""
        return self._with(other, max)

    def _with(self, other: CallTotals, combine: Callable[[float, float], float]) -> CallTotals:
        usd = None if self.usd is None or other.usd is None else combine(self.usd, other.usd)
        calls, input_tokens, output_tokens = (
            combine(getattr(self, name), getattr(other, name)) for name in ("calls", "input_tokens", "output_tokens")
        )
        return CallTotals(calls, input_tokens, output_tokens, usd)


Cases = tuple[CallTotals, CallTotals]
"""Expected, and at most."""

NO_CALLS: Cases = (CallTotals(), CallTotals())

Texts = tuple[int, int]
"""Number of different items or questions, and bytes of their texts."""


@dataclass(frozen=True)
class Stage:
    """A part of the run, and how calls about sampled items are scaled up to all its items."""

    row: str
    """Row of the table; several stages may share one."""
    scale: float = 1.0
    """Items of the run per sampled item."""
    extra_tokens: float = 0.0
    """Input tokens by which a call about a mean item is longer than one about a mean sampled item."""

    @classmethod
    def of(cls, row: str, population: Texts, sampled: Texts) -> Stage:
        """The stage whose items or questions are `population`, of which `sampled` are in the dry run."""
        if not sampled[0]:
            return cls(row)
        extra_bytes = population[1] / population[0] - sampled[1] / sampled[0]
        return cls(row, population[0] / sampled[0], extra_bytes * TOKENS_PER_BYTE)


class _CountingStore(ReplyStore):
    """The store of a dry run: returns stored replies of earlier runs, and counts all other calls.

    Args:
        stages: Name, as of `runs.progress.stage` -> how the calls of that stage are counted.
        stored: Replies of earlier runs; only read.
    """

    def __init__(self, stages: Mapping[str, Stage], stored: ReplyStore | None) -> None:
        super().__init__()
        self.totals: dict[tuple[str, str], CallTotals] = {}
        """(row, role) -> calls and tokens."""
        self._stages, self._stored = stages, stored

    async def get(self, key: str) -> Reply | None:
        counted = await super().get(key)
        return await self._stored.get(key) if counted is None and self._stored is not None else counted

    async def put(self, key: str, role: str, reply: Reply) -> None:
        await super().put(key, role, reply)
        if not reply.input_tokens:
            # The result of a web search.
            return
        stage, calls, input_tokens = self._stages[STAGE.get()], 1.0, float(reply.input_tokens)
        if isinstance(reply, ItemReply):
            # A call that is not about an item is made once, however many items there are.
            calls, input_tokens = stage.scale, max(0.0, input_tokens + stage.extra_tokens)
        counted = CallTotals(calls, calls * input_tokens, calls * reply.output_tokens)
        self.totals[stage.row, role] = self.totals.get((stage.row, role), CallTotals()) + counted


@dataclass(frozen=True)
class Estimate:
    """Calls, tokens and money of a run in the two cases."""

    rows: Mapping[str, Cases]
    """A call that several rows need is counted in the first of them."""
    total: Cases
    target: EstimateTarget


def estimate_by_dry_run(
    target: EstimateTarget,
    stages: Mapping[str, Stage],
    work: Callable[[EstimateCase, JudgeRunner], None],
    *,
    by_role: bool = False,
    cache_debates: bool = False,
) -> Estimate:
    """Make the estimate: execute `work` in each case.

    Args:
        target: The LM of the run.
        stages: Name -> stage, for each name that `work` passes to `runs.progress.stage`.
        work: The code of the run, on a sample.
        by_role: Whether each role has a row, and not each row of the stages.
        cache_debates: Whether the run caches debates (`runs.runner.DebateCache`).

    Raises:
        InputError: The spec names no LM, or the prices cannot be read.
    """
    expected, most = target.reply_tokens
    cases = EstimateCase(expected, distinct_replies=target.spec != OFFLINE), EstimateCase(most, at_most=True)
    by_case: list[dict[str, CallTotals]] = []
    with _stored_replies(target.replies) as stored:
        for case in cases:
            store = _CountingStore(stages, stored)
            lm = make_lm(
                target.spec,
                api_base=target.api_base,
                store=store,
                concurrency=_CONCURRENCY,
                transport=DryRunTransport(case),
                options=NO_LIMITS,
                **target.settings,
            )
            with JudgeRunner(lm, progress=False, cache=DebateCache() if cache_debates else None) as runner:
                work(case, runner)
            rows: dict[str, CallTotals] = {}
            for (stage_row, role), totals in store.totals.items():
                price, name = target.price(role), role if by_role else stage_row
                usd = None if price is None else price.cost(totals.input_tokens, 0.0, totals.output_tokens)
                rows[name] = rows.get(name, CallTotals()) + replace(totals, usd=usd)
            by_case.append(rows)

    def cases_of(expected: CallTotals, most: CallTotals) -> Cases:
        return expected, most.at_least(expected)

    names = dict.fromkeys(name for rows in reversed(by_case) for name in rows)
    table = {name: cases_of(*(rows.get(name, CallTotals()) for rows in by_case)) for name in names}
    return Estimate(table, cases_of(*(sum(rows.values(), CallTotals()) for rows in by_case)), target)


@contextmanager
def _stored_replies(folder: Path | None) -> Iterator[SqlStore | None]:
    """The store of a folder; None where there is none, or none that can be opened."""
    if folder is None or not os.access(folder, os.W_OK) or not (folder / FILE).exists():
        yield None
        return
    with closing(SqlStore(folder)) as store:
        yield store


# --- samples ---


def text_totals(items: Iterable[Item]) -> Texts:
    """Number and bytes of the different items among `items`."""
    sizes = {item.key: _bytes(item.source, item.context, item.text) for item in items}
    return len(sizes), sum(sizes.values())


def _bytes(*texts: str) -> int:
    return sum(len(text.encode("utf-8", "surrogatepass")) for text in texts)


def sampled_groups(groups: Iterable[RatedGroup], size: int, seed: int = 0) -> tuple[RatedGroup, ...]:
    """A seeded sample of whole groups with about `size` candidates, and at least `_MIN_GROUPS` groups."""
    shuffled = list(groups)
    random.Random(seed).shuffle(shuffled)
    count = candidates = 0
    while count < len(shuffled) and (candidates < size or count < _MIN_GROUPS):
        candidates, count = candidates + len(shuffled[count].candidates), count + 1
    return tuple(shuffled[:count])


class _QuestionSample:
    """A random sample of the different questions of a stream, which is not kept: of the others only a hash is."""

    def __init__(self, size: int) -> None:
        self.questions: list[Question] = []
        self._size, self._rng, self._seen, self._bytes = size, random.Random(0), set[int](), 0

    def add(self, question: Question) -> None:
        if (key := hash(question.key)) in self._seen:
            return
        self._seen.add(key)
        self._bytes += _question_bytes(question)
        if len(self.questions) < self._size:
            self.questions.append(question)
        elif (place := self._rng.randrange(len(self._seen))) < self._size:
            self.questions[place] = question

    def stage(self) -> Stage:
        """The stage that scales the sample up to all questions."""
        sampled = len(self.questions), sum(map(_question_bytes, self.questions))
        return Stage.of("scoring", (len(self._seen), self._bytes), sampled)


def _question_bytes(question: Question) -> int:
    first = question.items[0]
    return _bytes(first.source, first.context, *(item.text for item in question.items))


def estimate_scoring(
    target: EstimateTarget, judge: CompiledJudge, aspects: Sequence[Aspect], items: Iterable[Item]
) -> tuple[Estimate, int]:
    """Estimate a scoring run by role; returns the estimate and the number of items, which are streamed."""
    judges, samples, count = {aspect.name: judge.aspects[aspect.name].judge for aspect in aspects}, {}, 0
    for name, of_aspect in judges.items():
        samples[name] = _QuestionSample(max(1, _SAMPLED_ITEMS // len(aspects) // max(1, of_aspect.together)))
    for batch in group_by_source(items):
        count += len(batch)
        for name, sample in samples.items():
            members = [item for item in batch if item.aspect.name == name]
            for question in group_into_questions(judges[name], members, compare_pairs=False).questions:
                sample.add(question)
    copies = {name: replace(each, judge=each.judge.dry_run_copy()) for name, each in judge.aspects.items()}
    judge_copy = CompiledJudge(judge.task, copies)

    def work(case: EstimateCase, runner: JudgeRunner) -> None:
        for name, sample in samples.items():
            with stage(name):
                sampled = [item for question in sample.questions for item in question.items]
                deque(judge_in_order(runner, judge_copy, sampled), maxlen=0)

    stages = {name: sample.stage() for name, sample in samples.items()}
    return estimate_by_dry_run(target, stages, work, by_role=True), count


# --- for the terminal ---


def estimate_blocks(
    estimate: Estimate, row_heading: str, notes: Sequence[str] = (), *, with_assumptions: bool = True
) -> list[OutputBlock]:
    """The estimate for the terminal; `row_heading` heads the first column, `notes` come before the assumptions."""
    target, (expected, most) = estimate.target, estimate.total
    calls, priced = f"{round(expected.calls):,}", expected.usd is not None
    cost = f"{calls} LM calls (at most {_whole(most.calls)})"
    if expected.usd:
        cost = f"${_dollars(expected)} (at most ${_dollars(most)}), {calls} calls"
    header = [row_heading, "LM calls", "input tokens", "output tokens", *(["US dollars"] if priced else [])]
    body = []
    for label, (low, high) in [*estimate.rows.items(), ("total", estimate.total)]:
        counts = [
            (low.calls, high.calls),
            (low.input_tokens, high.input_tokens),
            (low.output_tokens, high.output_tokens),
        ]
        cells = [f"{round(usual):,} / {_whole(bound)}" for usual, bound in counts]
        body.append([label, *cells, *([f"{_dollars(low)} / {_dollars(high)}"] if priced else [])])
    return [
        f"About {cost}; nothing was called or spent.",
        "",
        f"{target.spec}: expected / at most",
        DataTable(header, body, total=True),
        "",
        *([] if priced else [f"US dollars: no price known for {target.spec}; give --prices FILE"]),
        *_budget(target.options.budget, expected, most),
        *notes,
        *(_assumptions(target) if with_assumptions else []),
    ]


def _whole(value: float) -> str:
    """A bound, rounded up; scales are quotients, whose rounding errors must not make a whole number the next one."""
    return f"{ceil(round(value, 6)):,}"


def _dollars(totals: CallTotals) -> str:
    usd = totals.usd or 0.0
    return f"{usd:,.4f}" if 0 < usd < 0.1 else f"{usd:,.2f}"


def _budget(budget: BudgetCaps, expected: CallTotals, most: CallTotals) -> list[str]:
    """What each cap of `--budget` covers; a run that reaches one stops there."""
    caps = {"calls": budget.calls, "tokens": budget.tokens, "usd": budget.usd}
    needed = [
        {"calls": case.calls, "tokens": case.input_tokens + case.output_tokens, "usd": case.usd}
        for case in (expected, most)
    ]
    lines = []
    for name, cap in caps.items():
        usual, bound = (case[name] for case in needed)
        if cap is not None and usual and bound:
            shares = f"{100 * cap / usual:.0f} % of the expected cost and {100 * cap / bound:.0f} % of the maximum"
            lines.append(f"{name}={cap:,g} covers {shares}")
    return [f"--budget: {'; '.join(lines)}"] if lines else []


def _assumptions(target: EstimateTarget) -> list[str]:
    expected, most = target.reply_tokens
    lines = [
        "Assumptions. Expected: debates end as early as those of the offline stand-in on these texts. At most: every "
        "debate takes all its rounds.",
        f"Replies have {expected} / {most} tokens of free text (--estimate E,M changes that), a quarter of it per "
        f"score where several share a reply, and no hidden reasoning, which is billed as output; {TOKENS_PER_BYTE} "
        "tokens per byte of text; no prefix cache; no retries. The preflight adds one or two calls per role.",
    ]
    if target.replies is not None and target.replies.is_dir():
        lines.append("Replies in the cache are free and not counted.")
    return lines
