"""The articles of the sample, 24 in all."""

from __future__ import annotations

from debate_judge.data.sample.news_science import SCIENCE
from debate_judge.data.sample.news_town import TOWN
from debate_judge.data.sample.news_work_play import WORK_PLAY
from debate_judge.data.sample.texts import Article

NEWS: tuple[Article, ...] = (*TOWN, *SCIENCE, *WORK_PLAY)
