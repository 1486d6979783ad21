"""How much of what is sent stands in a prefix of an earlier request, where providers' caches find it.

    python -m tests.bench.prefix --data summeval=PATH --data topical_chat=PATH --json prefix.json

The project's own debates run over the texts of --data, against an LM that is played here: replies of 40 to 60 words
of the source, and 0 to 3 rounds by a hash of the item. Time is simulated: a reply takes one unit, and what a request
brought can be found from then on that it was answered. The same requests are also laid out with each role's own text
first, with the same texts at the same times. Figures are shares of the input tokens:

    16      whole blocks of 16 tokens, as vLLM keeps them
    128     whole steps of 128 tokens from 1,024 on, as hosted providers do

They are upper bounds: one replica that forgets nothing. Long constant texts raise a share and the bill alike, so the
tokens of a request that are new stand beside it (rule of 16).
"""

from __future__ import annotations

import asyncio
import os
import random
import re
import zlib
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest.mock import patch

from debate_judge import data
from debate_judge.data.schema import Corpus
from debate_judge.programs.debate.judge import Debate
from debate_judge.programs.judge import DebateConfig, Unscored, corpus_items
from debate_judge.programs.lm import engine
from debate_judge.programs.lm.engine import JudgeLM
from debate_judge.programs.lm.replies import Messages, Reply
from debate_judge.programs.role import REQUEST
from debate_judge.runs.runner import JudgeRunner
from tests.bench.harness import Row, parser_of, publish

ROUNDS = 3
WORDS = (40, 60)
"""Length of what the LM writes under each header."""

Parts = dict[str, str]
"""The pieces of a request in the order in which they are sent: `system`, the headers of the message, `request`."""
Encode = Callable[[str], Sequence[int]]
Layout = Callable[[Parts], Iterable[str]]


@dataclass(frozen=True, slots=True)
class Request:
    """One call as the LM saw it, with the times at which it was sent and answered."""

    sent: float
    answered: float
    parts: Parts


def parts(messages: Messages) -> Parts:
    """Take a request of the project's apart, at places where a tokenizer takes it apart too."""
    body, _, request = str(messages[-1]["content"]).rpartition(REQUEST)
    pieces = {"system": f"<|system|>\n{messages[0]['content']}\n<|user|>\n"}
    for section in re.split(r"(?<=\n\n)(?=\[\[ ## )", body):
        pieces[section[len("[[ ## ") :].partition(" ")[0]] = section
    return {**pieces, "request": REQUEST + request}


class SimulatedTime(engine._Loop):
    """An event loop whose clock jumps to the next timer when nothing else is left to do."""

    GRACE = 0.001
    """Real seconds in which other threads may still bring work."""

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0
        selector: Any = self._selector
        wait = selector.select

        def select(timeout: float | None) -> Any:
            events = wait(timeout if timeout is None else min(timeout, self.GRACE))
            if not events and timeout:
                self._now += timeout
            return events

        selector.select = select

    def time(self) -> float:
        return self._now


class SimulatedLM:
    """An engine that answers by the material alone, each call after one unit of time, and keeps the requests."""

    def __init__(self) -> None:
        self.requests: list[Request] = []

    async def chat(self, model: str, messages: Messages, settings: Any) -> Reply:
        clock, pieces = asyncio.get_running_loop().time, parts(messages)
        sent = clock()
        await asyncio.sleep(1.0)
        self.requests.append(Request(sent, clock(), pieces))
        return Reply(self._reply(pieces))

    async def aclose(self) -> None: ...

    def _reply(self, pieces: Parts) -> str:
        item = "".join(pieces.get(name, "") for name in ("source", "context", "aspect", "candidate"))
        debate, source = pieces.get("debate", ""), pieces["source"].split()[4:]
        rng = random.Random(item + debate + pieces["request"])

        def text() -> str:
            size = rng.randint(*WORDS)
            start = rng.randrange(max(1, len(source) - size))
            return " ".join((source * size)[start : start + size])

        heard = debate.count("\n\nScorer, round") + debate.startswith("Scorer, round")
        content = heard > zlib.crc32(item.encode()) % (ROUNDS + 1)
        score = re.findall(r"\((-?[\d.]+) to", pieces["aspect"])[0]
        known = {"score": score, "final_score": score, **({"feedback": "NO ISSUE"} if content else {})}
        fields = re.findall(r"^\[\[ ## (\w+) ## \]\]$", pieces["request"], re.MULTILINE)
        return "\n\n".join(f"[[ ## {field} ## ]]\n{known.get(field) or text()}" for field in fields)


def run(corpus: Corpus, concurrency: int, prefix_warmup: bool = True) -> list[Request]:
    """Let the project judge the corpus in its first aspect, and see what it sends and when."""
    simulated = SimulatedLM()
    lm = JudgeLM("played/lm", transport=simulated, concurrency=concurrency)
    if not prefix_warmup:
        lm._warmup = None
    with (
        patch.object(engine, "_started", []),
        patch.object(engine, "_Loop", SimulatedTime),
        JudgeRunner(lm, progress=False) as runner,
    ):
        judge = Debate(debate_config=DebateConfig(ROUNDS, True))
        judgements = runner.judge(judge, corpus_items(corpus, corpus.task.aspects[0]))
    if any(isinstance(judgement, Unscored) for judgement in judgements):
        raise RuntimeError("a reply could not be read")
    return simulated.requests


@dataclass(frozen=True, slots=True)
class Shares:
    """Of the input tokens of all requests, those in a prefix of an earlier one."""

    blocks_16: float
    blocks_128: float
    tokens: float
    """Per request."""
    new: float
    """Per request, outside of blocks of 16 that an earlier request brought."""


def shares(requests: Iterable[Request], layout: Layout, encode: Encode) -> Shares:
    """Measure requests in a layout; one finds what all those brought that were answered by the time it was sent."""
    # A prefix is known by the running hash of its tokens, whatever its length.
    cached: set[int] = set()
    unanswered: list[tuple[float, list[int]]] = []
    total = count = in_16 = in_128 = 0
    for request in sorted(requests, key=lambda r: r.sent):
        for entry in [e for e in unanswered if e[0] <= request.sent]:
            cached.update(entry[1])
            unanswered.remove(entry)
        chain = _chain(layout(request.parts), encode)
        # Where a prefix is cached every shorter one is.
        known = bisect_left(chain, True, key=lambda link: link not in cached)
        total, count = total + len(chain), count + 1
        in_16 += known // 16 * 16
        in_128 += known // 128 * 128 if known >= 1024 else 0
        unanswered.append((request.answered, chain))
    return Shares(in_16 / total, in_128 / total, total / count, (total - in_16) / count)


def _chain(pieces: Iterable[str], encode: Encode) -> list[int]:
    link, chain = 0, []
    for piece in pieces:
        for token in encode(piece):
            link = hash((link, token))
            chain.append(link)
    return chain


@cache
def tokenizer() -> Encode:
    """OpenAI's o200k_base from the copy that LiteLLM brings along."""
    import tiktoken

    home = find_spec("litellm")
    folder = Path((home and home.origin) or "").parent / "litellm_core_utils" / "tokenizers"
    os.environ["TIKTOKEN_CACHE_DIR"] = str(folder)
    return lru_cache(maxsize=1 << 16)(tiktoken.get_encoding("o200k_base").encode_ordinary)


def as_sent(pieces: Parts) -> Iterable[str]:
    return pieces.values()


def role_first(pieces: Parts) -> Iterable[str]:
    """What a role is told by itself, and then the material, as DSPy's ChatAdapter has it."""
    return [pieces[name] for name in sorted(pieces, key=lambda name: (name != "system", name != "role"))]


LAYOUTS: dict[str, Layout] = {"ours": as_sent, "each role's text first": role_first}


def measured(spec: str, sources: int, concurrency: Sequence[int]) -> list[Row]:
    """One call at a time in each layout, then many at a time, with and without a call that goes ahead."""
    whole = data.load(spec)
    corpus = replace(whole, groups=whole.groups[:sources])
    runs = [(name, 1, True, layout) for name, layout in LAYOUTS.items()]
    runs += [("ours", places, warmup, as_sent) for places in concurrency for warmup in (False, True)]
    rows: list[Row] = []
    for name, places, warmup, layout in runs:
        requests = run(corpus, places, warmup)
        share = shares(requests, layout, tokenizer())
        figures = {"16": share.blocks_16, "128": share.blocks_128, "tokens": share.tokens, "new": share.new}
        time = max(request.answered for request in requests)
        setting = {"data": corpus.origin.name, "layout": name, "at a time": places, "warm-up": warmup}
        rows.append({**setting, "requests": len(requests), **figures, "units of time": time})
    return rows


def main(argv: Sequence[str] | None = None) -> int:
    parser = parser_of(__doc__, sources=20)
    parser.add_argument("--concurrency", default="16,32,128")
    given = parser.parse_args(argv)
    places = [int(c) for c in given.concurrency.split(",")]
    rows = [row for spec in given.data or ["sample"] for row in measured(spec, given.sources, places)]
    publish(rows, given.json)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
