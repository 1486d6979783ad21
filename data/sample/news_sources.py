"""The articles of the sample, 24 in all."""

from __future__ import annotations

from data.sample.news_science import SCIENCE
from data.sample.news_town import TOWN
from data.sample.news_work_play import WORK_PLAY
from data.sample.texts import Article

NEWS: tuple[Article, ...] = (*TOWN, *SCIENCE, *WORK_PLAY)
