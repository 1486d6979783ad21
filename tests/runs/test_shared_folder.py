"""A distributed run writes into one folder: a machine that does not see it takes no part."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from debate_judge.data.errors import InputError
from debate_judge.programs.lm.limits.provider_limits import NO_LIMIT
from debate_judge.programs.lm.options import LMOptions
from debate_judge.runs.distributed import driver
from debate_judge.runs.distributed.driver import RunDriver
from debate_judge.runs.distributed.out_folder import OutFolder
from debate_judge.runs.distributed.progress import RunTotals
from debate_judge.runs.distributed.service import AccountService


def elsewhere(out: OutFolder, folder: Path) -> OutFolder:
    """The folder as a process on a machine sees it where the same path is another folder."""
    sent: OutFolder = pickle.loads(pickle.dumps(out))
    sent.url = str(folder)
    return sent


def test_a_ledger_that_does_not_see_the_folder_does_not_start(tmp_path: Path) -> None:
    out = OutFolder(str(tmp_path / "out.jsonl"))
    out.require_made_from({"program": "p"})
    AccountService(pickle.loads(pickle.dumps(out)), "run", LMOptions(), NO_LIMIT)
    with pytest.raises(InputError, match="does not see the folder"):
        AccountService(elsewhere(out, tmp_path / "other.jsonl"), "run", LMOptions(), NO_LIMIT)
    again = OutFolder(str(tmp_path / "out.jsonl"))
    again.require_made_from({"program": "p"})
    assert again.token == out.token
    # Another run's folder is at the same path there.
    OutFolder(str(tmp_path / "other.jsonl")).require_made_from({"program": "p"})
    with pytest.raises(InputError, match="does not see the folder"):
        elsewhere(out, tmp_path / "other.jsonl").require_shared()


def test_a_ledger_that_never_comes_back_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "_SILENCE", -1.0)
    monkeypatch.setattr(driver, "_GRACE", 0.0)
    totals = RunTotals({})
    RunDriver(OutFolder(str(tmp_path / "out.jsonl")), totals, lambda stop: None).run(iter(()))
    assert totals.failure is not None
    assert "the ledger of the account has not answered" in totals.failure[1]
