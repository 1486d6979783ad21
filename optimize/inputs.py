"""Files that a compile reads besides the data: a user's personas."""

from __future__ import annotations

from runs.persona_files import personas

__all__ = ["personas"]
