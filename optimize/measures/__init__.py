"""What a compile measures beside agreement: how far its scores are from the raters, what more ratings would bring.

Uses the search and the plan of a compile; chooses nothing.
"""
