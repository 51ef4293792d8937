"""Commands of the pages: each runs in CI, says why it does not, or at least has options that exist.

Commands with their output are `console` blocks, and test_docs.py runs all of them. Here are the
others: those of the README's sentences run as well, those of `sh` blocks need what CI has not, and
those that sentences mention must be ones that their programs would take.
"""

import importlib
import re
import shlex
import subprocess
import sys
from functools import cache
from itertools import pairwise

import pytest
from typer.main import get_command

from doc_pages import ALL, COMMAND_WORDS, ROOT, commands, environment, fences
from trnconv.cli import application
from trnconv.errors import ShapeError
from trnconv.models import find, models
from trnconv.models.sizes import size_of
from yardstick import limit_s

PROGRAMS = ("benchmarks", "nkisim", "validation")
OURS = re.compile(rf"(trnconv|python -m (trnconv|manual|{'|'.join(PROGRAMS)}))(?= |$)")
TESTS = re.compile(r"(python -m )?pytest(?= |$)")
FILES = re.compile(r"(scripts/|python (?=examples/)|\.ci/)")
SPAN = re.compile(r"(?<!`)`([^`]+)`(?!`)")
BLOCK = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
PAGES = [page for page in ALL if page.name != "CHANGELOG.md"]  # it tells of commands of their day
TIMEOUT_S = 1200
# Pages whose `sh` blocks have commands of ours, and what these need.
NOT_RUN = {
    "docs/integrations/exported-kernels.md": "minutes; test_folder.py runs those of a small one",
    "docs/first-ten-minutes.md": "torch; tests/examples runs it",
    "docs/guides/encode-a-corpus.md": "a cluster with devices",
    "docs/guides/on-a-device.md": "a device, or what a device measured",
    "docs/predictions.md": "a checkout of nki-library, and an hour",
    "docs/reference/accuracy.md": "diffusers and up to ten minutes for a model",
    "docs/validation.md": "ten minutes; tests/validation runs its rows",
}
CLIP_COMMANDS = (["plan"], ["chunk"])  # others take frames apart, or none
STORED = "python -m benchmarks decode --phase decode"  # an hour; test_docs.py has what it stored


def name(page):
    return str(page.relative_to(ROOT))


def sentences(page):
    """Code within the sentences of a page, each on one line."""
    spans = SPAN.findall(BLOCK.sub("", page.read_text()))
    return [" ".join(span.split()) for span in spans]


def shell_lines(page):
    """The lines of `sh` blocks, those that go on joined, without their comments."""
    for fence in fences(page.read_text()):
        if fence.language == "sh":
            joined = "\n".join(fence.lines).replace("\\\n", " ").splitlines()
            yield from (" ".join(line.split(" #")[0].split()) for line in joined)


def mentioned(pattern):
    """Commands of all pages besides those of `console` blocks, and where they stand."""
    return {
        (name(page), text)
        for page in PAGES
        for text in (*sentences(page), *shell_lines(page))
        if pattern.match(text)
    }


@cache
def trnconv_options():
    """The options of each command of `trnconv`, and of the program under an empty name."""
    program = get_command(application())
    own = {"--help", *(option for one in program.params for option in one.opts)}
    found = {"": own | {"--install-completion", "--show-completion"}}
    for command, known in program.commands.items():
        found[command] = {"--help", *(option for one in known.params for option in one.opts)}
    return found


def trnconv_problem(words):
    command = words[0] if words and not words[0].startswith("-") else ""
    if command not in trnconv_options():
        return f"no command {command}"
    unknown = {option for option in words if option.startswith("-")} - trnconv_options()[command]
    return f"no options {sorted(unknown)}" if unknown else ""


def program_problem(program, words, capsys):
    """Of a program with argparse: its help says what it takes."""
    main = importlib.import_module(f"{program}.__main__").main
    command = words[:1] if words and re.fullmatch("[a-z]+(-[a-z]+)*", words[0]) else []
    with pytest.raises(SystemExit) as ended:
        main([*command, "--help"])
    told = capsys.readouterr().out
    if ended.value.code:
        return f"no command {command}"
    known = set(re.findall(r"--?[a-z][\w-]*", told))
    unknown = {option for option in words if re.match("--?[a-z]", option)} - known
    return f"no options {sorted(unknown)}" if unknown else ""


def size_problem(words):
    """Of a command that names a model and a size of whole clips."""
    names = {entry.name for entry in models()} & set(words)
    sizes = [value for option, value in pairwise(words) if option == "--size"]
    if words[:1] not in CLIP_COMMANDS or not names or not sizes:
        return ""
    try:
        size_of(find(names.pop()), sizes[0])
    except ShapeError:
        return f"no size {sizes[0]}"
    return ""


def problem(text, capsys):
    """What is wrong with a command of ours; empty if nothing is."""
    words = shlex.split(text)
    rest = words[1:] if words[0] == "trnconv" else words[3:]
    if wrong := size_problem(rest):
        return wrong
    if words[0] == "trnconv" or words[2] == "trnconv":
        return trnconv_problem(rest)
    if words[2] == "manual":
        return "" if rest in ([], ["--check"], ["pictures"]) else f"no arguments {rest}"
    return program_problem(words[2], rest, capsys)


def test_commands_that_pages_mention_have_options_that_exist(capsys):
    found = mentioned(OURS)
    assert len(found) > 150
    wrong = [(page, text, problem(text, capsys)) for page, text in sorted(found)]
    assert [one for one in wrong if one[2]] == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("trnconv plot wan_96_wide", "no command plot"),
        ("trnconv plan --colour red", "no options ['--colour']"),
        ("python -m nkisim lint --machine x", "no options ['--machine']"),
        ("python -m benchmarks decode --fase x", "no options ['--fase']"),
        ("python -m benchmarks decoder", "no command ['decoder']"),
        ("python -m manual page", "no arguments ['page']"),
        ("python -m benchmarks chunk wan2.1 --size 720x1280", "no size 720x1280"),
    ],
)
def test_a_command_that_nothing_takes_is_noticed(text, words, capsys):
    assert problem(text, capsys) == words


def test_suites_that_pages_mention_exist(pytestconfig):
    markers = {line.split(":")[0] for line in pytestconfig.getini("markers")}
    options = (ROOT / "tests" / "conftest.py").read_text()
    found = mentioned(TESTS)
    assert len(found) > 20
    for page, text in found:
        words = shlex.split(TESTS.sub("", text))
        named = words[words.index("-m") + 1].split() if "-m" in words else []
        assert set(named) - {"and", "or", "not"} <= markers, (page, text)
        for word in words:
            assert not word.startswith("--") or f'"{word}"' in options, (page, text)
            assert not word.startswith("tests/") or (ROOT / word).exists(), (page, text)


def test_scripts_that_pages_mention_exist():
    found = mentioned(FILES)
    assert found
    for page, text in found:
        path = shlex.split(text)[text.startswith("python ")]
        assert (ROOT / path).exists(), (page, text)


def test_pages_with_commands_that_ci_does_not_run_say_what_those_need():
    found = {
        name(page)
        for page in PAGES
        for line in shell_lines(page)
        if OURS.match(line) or TESTS.match(line) or line.startswith(("torchrun", "python examples"))
    }
    assert found == set(NOT_RUN)


def test_every_command_of_trnconv_runs_on_a_page_or_in_the_readme():
    """But for `bringup`, which climbs to a device: tests/trnconv/bringup runs its checks here."""
    blocks = [fence for page in ALL for fence in fences(page.read_text())]
    consoles = [fence for fence in blocks if fence.language == "console"]
    shown = [command.words for fence in consoles for command in commands(fence)]
    run = {words[1] for words in (*shown, *readme_commands()) if words[0] == "trnconv"}
    assert set(trnconv_options()) - {""} - run == {"bringup"}


def readme_commands():
    """The commands of the README's sentences that are whole, as words."""
    texts = [text for text in sentences(ROOT / "README.md") if OURS.match(text)]
    return [shlex.split(text) for text in texts if text not in (STORED, "trnconv bringup")]


@pytest.mark.docs
@pytest.mark.parametrize("words", readme_commands(), ids=" ".join)
def test_the_commands_of_the_readmes_sentences_run(words, tmp_path):
    done = subprocess.run(
        [sys.executable, "-W", "error", *COMMAND_WORDS[words[0]], *words[1:]],
        capture_output=True,
        text=True,
        check=False,
        timeout=limit_s(TIMEOUT_S),
        cwd=tmp_path,
        env=environment(tmp_path),
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout
    for option, value in pairwise(words):
        assert option != "-o" or (tmp_path / value).stat().st_size
