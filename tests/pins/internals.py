"""All that the pins know of the package's inside; a rewrite of the inside adapts this file and no other here."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from sqlalchemy import text

from debate_judge.programs.lm.reply import replies_folder
from debate_judge.programs.make_lm import open_replies
from debate_judge.programs.offline.engine import OfflineEngine


def stored_keys(store: Path, lm: str) -> list[str]:
    """The keys of all calls whose replies a `--store` folder holds for an LM, as 32 hexadecimal digits, sorted."""
    with closing(open_replies(replies_folder(store, lm), lm)) as replies:
        return sorted(replies.run_sync(lambda connection: list(connection.scalars(text("select key from replies")))))


def offline_answer(system: str, user: str) -> str:
    """What the embedded offline LM replies to a prompt, whatever role it is for."""
    return OfflineEngine().answer(system, user, {}).text
