"""What pages name exists: files, modules, markers and commands.

The history in CHANGELOG.md names what was there at the time, and is left out.
"""

import ast
import contextlib
import importlib
import io
import re
import shlex
from functools import cache

from doc_pages import ALL, ROOT, fences
from manual import command_page
from source_imports import PACKAGES, nodes, source_files, syntax

PAGES = [page for page in ALL if page.name != "CHANGELOG.md"]
MODULES = source_files()
FOLDERS = ".ci benchmarks docs examples manual scripts src tests validation".split()
CODE = re.compile(r"`([^`]+)`")
FILE = re.compile(r"[\w./<>*-]+\.(py|md)")
FOLDER = re.compile(r"[\w.<>*-]+(/[\w.<>*-]+)*/?")
DOTTED = re.compile(r"((?:nkisim|trnconv)(?:\.\w+)+)(?:\(.*\))?", re.DOTALL)
ABOUT_A_FOLDER = re.compile(r"`([\w/]+)/`[:,]")
# Of other projects, or what a reader is told to write.
NOT_OURS = {
    "conv3d_bwd.py",
    "conv3d_design_spec.md",
    "decode.py",
    "experimental/conv/conv3d.py",
    "fused.py",
}


def name(page):
    return str(page.relative_to(ROOT))


@cache
def tree():
    """Every file of the project and every folder that has one, from its root."""
    below = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*")]
    files = [path.relative_to(ROOT) for path in [*ROOT.iterdir(), *below] if path.is_file()]
    kept = [file for file in files if "__pycache__" not in file.parts]
    return frozenset(str(path) for file in kept for path in [file, *file.parents])


def paragraphs(text):
    return re.split(r"\n\s*\n", re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL))


def words(paragraph):
    """The words of a paragraph that stand in code."""
    return [word.rstrip(",;:") for code in CODE.findall(paragraph) for word in code.split()]


@cache
def matching(path):
    """What of the tree has this path, or ends with it; <family> is any name."""
    pattern = re.sub(r"<\w+>|\\\*", "[^/]+", re.escape(path.removeprefix("../").rstrip("/")))
    return [entry for entry in tree() if re.fullmatch(f"(.*/)?{pattern}", entry)]


@cache
def is_path(word):
    """Whether a word is one of our paths: a file by its ending, a folder by its first part."""
    first, *rest = word.split("/")
    ours = first in FOLDERS or any(entry.endswith(f"/{first}") for entry in tree())
    return bool(FILE.fullmatch(word) or (rest and ours and FOLDER.fullmatch(word)))


def beside(folder, entry):
    """Whether a file is below a folder of the code map, or in a folder around it."""
    home = entry.removeprefix("src/").rpartition("/")[0]
    inside = f"/{folder}/" in f"/{home}/"
    return inside or any(f"{package}/{folder}/".startswith(f"{home}/") for package in PACKAGES)


def missing_paths(text):
    """Paths of a page that lead nowhere, or not below the folder that their paragraph is about."""
    written = {fence.title for fence in fences(text)} | NOT_OURS
    for paragraph in paragraphs(text):
        about = ABOUT_A_FOLDER.match(paragraph)
        for path in filter(is_path, words(paragraph)):
            found = matching(path)
            if about and "/" not in path:
                found = [entry for entry in found if beside(about[1], entry)]
            if not found and path not in written:
                yield path


def findings(check):
    """What a check finds, by page."""
    return {name(page): found for page in PAGES if (found := list(check(page.read_text())))}


def test_every_path_exists():
    assert findings(missing_paths) == {}


def test_scripts_and_settings_name_tests_that_exist():
    files = [*(ROOT / "scripts").iterdir(), ROOT / ".ci" / "run", ROOT / "pyproject.toml"]
    named = {path for file in files for path in re.findall(r"\btests/[\w./-]*\w", file.read_text())}
    assert len(named) > 5
    assert named - tree() == set()


def test_every_class_of_the_architecture_exists():
    text = (ROOT / "ARCHITECTURE.md").read_text()
    code = [code for paragraph in paragraphs(text) for code in CODE.findall(paragraph)]
    named = {word for word in code if re.fullmatch(r"[A-Z][a-z]+\w*", word)}
    classes = {
        node.name
        for path in MODULES.values()
        for node in nodes(path)
        if isinstance(node, ast.ClassDef)
    }
    assert named - classes == set()


def bound_names(module):
    """Names that a module binds at its top level."""
    for node in syntax(MODULES[module]).body:
        for child in ast.walk(node):
            if isinstance(child, (ast.FunctionDef, ast.ClassDef)):
                yield child.name
            elif isinstance(child, ast.alias):
                yield (child.asname or child.name).partition(".")[0]
            elif isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store):
                yield child.id


def exists(dotted):
    """Whether a dotted name is a module, or the first name below one is bound there."""
    module, rest = dotted, ""
    while module not in MODULES:
        module, _, rest = module.rpartition(".")
    return not rest or rest in bound_names(module)


def missing_names(text):
    """Modules of ours, and what they hold, that a page names and that are not there."""
    for paragraph in paragraphs(text):
        for code in CODE.findall(paragraph):
            if (found := DOTTED.fullmatch(code)) and not exists(found[1]):
                yield found[1]


def test_every_module_exists():
    assert findings(missing_names) == {}


def commands(text):
    """Commands of ours on a page, in code of its sentences and in its blocks, as words."""
    shown = [code for paragraph in paragraphs(text) for code in CODE.findall(paragraph)]
    for fence in fences(text):
        if fence.language in {"sh", "console"}:
            joined = "\n".join(fence.lines).replace("\\\n", " ")
            shown += [line.removeprefix("$ ") for line in joined.splitlines()]
    for line in shown:
        with contextlib.suppress(ValueError):  # a line of prose with one quote
            yield shlex.split(line, comments=True)


@cache
def help_of(program, *verb):
    """What `python -m PROGRAM VERB --help` prints."""
    main = importlib.import_module(f"{program}.__main__").main
    printed = io.StringIO()
    with (
        contextlib.redirect_stdout(printed),
        contextlib.redirect_stderr(io.StringIO()),
        contextlib.suppress(SystemExit),
    ):
        main([*verb, "--help"])
    return printed.getvalue()


def unknown_to_program(program, words):
    """The verb, or those of its options, that the help of `python -m PROGRAM` does not have."""
    verb = [word for word in words[:1] if re.fullmatch(r"[a-z]+(-[a-z]+)*", word)]
    text = help_of(program, *verb)
    if verb and not text.startswith(f"usage: python -m {program} {verb[0]} "):
        return set(verb)
    options = {word.partition("=")[0] for word in words if word.startswith("--")}
    return options - set(re.findall(r"--[\w-]+", text))


def markers():
    _, listed = (ROOT / "pyproject.toml").read_text().split("\nmarkers = [\n")
    return set(re.findall(r'^  "(\w+): ', listed.partition("\n]\n")[0], re.MULTILINE))


def unknown_to_trnconv(verb, words):
    """The verb, or those of its options, that `trnconv` does not have."""
    known = {command.name: command for command in command_page.commands()}
    if verb not in known:
        return {verb}
    options = {name for option in known[verb].options for name in option.names} | {"--help"}
    return {word.partition("=")[0] for word in words if word.startswith("--")} - options


def unknown_words(command):
    """Verbs, options and markers of a command that its program does not know."""
    match [word for word in command if "=" not in word or word.startswith("-")]:
        case ["trnconv", verb, *options] if verb.isalpha():
            return unknown_to_trnconv(verb, options)
        case ["python", "-m", ("benchmarks" | "nkisim" | "validation") as program, *rest]:
            return unknown_to_program(program, rest)
        case ["pytest" | "scripts/test", *options] if "-m" in options:
            expression = options[options.index("-m") + 1]
            return set(re.findall(r"\w+", expression)) - markers() - {"and", "or", "not"}
    return set()


def unknown_to_programs(text):
    return {word for command in commands(text) for word in unknown_words(command)}


def test_every_command_is_known():
    assert findings(unknown_to_programs) == {}


def test_contributing_has_every_marker():
    text = (ROOT / "CONTRIBUTING.md").read_text()
    assert set(re.findall(r"^\| `(\w+)` \| .* \| `[^`]*pytest", text, re.MULTILINE)) == markers()


def test_the_checks_can_fail():
    page = (
        "`isa/`: `matmul.py`, `placement.py` and `isa/<family>.py`.\n\n`tests/nowhere`, `gone.py`"
    )
    assert list(missing_paths(page)) == ["placement.py", "tests/nowhere", "gone.py"]
    assert list(missing_names("`nkisim.machine.TRN2`, `nkisim.machine.TRN9`, `trnconv.plan`")) == [
        "nkisim.machine.TRN9",
        "trnconv.plan",
    ]
    page = (
        "`trnconv plan --x`, `trnconv plans`\n```sh\nNKILIB_SRC=x pytest -m 'slow or slower'\n```\n"
    )
    found = [unknown_words(command) for command in commands(page)]
    assert found == [{"--x"}, {"plans"}, {"slower"}]
    command = "python -m benchmarks forward --x".split()
    assert unknown_words(command) == {"--x"}
    assert unknown_words([*command[:3], "forwards"]) == {"forwards"}
    assert len(findings(paragraphs)) == len(PAGES)
