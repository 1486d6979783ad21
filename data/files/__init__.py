"""Users' own files: tables and JSON of rated texts. Every error names file, line and field.

A file becomes groups in three steps:

    formats (workbook, tools)   file -> records: the fields of a row or JSON object, with file and line
    groups                      a record and a mapping -> rows, a text with its ratings and comments; rows -> groups

`columns` is the mapping, which a task file holds, and what names of columns may mean. Knows no public set by name.
"""
