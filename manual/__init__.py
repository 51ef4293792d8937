"""Pages of the documentation that are made from code, and the site's hook for those of the root.

`python -m manual` writes the pages, `python -m manual --check` says whether they are current.
"""
