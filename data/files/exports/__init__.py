"""Parts of `data.files.layouts`: what layouts have in common, lists and objects in cells, and Label Studio's layouts.

They use the records, columns and pairs of `data.files`.
"""
