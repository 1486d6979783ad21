"""The cost of a compile, estimated by a dry run on a sample.

Uses the compile itself and runs.estimates; only the command uses it."""
