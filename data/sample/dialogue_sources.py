"""The dialogues of the sample, 24 in all."""

from __future__ import annotations

from data.sample.dialogue_home import HOME
from data.sample.dialogue_world import WORLD
from data.sample.texts import Dialogue

DIALOGUES: tuple[Dialogue, ...] = (*HOME, *WORLD)
