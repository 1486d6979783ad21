"""The measure of prefix sharing, on requests small enough to count by hand, and on the project's own prompts."""

from __future__ import annotations

import argparse
from dataclasses import replace

import pytest

from debate_judge import data
from debate_judge.programs.debate.judge import Debate
from debate_judge.programs.debate.table import Critic
from debate_judge.programs.judge import corpus_items
from debate_judge.programs.roles.role import RoleLastAdapter, item_inputs
from tests.bench.prefix import LAYOUTS, as_sent, in_order, roles_named, shares, tokenizer
from tests.bench.simulated_lm import Request, parts, run


def letters(text: str) -> list[int]:
    """A letter is a token."""
    return [ord(letter) for letter in text]


def request(sent: float, text: str, answered: float | None = None) -> Request:
    return Request(sent, sent + 1 if answered is None else answered, {"text": text})


def test_shares_by_hand() -> None:
    found = shares([request(0, "a" * 40), request(1, "a" * 37 + "b" * 3), request(2, "b" * 20)], as_sent, letters)
    # Of 100 tokens, the second request finds 37, or 2 blocks of 16; the third begins like none before it.
    assert found.exact == 37 / 100
    assert found.blocks_16 == 32 / 100
    assert found.blocks_128 == 0
    assert (found.tokens, found.new) == (100 / 3, 68 / 3)


def test_hosted_providers_keep_no_short_prefix() -> None:
    short = shares([request(0, "a" * 1023), request(1, "a" * 1023)], as_sent, letters)
    long = shares([request(0, "a" * 1200), request(1, "a" * 1200)], as_sent, letters)
    assert (short.exact, short.blocks_128) == (0.5, 0)
    assert long.blocks_128 == 1152 / 2400


def test_what_has_not_been_answered_cannot_be_found() -> None:
    together = [request(0, "a" * 16), request(0, "a" * 16)]
    assert shares(together, as_sent, letters).exact == 0
    assert shares([*together, request(0.5, "a" * 16)], as_sent, letters).exact == 0
    assert shares([*together, request(1, "a" * 16)], as_sent, letters).exact == 1 / 3
    # A late answer to an early request counts from when it came.
    assert (
        shares([request(0, "a" * 16, 9), request(5, "a" * 16), request(9, "a" * 16)], as_sent, letters).exact == 1 / 3
    )


def test_a_layout_decides_what_comes_first() -> None:
    two = [Request(n, n + 1, {"candidate": c, "source": "s" * 30}) for n, c in enumerate("xy")]
    assert shares(two, in_order("source candidate"), letters).exact == 30 / 62
    assert shares(two, in_order("candidate source"), letters).exact == 0


def test_a_request_of_ours_is_taken_apart_without_loss() -> None:
    item = corpus_items(data.load("sample"), data.load("sample").task.aspects[0])[0]
    debate = Debate()
    signature = debate.critic.signature
    told = Critic({item.aspect.name: debate}).inputs(debate.prompt_parts(item))
    messages = RoleLastAdapter().format(signature, [], {**item_inputs(item, "Scorer, round 0, score 3: Fine."), **told})
    pieces = parts(messages)
    sent = ["system", "standard", "task", "source", "aspect", "rules", "candidate", "debate", "role", "request"]
    assert list(pieces) == [*sent, "alone"]
    assert "".join(as_sent(pieces)) == f"<|system|>\n{messages[0]['content']}\n<|user|>\n{messages[1]['content']}"
    # What the role would be told in one place is all but the material.
    assert pieces["alone"] == pieces["role"] + pieces["standard"] + pieces["rules"]
    for name, layout in LAYOUTS.items():
        rest = set(pieces) - ({"alone"} if name == "ours" else {"standard", "rules", "role"})
        assert sorted(layout(pieces)) == sorted(pieces[name] for name in rest)


@pytest.fixture(scope="module")
def settings() -> argparse.Namespace:
    return argparse.Namespace(words="40-60", rounds=3, aspects=1, order="compile")


def test_the_projects_layout_beats_naive_orders_and_pilots_save_what_haste_loses(settings: argparse.Namespace) -> None:
    corpus = data.load("sample")
    corpus = replace(corpus, groups=corpus.groups[:4])
    encode = tokenizer()[1]
    alone, without, led = run(corpus, settings, 1), run(corpus, settings, 32, False), run(corpus, settings, 32)
    assert len(alone) == len(without) == len(led)
    ours = shares(alone, as_sent, encode).blocks_16
    for name in set(LAYOUTS) - {"ours"}:
        assert shares(alone, LAYOUTS[name], encode).blocks_16 < ours
    # At the price of more tokens, and of roles that read what the others are told.
    named = shares(alone, roles_named(alone), encode)
    assert named.tokens > shares(alone, as_sent, encode).tokens
    assert shares(without, as_sent, encode).blocks_16 < ours - 0.05
    assert shares(led, as_sent, encode).blocks_16 > ours - 0.01
    # Waiting costs one reply's time where there are more places than sources.
    assert max(r.answered for r in led) <= max(r.answered for r in without) + 1


def test_the_same_run_sends_the_same_requests(settings: argparse.Namespace) -> None:
    corpus = data.load("sample")
    corpus = replace(corpus, groups=corpus.groups[:2])
    assert run(corpus, settings, 8) == run(corpus, settings, 8)
