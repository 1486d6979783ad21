"""A run's report as one self-contained HTML page: what it shows, how it is drawn, where it is kept and found again.

Uses the export room, and MLflow to find reports again; what a page says is handed in, and it knows no tuning.
"""
