"""What a compile measures in addition to agreement: calibration of scores, and the learning curve.

Uses the search and the plan of a compile; chooses nothing.
"""
