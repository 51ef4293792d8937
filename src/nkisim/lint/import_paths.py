"""Where the file of an imported module lies, told from the importing file alone.

Relative imports are found from the directory of the importing file. Absolute ones are looked for in
that directory and in those above it, so that a checkout is followed and nothing else.
"""

from pathlib import Path


def find_module(directory: Path, module: tuple[str, ...], level: int) -> Path | None:
    """The file of a module, or its directory if it has no file; None if it is not here.

    `level` counts the leading dots of a relative import; 0 is an absolute one.
    """
    if level:
        above = (directory, *directory.parents)
        return locate(above[level - 1], module) if level <= len(above) else None
    for base in (directory, *directory.parents):
        top = locate(base, module[:1])
        if top and top.is_file():
            return locate(base, module)
    return None


def locate(base: Path, module: tuple[str, ...]) -> Path | None:
    """The file or directory of a module below `base`."""
    place = base.joinpath(*module)
    as_file = place.with_name(f"{place.name}.py")
    for candidate in (as_file, place / "__init__.py"):
        if candidate.is_file():
            return candidate
    return place if place.is_dir() else None
