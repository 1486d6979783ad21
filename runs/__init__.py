"""Running judges: scoring, serving, comparing, exporting, tracking, and what comes after a compile.

Holds all commands but `compile`. Uses `data` and `programs`; knows no optimizer, except that `DebateAligner` calls the
package's public `compile`.
"""
