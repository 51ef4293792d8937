"""Bad command lines: each ends in words on stderr and exit code 2, and none in a traceback."""

import pytest

from trnconv.cli.refusals import print_refusal
from trnconv.errors import TrnconvError

pytestmark = pytest.mark.cli

SMALL = "--channels 16:24 --kernel 3x3 --size 12x20 --padding 1"
CAPACITY = "capacity --clips 1e6 --seconds 5 --size 720x1280"
ENCODE = "encode videos --out x --model wan2.1 --size 64x64 --frames 9"
# A command line, and words that say what is wrong with it. `FILE` is a plain file, `FOLDER` one
# without it, `NOWHERE` a path below a file, which can never be made.
BAD = {
    "plan": "a layer without --channels",
    "plan no_such_layer": "no_such_layer",
    "plan wan_96_wid": "wan_96_wide",
    "plan wan_96_wide --channels 3": "a named layer has its own shape",
    "plan --channels 96 --kernel 3": "a layer without --size",
    "plan --channels 96:96 --kernel 3x3x3 --size 6x6": "axes",
    "plan --channels x --kernel 3 --size 9": "--channels x",
    "plan --channels 96:96 --kernel 3x3x3x3 --size 6x6x6x6": "1 to 3 numbers",
    "plan --channels 0:4 --kernel 3 --size 9": "0",
    "plan --channels 4:4 --kernel 0 --size 9": "0",
    "plan --channels 4:4 --kernel 3 --size 0": "0",
    "plan --channels 4:4 --kernel 9 --size 3": "9",
    f"plan {SMALL} --stride 0": "stride",
    f"plan {SMALL} --dilation 0": "dilation",
    f"plan {SMALL} --groups 0": "--groups 0",
    f"plan {SMALL} --groups 7": "--groups 7",
    f"plan {SMALL} --batch 0": "batch",
    f"plan {SMALL} --batch many": "integer",
    f"plan {SMALL} --dtype float64": "--dtype float64",
    f"plan {SMALL} --padding-mode mirror": "mirror",
    f"plan {SMALL} --padding=-1": "--padding -1",
    f"plan {SMALL} --machine trn9": "trn9",
    f"plan {SMALL} --machine FILE": "FILE",
    f"plan {SMALL} --accuracy best": "best",
    f"plan {SMALL} --cores 0": "0 cores",
    f"plan {SMALL} --cores 8": "8 cores",
    f"plan {SMALL} --tuned FILE": "FILE",
    f"plan {SMALL} --tuned FOLDER": "FOLDER",
    f"plan {SMALL} --csv": "--csv with one layer",
    f"plan {SMALL} --phase decode": "models have phases",
    f"plan {SMALL} --jobs 0": "jobs",
    "plan --model Wan2.1": "Did you mean wan2.1?",
    "plan --model wan21": "Did you mean wan2.1?",
    "plan --model wan2.1 --size 720x1280": "720x1280x81",
    "plan --model wan2.1 --size 720x1280x80": "4n+1",
    "plan --model wan2.1 --size 721x1280x81": "multiple",
    "plan --model wan2.1 --phase train": "encode and decode",
    "plan --model wan2.1 --top 0": "top",
    "plan --model wan2.1 --json --csv": "--json and --csv",
    "plan --model wan2.1 --batch 0": "--batch 0",
    "plan --model wan2.1 --dtype int8": "--dtype int8",
    "plan --module a:B": "--input is missing",
    "plan --module a:B --input 1x2": "--input 1x2",
    "plan --module a:B --input 1x3x8x8 --model wan2.1": "a module and --model",
    "plan --diffusers FOLDER --config FILE --input 1x3x8x8": "the folder contains",
    "plan --config FILE": "need --module or --diffusers",
    "compare wan2.1,colour=red wan2.1": "is no choice",
    "compare FILE wan2.1": "cannot be read as JSON",
    "compare wan2.1 Wan2.2": "Did you mean",
    "compare wan2.1 wan2.1,cores=two": "cores=two",
    "compare wan2.1 wan2.1,machine=trn9": "trn9",
    "compare wan2.1 wan2.1,size=720x1280x80": "4n+1",
    "explain --model wan2.1": "model",
    f"trace {SMALL} --svg NOWHERE/lanes.svg": "it cannot be written",
    f"trace {SMALL} --perfetto NOWHERE/t.json": "it cannot be written",
    f"trace {SMALL} --svg FOLDER": "it cannot be written",
    f"trace {SMALL} --reading hopeful": "hopeful",
    f"trace {SMALL} --core 2": "--core 2",
    f"report {SMALL} -o NOWHERE/page.html": "it cannot be written",
    "report --model sdxl -o FOLDER": "it cannot be written",
    f"tune {SMALL} -o NOWHERE/plans.json": "it cannot be written",
    f"tune {SMALL} -o FILE": "FILE",
    f"tune {SMALL}": "out",
    f"verify {SMALL} --transposed": "plain convolutions",
    f"verify {SMALL} --seed=-1": "seed",
    "bench no_such_layer": "no_such_layer",
    "bench wan_96_wide --model wan2.1": "give layers or models, not both",
    f"{CAPACITY} --clips inf": "clips of inf",
    f"{CAPACITY} --clips nan": "clips of nan",
    f"{CAPACITY} --days 0": "days of 0",
    f"{CAPACITY} --reached 2": "a share, at most 1",
    f"{CAPACITY} --model Wan2.1": "Did you mean wan2.1?",
    ENCODE: "encode without weights",
    f"{ENCODE} --random-weights --frames 8": "4n+1",
    "bringup --on mars": "--on mars",
    "models --csv --json": "--json and --csv",
    "planet": "planet",
    "--colour": "colour",
}
WITHIN = {"FILE": "file.txt", "FOLDER": "folder", "NOWHERE": "file.txt/below"}


def test_there_are_at_least_fifty():
    assert len(BAD) >= 50


@pytest.mark.parametrize(("line", "words"), BAD.items(), ids=list(BAD))
def test_bad_command_lines_are_refused_in_words(run, tmp_path, monkeypatch, line, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file.txt").write_text("neither plans nor constants")
    (tmp_path / "folder").mkdir()
    for placeholder, path in WITHIN.items():
        line, words = (text.replace(placeholder, path) for text in (line, words))
    ran = run(*line.split())
    assert ran.code == 2, ran
    assert ran.out == ""
    assert words in " ".join(ran.err.replace("│", " ").split())
    assert "Traceback" not in ran.err
    kept = sorted(path.name for path in tmp_path.iterdir())
    assert [name for name in kept if name != "cache"] == ["file.txt", "folder"]
    assert (tmp_path / "file.txt").read_text() == "neither plans nor constants"


def test_names_in_a_refusal_do_not_reach_the_terminal_as_they_are(capsys):
    """A file may be called so that it renames the window, or writes over what was printed."""
    print_refusal(TrnconvError("x\x1b]0;PWNED\x07\x1b[2J\rb\u202e.mp4\nsecond \udcff line"))
    shown = capsys.readouterr().err
    assert shown == ("trnconv: x\\x1b]0;PWNED\\x07\\x1b[2J\\rb\\u202e.mp4\nsecond \\udcff line\n")
