"""Two people of a team compile on the same data: each has a --store of their own, and all have one PostgreSQL."""

from __future__ import annotations

import io
import json
import logging
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import optuna
import pytest

from debate_judge.optimize import compile as command
from debate_judge.programs.lm.sql.postgresql import sqlalchemy_address
from tests.config_keys import keys
from tests.fakes import debater
from tests.faulty_server import FaultyServer
from tests.optimize.small_corpus import small_corpus
from tests.postgresql import PASSWORD, PostgresServer, with_password

pytestmark = pytest.mark.integration


def answer(body: bytes) -> str:
    prompt = "\n\n".join(message["content"] for message in json.loads(body)["messages"])
    return debater(score=str(1 + len(prompt) % 5))(prompt)


@dataclass(frozen=True)
class Compiled:
    result: dict[str, Any]
    calls: int
    """That reached the LM."""
    output: str
    """On the terminal, and in the log at its most talkative."""


@dataclass(frozen=True)
class Team:
    folder: Path
    databases: dict[str, str]
    first: Compiled
    second: Compiled


def compiled(arguments: list[str], server: FaultyServer, file: Path) -> Compiled:
    output, before = io.StringIO(), server.requests
    handler, root = logging.StreamHandler(output), logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    try:
        with redirect_stdout(output), redirect_stderr(output):
            code = command.main([*arguments, *keys(json=file)])
    finally:
        root.removeHandler(handler)
        root.setLevel(level)
    assert code == 0, output.getvalue()
    return Compiled(json.loads(file.read_text()), server.requests - before, output.getvalue())


@pytest.fixture(scope="module")
def team(postgres: PostgresServer, runs_database: str, tmp_path_factory: pytest.TempPathFactory) -> Team:
    folder = tmp_path_factory.mktemp("team")
    databases = {"replies": postgres.new_database(), "studies": postgres.new_database(), "runs": runs_database}
    with pytest.MonkeyPatch.context() as patch, FaultyServer(answer) as server:
        # The password of the addresses must do, in each of the three places that take one.
        patch.delenv("PGPASSWORD")
        patch.setenv("OPENAI_API_KEY", "unused")
        patch.setenv("DEBATE_REPLIES", with_password(databases["replies"]))
        patch.setenv("DEBATE_STUDIES", with_password(databases["studies"]))
        common = ["--data", str(small_corpus(folder, groups=8, candidates=3)), "--lm", "openai/mock"]
        common += ["--api-base", server.url, "--tracking-uri", with_password(runs_database), "--name", "ours"]
        common += ["--aspects", "coherence", "--tuner", "none", "--folds", "1", *keys(trials=1)]
        common += ["--max-rounds", "0", *keys(resamples=100, preflight=False)]
        first, second = (
            compiled([*common, "--store", str(folder / name)], server, folder / f"{name}.json") for name in "ab"
        )
    return Team(folder, databases, first, second)


def test_the_second_pays_nothing_gets_the_same_and_has_the_same_study(team: Team) -> None:
    first, second = team.first, team.second
    assert first.calls == first.result["lm_calls"]["executed"] > 0
    assert second.calls == second.result["lm_calls"]["executed"] == 0
    assert first.result["lm_calls"]["total"] == second.result["lm_calls"]["total"] > first.calls // 2
    for same in ("chosen", "held_out", "gain"):
        assert first.result[same] == second.result[same]
    address = sqlalchemy_address(with_password(team.databases["studies"]))
    (study,) = optuna.get_all_study_summaries(address)
    trials = optuna.load_study(study_name=study.study_name, storage=address).get_trials()
    assert len({json.dumps(trial.params) for trial in trials}) == len(trials) > 0


def test_the_password_of_the_databases_is_in_nothing_that_is_left(team: Team, postgres: PostgresServer) -> None:
    texts = {str(path): path.read_bytes().decode("latin-1") for path in team.folder.rglob("*") if path.is_file()}
    texts |= {name: postgres.dump(address) for name, address in team.databases.items()}
    texts |= {"printed by the first": team.first.output, "printed by the second": team.second.output}
    # Not a pass on nothing: the run, a trial and a reply are among what was looked through.
    assert team.first.result["run_id"] in texts["runs"]
    assert "INSERT INTO public.trial_params" in texts["studies"]
    assert "INSERT INTO public.replies" in texts["replies"]
    assert any(name.endswith("settings.json") for name in texts)
    for secret in (PASSWORD, quote(PASSWORD, safe=""), quote(PASSWORD)):
        assert [name for name, text in texts.items() if secret in text] == []
