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
import json
import os
import re
import sys
import zlib
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from debate_judge import data  # noqa: E402
from tests.bench.simulated_lm import ROUNDS, Parts, Request, run  # noqa: E402

Encode = Callable[[str], Sequence[int]]
Layout = Callable[[Parts], Iterable[str]]


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
