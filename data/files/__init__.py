"""Users' own files: tables and JSON of rated texts, and TOML task files. Every error names file, line and field.

A file becomes groups in four steps:

    formats (reading, workbook)   file -> records: the fields of a row or JSON object, with file and line
    layouts (exports, pairs)      records of a tool's export, or of pairs -> rows of ratings; others stay as they are
    rated_rows (columns)          candidates of a record -> flat rows; rows -> groups, by the columns' names
    groups                        one task; no group, source or candidate twice; at most what fits into memory

`task_file` reads a task, or guesses one from the flat rows. Knows no public set by name.
"""
