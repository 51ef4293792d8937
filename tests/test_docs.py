"""The code in the documentation runs, and prints what the page says it prints (doc_pages.py)."""

import ast
import json
import subprocess
import sys

import pytest

import doc_pages
from doc_pages import ALL, NEEDS, ROOT, TORCHRUN, agrees, fences, program, python_blocks, run

RUN_HERE = {"python", "console"}
# sh: what needs a network, a device or a cluster; layers: read by test_imports.py.
NOT_OURS = {"text", "sh", "toml", "json", "layers", "dockerfile"}


def name(page):
    return str(page.relative_to(ROOT))


def needs(page):
    """The marker of what a page needs, or None for the base dependencies."""
    found = NEEDS.search(page.read_text())
    return found and found[1]


def cases(languages):
    """Pages with such code, each with the marker of what it needs."""
    for page in ALL:
        if any(fence.language in languages for fence in fences(page.read_text())):
            need = needs(page) or ("torch" if languages == {"py"} else None)
            marks = [getattr(pytest.mark, need)] if need else []
            yield pytest.param(page, marks=marks, id=name(page))


@pytest.mark.docs
@pytest.mark.parametrize("page", list(cases(RUN_HERE)))
def test_the_code_of_a_page_runs_and_prints_what_the_page_shows(page, tmp_path):
    text = page.read_text()
    _, shown = program(text)
    printed = run(text, tmp_path, TORCHRUN if needs(page) == "distributed" else ())
    if needs(page) == "distributed":  # ranks share the output, and any of them may end a block
        shown, printed = ["\n".join(filter(None, shown))], ["".join(printed)]
    assert len(printed) >= len(shown)
    for expected, output in zip(shown, printed, strict=False):
        assert expected is None or agrees(expected, output), (
            f"shown:\n{expected}\nprinted:\n{output}"
        )


@pytest.mark.docs
@pytest.mark.parametrize("page", list(cases({"py"})))
def test_what_a_fragment_imports_is_there(page):
    fragments = [fence for fence in fences(page.read_text()) if fence.language == "py"]
    nodes = [node for fence in fragments for node in ast.walk(ast.parse("\n".join(fence.lines)))]
    imports = [
        ast.unparse(node) for node in nodes if isinstance(node, (ast.Import, ast.ImportFrom))
    ]
    subprocess.run([sys.executable, "-c", "\n".join(imports)], check=True, cwd=ROOT / "src")


def test_every_block_says_what_it_is():
    known = RUN_HERE | NOT_OURS | {"py"}
    unknown = [
        f"{name(page)}, line {fence.first_line - 1}: {fence.language!r}"
        for page in ALL
        for fence in fences(page.read_text())
        if fence.language not in known
    ]
    assert unknown == []


def test_commands_with_output_are_run():
    asked = [
        f"{name(page)}, line {fence.first_line}"
        for page in ALL
        for fence in fences(page.read_text())
        if fence.language != "console" and any(line.startswith("$ ") for line in fence.lines)
    ]
    assert asked == []


def test_the_readme_has_code_and_shows_its_output():
    blocks = list(python_blocks((ROOT / "README.md").read_text()))
    assert any(block.printed for block in blocks)


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150


TITLES = {
    "wan2.1": "Wan 2.1,",
    "wan2.2-5b": "Wan 2.2 5B,",
    "hunyuanvideo": "HunyuanVideo,",
    "cogvideox": "CogVideoX,",
    "ltx-video-0.9.7": "LTX-Video 0.9.7,",
}


def test_the_readmes_decodes_are_those_of_the_benchmark():
    lines = (ROOT / "README.md").read_text().splitlines()
    stored = json.loads((ROOT / "benchmarks" / "decode.json").read_text())["runs"]
    runs = {run["model"]: run for run in stored if run["phase"] == "decode"}
    for model, title in TITLES.items():
        [line] = [line for line in lines if line.startswith(f"| {title}")]
        own, rest, whole, baseline, ratio = map(float, line.strip("| ").split("|")[1:])
        run = runs[model]
        exact = run["convolutions_s"] + run["rest_s"]
        for shown, value in (
            (own, run["convolutions_s"]),
            (rest, run["rest_s"]),
            (whole, exact),
            (baseline, run["baseline_s"]),
            (ratio, exact / run["baseline_s"]),
        ):
            assert abs(shown - value) <= max(0.005, 0.005 * value) + 1e-9, (model, shown, value)


PAGE = """a
```python
x = 1
print(x)
```
b
```text
1
```
```python title="one.py"
TWO = 2
```
```python
from one import TWO
print(TWO)
```
```console
$ python -c "import one; print(one.TWO); print(9)"
2
...
$ python -c "raise SystemExit(3)"
$ echo $?
3
```
"""


def test_blocks_files_and_commands_run_in_order(tmp_path):
    _, shown = program(PAGE)
    assert shown == ["1", None, "2\n...", "", "3"]
    assert run(PAGE, tmp_path) == ["1\n", "2\n", "2\n9\n", "", "3\n", ""]


def test_code_keeps_its_line_numbers():
    script, _ = program(PAGE)
    lines = script.splitlines()
    assert lines[2:4] == ["x = 1", "print(x)"]
    assert lines[PAGE.splitlines().index("from one import TWO")] == "from one import TWO"


def test_a_command_that_fails_is_noticed(tmp_path):
    with pytest.raises(AssertionError):
        run('```console\n$ python -c "raise SystemExit(3)"\n```\n', tmp_path)


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        ("a\nb", "a\nb\n", True),
        ("a\nb", "a\nc\n", False),
        ("a", "a\nb\n", False),
        ("took ... s", "took 1.5 s", True),
        ("took ... s", "took 1.5\nmany s", False),
        ("a\n...\nz", "a\nb\nc\nz", True),
        ("a\n...\nz", "a\nb\nc", False),
        ("f(...)", "f(...)", True),
    ],
)
def test_what_a_page_may_leave_out(shown, printed, same):
    assert agrees(shown, printed) is same


def test_a_program_that_is_not_ours_is_refused():
    with pytest.raises(ValueError, match="line 2: rm is not a command of ours"):
        doc_pages.program("```console\n$ rm x\n```\n")


def test_how_far_long_work_is_depends_on_the_computer_and_is_left_out(tmp_path):
    beats = "planning wan2.1: prices, 44 of 48, 10 s so far, about 1 s more\n" * 2
    block = f"```python\nprint({beats + 'planned'!r})\n```\n\n```text\nplanned\n```\n"
    assert run(2 * block, tmp_path)[:2] == ["planned\n", "planned\n"]
