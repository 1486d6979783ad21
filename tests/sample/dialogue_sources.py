"""The dialogues of the sample, 24 in all."""

from __future__ import annotations

from tests.sample.dialogue_home import HOME
from tests.sample.dialogue_world import WORLD
from tests.sample.texts import Dialogue

DIALOGUES: tuple[Dialogue, ...] = (*HOME, *WORLD)
