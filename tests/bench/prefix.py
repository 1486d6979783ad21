"""How much of what is sent stands in a prefix of an earlier request, where providers' caches find it.

    python tests/bench/prefix.py --data summeval=PATH --data topical_chat=PATH --json prefix.json

The project's own scoring runs over the texts of --data, against an LM that is played here: replies of 40 to 60 words
of the source, and 0 to 3 rounds by a hash of the item. Time is simulated: a reply takes one unit, and what a request
brought can be found from then on that it was answered. Then the same requests are laid out in other ways, with the
same texts at the same times. All figures are shares of the input tokens:

    exact   the longest common prefix with any earlier request
    16      whole blocks of 16 tokens, as vLLM keeps them
    128     whole steps of 128 tokens from 1,024 on, as hosted providers do

They are upper bounds: one replica that forgets nothing. Long constant texts raise a share and the bill alike, so the
tokens of a request that are new stand beside it (rule of 16).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
import zlib
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest.mock import patch

from debate_judge import data
from debate_judge.data.schema import Corpus
from debate_judge.programs.compiled import AspectJudge, CompiledJudge
from debate_judge.programs.debate.judge import Debate
from debate_judge.programs.judge import DebateConfig, corpus_items
from debate_judge.programs.lm.client import JudgeLM
from debate_judge.programs.lm.reply import Messages, Reply
from debate_judge.programs.roles.parsing import REQUEST
from debate_judge.runs.runner.runner import JudgeRunner, scored
from debate_judge.runs.runner.streaming import group_items, judge_in_order

ROUNDS = 3

Encode = Callable[[str], Sequence[int]]
Parts = dict[str, str]
"""The pieces of a request in the order in which they are sent: `system`, the headers of the message, `request`."""
Layout = Callable[[Parts], Iterable[str]]


@dataclass(frozen=True, slots=True)
class Request:
    """One call as the LM saw it, with the times at which it was sent and answered."""

    sent: float
    answered: float
    parts: Parts


@dataclass(frozen=True, slots=True)
class Shares:
    """Of the input tokens of all requests, those in a prefix of an earlier one."""

    exact: float
    blocks_16: float
    blocks_128: float
    tokens: float
    """Per request."""
    new: float
    """Per request, outside of blocks of 16 that an earlier request brought."""


def shares(requests: Iterable[Request], layout: Layout, encode: Encode) -> Shares:
    """Measure requests in a layout; one finds what all those brought that were answered by the time it was sent."""
    # A prefix is known by the running hash of its tokens, whatever its length.
    found: set[int] = set()
    unanswered: list[tuple[float, list[int]]] = []
    total = count = exact = in_16 = in_128 = 0
    for request in sorted(requests, key=lambda r: r.sent):
        for entry in [e for e in unanswered if e[0] <= request.sent]:
            found.update(entry[1])
            unanswered.remove(entry)
        chain = _chain(layout(request.parts), encode)
        # Where a prefix was found every shorter one was.
        known = bisect_left(chain, True, key=lambda link: link not in found)
        total, count, exact = total + len(chain), count + 1, exact + known
        in_16 += known // 16 * 16
        in_128 += known // 128 * 128 if known >= 1024 else 0
        unanswered.append((request.answered, chain))
    return Shares(exact / total, in_16 / total, in_128 / total, total / count, (total - in_16) / count)


def _chain(pieces: Iterable[str], encode: Encode) -> list[int]:
    link, chain = 0, []
    for piece in pieces:
        for token in encode(piece):
            link = hash((link, token))
            chain.append(link)
    return chain


def tokenizer() -> tuple[str, Encode]:
    """OpenAI's o200k_base from the copy that LiteLLM brings along, or a rough stand-in; and its name."""
    try:
        import tiktoken

        home = find_spec("litellm")
        folder = Path((home and home.origin) or "").parent / "litellm_core_utils" / "tokenizers"
        os.environ["TIKTOKEN_CACHE_DIR"] = str(folder)
        return "o200k_base", lru_cache(maxsize=1 << 16)(tiktoken.get_encoding("o200k_base").encode_ordinary)
    except Exception:
        return "stand-in: five letters a token", lru_cache(maxsize=1 << 16)(
            lambda text: [zlib.crc32(part.encode()) for part in re.findall(r"\w{1,5}|[^\w\s]|\s+", text)]
        )


def parts(messages: Messages) -> Parts:
    """Take a request of the project's apart, at places where a tokenizer takes it apart too.

    `alone` is not sent: it is what the role would be told if nothing were told to all roles.
    """
    body, _, request = str(messages[-1]["content"]).rpartition(REQUEST)
    pieces = {"system": f"<|system|>\n{messages[0]['content']}\n<|user|>\n"}
    for section in re.split(r"(?<=\n\n)(?=\[\[ ## )", body):
        pieces[section[len("[[ ## ") :].partition(" ")[0]] = section
    alone = pieces["role"] + pieces.get("standard", "") + pieces.get("rules", "")
    return {**pieces, "request": REQUEST + request, "alone": alone}


def in_order(names: str) -> Layout:
    return lambda pieces: [pieces[name] for name in names.split() if name in pieces]


def as_sent(pieces: Parts) -> Iterable[str]:
    return [piece for name, piece in pieces.items() if name != "alone"]


def roles_named(requests: Iterable[Request]) -> Layout:
    """All roles' texts in the system text, and the one that speaks named last. Each reads what the others are told."""
    texts = dict.fromkeys(r.parts["alone"] for r in requests)
    names = {text: f"[[ ## role ## ]]\nYou are number {i} of the roles above." for i, text in enumerate(texts)}
    first = "".join(texts)
    own = in_order("task source context aspect candidate debate")
    return lambda p: [p["system"], first, *own(p), names[p["alone"]], p["request"]]


LAYOUTS: dict[str, Layout] = {
    "ours": as_sent,
    "each role's text last": in_order("system task source context aspect candidate debate alone request"),
    "role before candidate": in_order("system task source context aspect alone candidate debate request"),
    "source first, role in system text": in_order("system alone task source context aspect candidate debate request"),
    "candidate first, role in system text": in_order(
        "system alone task candidate source context aspect debate request"
    ),
    "debate first, role in system text": in_order("system alone task debate candidate aspect source context request"),
}


class Clockwork(asyncio.SelectorEventLoop):
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


class PlayedLM:
    """An engine that answers by the material alone, each call after one unit of time, and notes what was asked."""

    def __init__(self, words: tuple[int, int]) -> None:
        self.requests: list[Request] = []
        self._words = words

    async def complete(self, request: Any) -> Any:
        raise NotImplementedError("the debates take the short way")

    async def chat(self, model: str, messages: Messages, settings: Any) -> Reply:
        loop, pieces = asyncio.get_running_loop(), parts(messages)
        sent = loop.time()
        await asyncio.sleep(1.0)
        self.requests.append(Request(sent, loop.time(), pieces))
        return Reply(self._reply(pieces))

    def _reply(self, pieces: Parts) -> str:
        item = "".join(pieces.get(name, "") for name in ("source", "context", "aspect", "candidate"))
        debate, source = pieces.get("debate", ""), pieces["source"].split()[4:]
        rng = random.Random(item + debate + pieces["request"])

        def text() -> str:
            size = rng.randint(*self._words)
            start = rng.randrange(max(1, len(source) - size))
            return " ".join((source * size)[start : start + size])

        heard = debate.count("\n\nScorer, round") + debate.startswith("Scorer, round")
        content = heard > zlib.crc32(item.encode()) % (ROUNDS + 1)
        score = re.findall(r"\((-?[\d.]+) to", pieces["aspect"])[0]
        known = {"score": score, "final_score": score, "decision": "NO ISSUE" if content else "ISSUE"}
        fields = re.findall(r"^\[\[ ## (\w+) ## \]\]$", pieces["request"], re.MULTILINE)
        return "\n\n".join(f"[[ ## {field} ## ]]\n{known.get(field) or text()}" for field in fields)


def run(corpus: Corpus, arguments: argparse.Namespace, concurrency: int, prefix_warmup: bool = True) -> list[Request]:
    """Let the project judge the corpus, and see what it sends and when."""
    low, _, high = arguments.words.partition("-")
    played = PlayedLM((int(low), int(high or low)))
    lm = JudgeLM("played/lm", engine=played, concurrency=concurrency)
    lm.prefix_warmup = prefix_warmup
    aspects = corpus.task.aspects[: arguments.aspects]
    judge = Debate(debate_config=DebateConfig(arguments.rounds, arguments.rounds > 0))
    with patch("asyncio.new_event_loop", Clockwork):
        preamble = JudgeRunner(lm, progress=False)
    with preamble:
        if arguments.order == "score":
            compiled = CompiledJudge(corpus.task, {a.name: AspectJudge(judge) for a in aspects})
            items = (item for group in corpus.groups for item in group_items(corpus.task, group, aspects))
            judgements = [judgement for _, judgement in judge_in_order(preamble, compiled, items)]
        else:
            judgements = [j for a in aspects for j in preamble.judge(judge, corpus_items(corpus, a))]
    if len(scored(judgements)) != len(judgements):
        raise RuntimeError("a reply could not be read")
    return played.requests


def measure(spec: str, arguments: argparse.Namespace, encode: Encode) -> dict[str, Any]:
    """Print the tables of one data set, and return them."""
    whole = data.load(spec)
    corpus = replace(whole, groups=whole.groups[: arguments.sources])
    concurrent = [int(c) for c in arguments.concurrency.split(",")]
    count = sum(len(g.candidates) for g in corpus.groups)
    print(f"\n{corpus.origin.name}: {len(corpus.groups)} sources, {count} candidates, {arguments.aspects} aspects")
    alone = run(corpus, arguments, 1)
    led = {c: run(corpus, arguments, c) for c in concurrent}
    found: dict[str, Any] = {"requests": len(alone), "layouts": {}, "prefix warm-up": {}}
    heading = f"{len(alone)} requests, one at a time"
    print(f"{heading:37s}    exact     16    128  tokens    new   16 with {arguments.concurrency} at a time")
    for name, layout in {**LAYOUTS, "roles named last, each reads all": roles_named(alone)}.items():
        row = asdict(shares(alone, layout, encode))
        row["concurrent_16"] = {c: shares(led[c], layout, encode).blocks_16 for c in concurrent}
        found["layouts"][name] = row
        print(
            f"{name:37s} {row['exact']:8.3f}  {row['blocks_16']:5.3f}  {row['blocks_128']:5.3f}  {row['tokens']:6.0f}  "
            f"{row['new']:5.0f}  ",
            *(f"{share:5.3f}" for share in row["concurrent_16"].values()),
        )
    print("concurrency  warm-up    16    128    new  units of time")
    for concurrency in concurrent:
        both = {"without": run(corpus, arguments, concurrency, prefix_warmup=False), "with": led[concurrency]}
        found["prefix warm-up"][concurrency] = {}
        for how, requests in both.items():
            row = asdict(shares(requests, as_sent, encode)) | {"time": max(r.answered for r in requests)}
            found["prefix warm-up"][concurrency][how] = row
            print(
                f"{concurrency:11d}  {how:7s} {row['blocks_16']:5.3f}  {row['blocks_128']:5.3f}  {row['new']:5.0f}  "
                f"{row['time']:13.0f}"
            )
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", action="append", metavar="NAME[=PATH]", help="may be repeated; default: sample")
    parser.add_argument("--sources", type=int, default=20, help="the first so many of each set")
    parser.add_argument("--aspects", type=int, default=1, help="the first so many of the task")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="n; with a tie-breaker from 1 on")
    parser.add_argument("--words", default="40-60", help="length of what the LM writes under each header")
    parser.add_argument("--concurrency", default="16,32,128")
    parser.add_argument(
        "--order", choices=("compile", "score"), default="compile", help="aspects: outermost, innermost"
    )
    parser.add_argument("--json", metavar="FILE")
    arguments = parser.parse_args()
    name, encode = tokenizer()
    print(
        f"tokens: {name}; replies of {arguments.words} words, up to {arguments.rounds} rounds, as in {arguments.order}"
    )
    result = {spec.partition("=")[0]: measure(spec, arguments, encode) for spec in arguments.data or ["sample"]}
    if arguments.json:
        report = {"tokenizer": name, "data": result}
        Path(arguments.json).write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
