"""The dialogues of the sample, 24 in all."""

from __future__ import annotations

from debate_judge.data.sample.dialogue_home import HOME
from debate_judge.data.sample.dialogue_world import WORLD
from debate_judge.data.sample.texts import Dialogue

DIALOGUES: tuple[Dialogue, ...] = (*HOME, *WORLD)
