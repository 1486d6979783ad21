"""pytest: `def test_summary(judge): assert judge(summary, source=article) >= 4`, with `pytest --debate-judge=EXPORT`.

Loaded at every start of pytest, by the entry point `pytest11`: nothing heavy is imported before the fixture is used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from debate_judge.runs.loaded import LoadedJudge
    from debate_judge.runs.runner import Score

OPTION = "--debate-judge"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare `--debate-judge` and the setting `debate_judge` of pytest's configuration file."""
    description = "export of the judge of the fixture `judge`: a folder, models:/NAME/VERSION or models:/NAME@ALIAS"
    parser.getgroup("debate-judge").addoption(OPTION, metavar="EXPORT", help=description)
    parser.addini("debate_judge", description)


def pytest_configure(config: pytest.Config) -> None:
    """Refuse an export as an argument of its own: pytest has taken it for a folder of tests, and looked for its own
    settings in all folders around both."""
    folder, settings = config.invocation_params.dir, config.inipath
    is_foreign = settings is not None and settings.parent not in (folder, *folder.parents)
    if is_foreign and OPTION in config.invocation_params.args:
        raise pytest.UsageError(f"pytest has taken its settings from {settings}: write {OPTION}=EXPORT, with =")


@dataclass(frozen=True, eq=False)
class JudgedText:
    """The scores of a text. A comparison with a number is true if it is true for every requested aspect.

    A missing score makes every comparison false, so that an outage never passes a test.
    """

    scores: Mapping[str, Score]

    def __ge__(self, bound: float) -> bool:
        return self._all(lambda score: score >= bound)

    def __gt__(self, bound: float) -> bool:
        return self._all(lambda score: score > bound)

    def __le__(self, bound: float) -> bool:
        return self._all(lambda score: score <= bound)

    def __lt__(self, bound: float) -> bool:
        return self._all(lambda score: score < bound)

    def __float__(self) -> float:
        """The score, where one aspect was requested."""
        (score,) = self.scores.values()
        if score.score is None:
            raise ValueError(score.reason)
        return score.score

    def _all(self, condition: Callable[[float], bool]) -> bool:
        return all(score.score is not None and condition(score.score) for score in self.scores.values())

    def __repr__(self) -> str:
        return ", ".join(f"{name}: {_score_text(score.score)}" for name, score in self.scores.items())

    def reasons(self) -> list[str]:
        """A line for each aspect: its score and the reason."""
        return [f"{name}: {_score_text(score.score)}: {score.reason}" for name, score in self.scores.items()]

    def debates(self) -> str:
        """The debate about each aspect."""
        texts = [f"{name}: {_score_text(s.score)}\n{s.transcript or s.reason}" for name, s in self.scores.items()]
        return "\n\n".join(texts)


def _score_text(score: float | None) -> str:
    return "no score" if score is None else f"{score:g}"


def pytest_assertrepr_compare(op: str, left: object, right: object) -> list[str] | None:
    """Explain a failed comparison by scores and reasons; debates, which pytest would truncate, have a section."""
    judged = left if isinstance(left, JudgedText) else right if isinstance(right, JudgedText) else None
    return None if judged is None else [f"{left!r} {op} {right!r}", *judged.reasons()]


@pytest.fixture(scope="session")
def debate_judge_scorer(pytestconfig: pytest.Config) -> LoadedJudge:
    """The judge of `--debate-judge`, loaded once for the session."""
    from debate_judge.runs.loaded import load_in_tool

    export = pytestconfig.getoption(OPTION) or pytestconfig.getini("debate_judge")
    if not export:
        raise pytest.UsageError(
            f"the fixture `judge` needs an export: {OPTION}=EXPORT, or debate_judge = in pytest.ini"
        )
    return load_in_tool(export)


@pytest.fixture
def judge(
    debate_judge_scorer: LoadedJudge,
    record_property: Callable[[str, object], None],
    request: pytest.FixtureRequest,
) -> Callable[..., JudgedText]:
    """`judge(text, source=..., aspect=..., context=...)`; without an aspect, all of them.

    Scores are properties of the test in JUnit's XML, and debates a section of its report.
    """
    scorer = debate_judge_scorer

    def ask(text: str, *, source: str, aspect: str | None = None, context: str = "") -> JudgedText:
        scores = scorer.score(source=source, text=text, context=context, aspects=aspect)
        for name, score in scores.items():
            record_property(f"debate_judge.{name}", _score_text(score.score))
        judged = JudgedText(scores)
        request.node.add_report_section("call", "debate", judged.debates())
        return judged

    return ask
