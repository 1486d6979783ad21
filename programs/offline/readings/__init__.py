"""What the offline LM measures on texts: summaries against their source, replies in a conversation.

Uses the standard library alone; knows no prompt, no rubric and no role.
"""
