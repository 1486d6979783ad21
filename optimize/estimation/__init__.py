"""What a compile would take, found by carrying it out dry on a sample.

Uses the compile itself and runs.estimates; only the command uses it."""
