"""Pages of the documentation as programs.

A page is one program, run from top to bottom in a folder of its own:

```python              runs; a ```text block after it is its exact output
```python title="f.py" is written to f.py instead, to be imported or linted further down
```console             `$ trnconv ...` and `$ python -m ...` run; the lines below are the output
```py                  a fragment: only its imports are run
any other              is not code of ours (sh: installing, devices, clusters)

In what is shown, `...` stands for anything within a line, and a line of `...` for any lines: times
on this computer, versions, and what is too long to show. A command must succeed, unless
`$ echo $?` follows it. A comment `<!-- needs: diffusers -->` names the marker of what a page needs.
"""

import os
import re
import shlex
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from yardstick import limit_s

ROOT = Path(__file__).parents[2]
ALL = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
END_OF_BLOCK = "\x1e"
HEARTBEAT = re.compile(rf"[^\n{END_OF_BLOCK}]+, \d+ s so far.*\n")  # of a slow computer
NEEDS = re.compile(r"^<!-- needs: (\w+) -->$", re.MULTILINE)
TORCHRUN = ("-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone")
COMMAND_WORDS = {"trnconv": ("-m", "trnconv"), "python": ()}
TIMEOUT_S = 400


class Block(NamedTuple):
    first_line: int  # of the content, counted from 1
    lines: list[str]
    printed: str | None  # the text block right after it


class Fence(NamedTuple):
    language: str
    title: str | None
    first_line: int
    lines: list[str]


class Command(NamedTuple):
    line: int
    words: list[str]
    shown: str
    may_fail: bool


def fences(page):
    """Every fenced block of a page's text."""
    info, first, lines = None, 0, []
    for number, line in enumerate(page.splitlines(), start=1):
        if info is None:
            if line.startswith("```"):
                info, first, lines = line[3:], number + 1, []
        elif line == "```":
            title = re.search(r'title="([^"]+)"', info)
            yield Fence(info.split(" ")[0], title and title[1], first, lines)
            info = None
        else:
            lines.append(line)


def python_blocks(page):
    """The blocks that run, each with the text block right after it."""
    found = [*fences(page), Fence("", None, 0, [])]
    for fence, after in pairwise(found):
        if fence.language == "python" and fence.title is None:
            printed = "\n".join(after.lines) if after.language == "text" else None
            yield Block(fence.first_line, fence.lines, printed)


def commands(fence):
    """The commands of a console block, each with the output that the page shows."""
    found, number, lines = [], fence.first_line, list(fence.lines)
    while lines:
        line, at = lines.pop(0), number
        number += 1
        while line.endswith("\\") and line.startswith("$ "):
            line, number = line[:-1] + lines.pop(0).strip(), number + 1
        if not line.startswith("$ "):
            found[-1].shown.append(line)
        else:
            found.append(_Shown(at, line[2:], []))
    asked = [*(one.text for one in found[1:]), ""]
    for one, after in zip(found, asked, strict=True):
        shown = "\n".join(one.shown).rstrip()
        yield Command(one.line, shlex.split(one.text), shown, after == "echo $?")


class _Shown(NamedTuple):
    line: int
    text: str
    shown: list[str]


def program(page):
    """(script, outputs): every line of code has the line number it has on the page.

    An output is None where the page shows none.
    """
    script, outputs = [], []
    blocks = {block.first_line: block for block in python_blocks(page)}
    for fence in fences(page):
        if fence.title is not None:
            _at(script, fence.first_line, [_written(fence)])
        elif fence.first_line in blocks:
            block = blocks[fence.first_line]
            _at(script, block.first_line, [*block.lines, _end()])
            outputs.append(block.printed)
        elif fence.language == "console":
            for command in commands(fence):
                _at(script, command.line, [_called(command) + "; " + _end()])
                outputs.append(command.shown)
    return "\n".join(script) + "\n", outputs


def _at(script, line, lines):
    script += [""] * (line - 1 - len(script))
    script += lines


def _end():
    return f"print(end={END_OF_BLOCK!r}, flush=True)"


def _written(fence):
    text = "\n".join(fence.lines) + "\n"
    return f"__import__('pathlib').Path({fence.title!r}).write_text({text!r})"


def _called(command):
    if command.words == ["echo", "$?"]:
        return "print(_code)"
    if command.words[0] not in COMMAND_WORDS:
        raise ValueError(f"line {command.line}: {command.words[0]} is not a command of ours")
    words = [*COMMAND_WORDS[command.words[0]], *command.words[1:]]
    return (
        "import subprocess, sys; _ran = subprocess.run([sys.executable, '-W', 'error',"
        f" *{words!r}], stdout=-1, stderr=-2, text=True); _code = _ran.returncode;"
        f" assert {command.may_fail} or not _code, _ran.stdout;"
        " print(_ran.stdout, end='')"
    )


def environment(folder, paths=(ROOT / "src", ROOT)):
    """What commands of pages see: a cache of their own, a terminal without colours."""
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, paths)),
        "COLUMNS": "100",
        "NO_COLOR": "1",
        "TERM": "dumb",
        "XDG_CACHE_HOME": str(folder / "cache"),
        "GLOO_SOCKET_IFNAME": "lo",
    }


def run(page, folder, launcher=(), python=sys.executable, paths=(ROOT / "src", ROOT)):
    """What each block of a page's text printed, run in a folder, by a Python with these paths."""
    script = folder / "page.py"
    script.write_text(program(page)[0])
    ran = subprocess.run(
        [python, *(launcher or ("-W", "error")), str(script)],
        capture_output=True,
        text=True,
        check=False,
        timeout=limit_s(TIMEOUT_S),
        cwd=folder,
        env=environment(folder, paths),
    )
    assert ran.returncode == 0, ran.stderr
    return HEARTBEAT.sub("", ran.stdout).split(END_OF_BLOCK)


def agrees(shown, printed):
    """Whether a page shows what was printed, `...` standing for anything."""
    pattern = ""
    for line in shown.splitlines():
        if line.strip() == "...":
            pattern += r"(?:.*\n)*?"
        else:
            pattern += "[^\n]*".join(map(re.escape, line.rstrip().split("..."))) + r"[ ]*\n"
    lines = "".join(line.rstrip() + "\n" for line in printed.rstrip().splitlines())
    return re.fullmatch(pattern, lines) is not None
