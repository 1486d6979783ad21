"""What a guide may hold and how long it may be, and which rated sources its author is shown."""

from __future__ import annotations

import json
import re
from dataclasses import replace

from debate_judge.data.schema import Scale
from debate_judge.optimize.tuners.guide import guide_of
from debate_judge.optimize.tuners.guide_author import rating_distribution
from debate_judge.optimize.tuners.rated_sources import RatedCandidate, RatedSource, first_quotation, pack
from debate_judge.programs.roles.guide import guide_in, with_guide
from tests.optimize.guide_author import Author, tuned


def test_a_guide_that_is_too_long_is_asked_for_again_and_then_cut() -> None:
    author = Author("large. " + "Many words stand here. " * 10, "large. " + "Many words stand here. " * 10, "large.")
    judge, _ = tuned(author, words=9)
    assert "The guide had 41 words" in author.guide_prompts[1]
    assert " ".join(guide_of(judge).split()) == "large. Many words stand here. Many words stand here."


def test_a_guide_that_quotes_a_source_is_asked_for_again_and_loses_the_sentence() -> None:
    quoting = "They like large. Think of an old lighthouse keeper and his seven cats in winter."
    author = Author(quoting)
    judge, _ = tuned(author)
    assert "('of an old lighthouse" in author.guide_prompts[1]
    assert guide_of(judge) == "They like large."


def test_an_unreadable_reply_is_one_proposal_less_and_never_the_end() -> None:
    class Mute(Author):
        def __call__(self, prompt: str) -> str:
            return "no fields here" if "[[ ## rated ## ]]" in prompt else super().__call__(prompt)

    judge, _ = tuned(Mute("large"))
    assert guide_of(judge) == ""


def test_sources_that_exceed_the_limit_are_written_about_in_parts_and_merged() -> None:
    author = Author("large")
    judge, lm = tuned(author, proposals=1, tokens=450)
    drafts = [p for p in lm.prompts if "[[ ## drafts ## ]]" in p]
    assert len(drafts) == 1
    assert re.search(r"Guide 1, from \d+ texts:\nlarge\n\nGuide 2, from \d+ texts:\nlarge", drafts[0])
    assert guide_of(judge) == "large merged"


def test_a_guide_replaces_the_one_before_and_can_be_taken_out() -> None:
    once = with_guide("Rate it.", "old")
    assert guide_in(with_guide(once, "new")) == "new"
    assert with_guide(once, "new").startswith("Rate it.")
    assert with_guide(once, "") == "Rate it."
    assert guide_in("Rate it.") == ""


def rated_source(number: int, difference: float, candidates: int = 3) -> RatedSource:
    made = tuple(
        RatedCandidate(f"candidate {number} {i} " + "word " * 20, (float(i),), float(i), i + difference, "reason")
        for i in range(candidates)
    )
    return RatedSource(f"source {number}", "", made)


def test_where_not_all_sources_fit_there_are_agreements_among_them_all_the_same() -> None:
    sources = [rated_source(n, difference=n) for n in range(40)]
    packs = pack(sources, 8 * sources[7].tokens, 2)
    assert len(packs) == 2
    for one in packs:
        differences = [source.error for source in one]
        assert differences == sorted(differences, reverse=True)
        assert differences[0] > 20
        assert any(difference < 10 for difference in differences)
    assert len({source.source for one in packs for source in one}) == sum(map(len, packs))


def test_a_pack_keeps_to_its_tokens() -> None:
    sources = [rated_source(n, difference=n % 7, candidates=2 + n % 5) for n in range(30)]
    for one in pack(sources, 300, 30):
        assert sum(source.tokens for source in one) <= 300


def test_a_source_that_is_too_long_keeps_the_ends_of_the_scale() -> None:
    long = rated_source(0, 0.0, candidates=9)
    fitted = long.fit(long.tokens // 2)
    means = [c.mean for c in fitted.candidates]
    assert 2 <= len(means) < 9
    assert {0.0, 8.0} <= set(means)


def test_a_quotation_is_a_run_of_words_whatever_the_punctuation() -> None:
    source = RatedSource("The cat sat, on the red mat all day.", "", ())
    assert first_quotation("It says the cat sat on the red mat all day", [source], 7) == "the cat sat on the red mat"
    assert first_quotation("the cat sat on a red mat all day", [source], 7) == ""


def test_the_spread_lists_each_mean_until_there_are_too_many() -> None:
    scale = Scale(1, 5)
    assert rating_distribution([4.6667, 4.6667, 3.3333], scale) == "Of 3 texts, 1 at 3.33, 2 at 4.67."
    many = [1 + number / 10 for number in range(41)]
    assert rating_distribution(many, scale).endswith("6 near 5; 1 at exactly 1 and 1 at exactly 5.")


def test_equal_texts_of_a_source_are_shown_once_with_all_their_ratings() -> None:
    same = RatedCandidate("same", (4.0, 2.0), 3.0, 2.5, "why")
    other = replace(same, ratings=(5.0,), mean=5.0, score=4.0)
    line = json.loads(RatedSource("source", "", (same, other, replace(same, text="another"))).json_line())
    assert [c["candidate"] for c in line["candidates"]] == ["same", "another"]
    assert line["candidates"][0] == {
        "candidate": "same", "raters_mean": 4.0, "ratings": [4.0, 2.0, 5.0], "judge": 2.5, "judge_reason": "why"
    }  # fmt: skip
