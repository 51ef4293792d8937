"""The report's order, counts and printed form, the rules as data, and the command line."""

import dataclasses

import pytest

from nkisim.lint import Finding, Report, rules
from nkisim.lint.__main__ import main
from parser_lint import lint_source

SOURCE = """
def kernel(n):
    if n is None:
        return {1, 2}
    return any(n)
"""


def test_a_report_prints_one_line_a_finding_and_the_counts():
    assert str(lint_source(SOURCE, filename="k.py")).splitlines() == [
        "k.py:3:8: warning X05 `is None` (do: write `== None`)",
        "k.py:4:16: error X10 a set (do: use a list or a tuple)",
        "k.py:5:12: error B01 the builtin `any` (do: loop and set a flag)",
        "2 errors, 1 warning for NKI 0.6",
    ]


def test_a_report_of_nothing_is_ok():
    report = lint_source("def kernel(n):\n    return n\n")
    assert report.ok
    assert str(report) == "0 errors, 0 warnings for NKI 0.6"


def test_warnings_alone_are_ok():
    report = lint_source("def kernel(n):\n    return n is None\n")
    assert report.ok
    assert len(report.warnings) == 1
    assert report.errors == ()


def test_findings_are_sorted_and_kept_once():
    first = Finding("a.py", 2, 1, "X05", "warning", "f", "message", "remedy")
    second = dataclasses.replace(first, line=10)
    assert Report.of([second, first, second]).findings == (first, second)


def test_records_are_frozen():
    report = lint_source(SOURCE)
    with pytest.raises(dataclasses.FrozenInstanceError):
        report.findings = ()
    with pytest.raises(dataclasses.FrozenInstanceError):
        report.findings[0].line = 1


def test_rules_are_complete_data():
    for identifier, rule in rules().items():
        assert rule.identifier == identifier
        assert rule.level in {"error", "warning"}
        assert rule.description
        assert rule.remedy
        assert rule.evidence


def test_the_command_line_tells_errors_by_its_exit_code(tmp_path, capsys):
    bad, good = tmp_path / "bad.py", tmp_path / "good.py"
    bad.write_text(SOURCE)
    good.write_text("def kernel(n):\n    return n is None\ndef other(n):\n    return n\n")
    older = ["--nki", "0.6"]
    assert main([str(good), *older]) == 0
    assert capsys.readouterr().out.endswith("0 errors, 1 warning for NKI 0.6\n")
    assert main([str(good), str(bad), *older]) == 1
    assert capsys.readouterr().out.endswith("2 errors, 2 warnings for NKI 0.6\n")
    assert main([str(good), "--entry", "other", *older]) == 0
    assert capsys.readouterr().out == "1 kernel in 1 file: 0 errors, 0 warnings for NKI 0.6\n"
    assert main([f"{bad}:kernel", *older]) == 1
    assert "1 kernel in 1 file: 2 errors, 1 warning for NKI 0.6\n" in capsys.readouterr().out
    assert main([f"{bad}:kernel"]) == 0
    assert capsys.readouterr().out == "1 kernel in 1 file: 0 errors, 0 warnings for NKI 0.7\n"


JITTED = "import nki\n\n\n@nki.jit\ndef kernel(n):\n    return n\n"


def test_the_command_line_takes_folders_and_counts_kernels(tmp_path, capsys):
    inner = tmp_path / "inner"
    inner.mkdir()
    (tmp_path / "one.py").write_text(JITTED)
    (inner / "two.py").write_text(JITTED + JITTED.replace("kernel", "other"))
    (inner / "helpers.py").write_text("def helper(n):\n    return {1, n}\n")
    assert main([str(tmp_path)]) == 0
    assert capsys.readouterr().out == "3 kernels in 2 files: 0 errors, 0 warnings for NKI 0.7\n"


def test_the_command_line_says_when_there_are_no_kernels(tmp_path, capsys):
    helpers, values = tmp_path / "helpers.py", tmp_path / "values.py"
    helpers.write_text("def helper(n):\n    return {1, n}\n")
    values.write_text("SIDE = 128\n")
    assert main([str(tmp_path)]) == 2
    assert capsys.readouterr().out == "no kernels here: nothing under nki.jit in 2 files\n"
    assert main([str(values)]) == 2
    assert "no kernels here" in capsys.readouterr().out
    assert (
        main([str(helpers), "--nki", "0.6"]) == 1
    )  # named: its functions are checked all the same
    assert "helpers.py: no kernels here, nothing under nki.jit; checked 1 function\n" in (
        capsys.readouterr().out
    )


def test_the_command_line_says_what_it_cannot_read(tmp_path, capsys):
    broken = tmp_path / "broken.py"
    broken.write_text("def kernel(:\n")
    assert main([str(broken)]) == 2
    assert "broken.py" in capsys.readouterr().err
    assert main([str(tmp_path / "absent.py")]) == 2
    assert "absent.py" in capsys.readouterr().err
