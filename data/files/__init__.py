"""Users' own files: tables and JSON of rated texts, and TOML task files. Every error names file, line and field.

A file becomes groups in three steps:

    formats (reading, workbook, tools)   file -> records: the fields of a row or JSON object, with file and line
    rows (columns, ratings)              a record and a mapping -> rows: a text with its ratings and comments
    groups                               rows of a source -> a group; no group or candidate twice, what fits into memory

`columns` is the mapping, which `task_file` holds; `names` says what names of columns may mean, for drafts and errors.
Knows no public set by name.
"""
