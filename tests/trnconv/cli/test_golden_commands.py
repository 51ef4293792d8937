"""What commands print, as reviewed text: help, tables and JSON."""

import json
from pathlib import Path

import pytest
import typer

from trnconv.cli import app

VERBS = sorted(command.callback.__name__ for command in app.registered_commands)
LAYER = ("--channels", "96:96", "--kernel", "3x3x3", "--size", "6x30x52", "--padding", "0x1x1")
MODEL = ("--model", "sdxl", "--accuracy", "direct", "--no-cache")
WRITTEN_WITH = Path(__file__).parents[2] / "golden" / "typer_version.txt"


@pytest.fixture
def help_golden(request, golden):
    """Help is laid out by Typer: other releases lay it out otherwise."""
    if request.config.getoption("--rewrite-golden"):
        WRITTEN_WITH.write_text(f"{typer.__version__}\n", encoding="utf-8")
    wanted = WRITTEN_WITH.read_text(encoding="utf-8").strip()
    if typer.__version__ != wanted:
        pytest.skip(f"typer {typer.__version__}: the reviewed help is that of {wanted}")
    return golden


def without_margins(text):
    return "\n".join(line.rstrip() for line in text.splitlines()).strip() + "\n"


def rounded(value):
    """Numbers to nine digits: what is beyond may differ between platforms."""
    if isinstance(value, dict):
        return {name: rounded(one) for name, one in value.items()}
    if isinstance(value, list):
        return [rounded(one) for one in value]
    return float(f"{value:.9g}") if isinstance(value, float) else value


@pytest.mark.parametrize("verb", ["", *VERBS])
def test_help(run, help_golden, verb):
    ran = run(*([verb] if verb else []), "--help")
    assert ran.code == 0
    help_golden(f"help_{verb or 'trnconv'}.txt", without_margins(ran.out))


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("models", ("models",)),
        ("plan_layer", ("plan", *LAYER, "--no-cache")),
        ("plan_named_layer", ("plan", "wan_from_latent", "--no-cache")),
        pytest.param("plan_model", ("plan", *MODEL, "--top", "5"), marks=pytest.mark.slow),
        ("plan_layer_one_core", ("plan", *LAYER, "--cores", "1", "--no-cache")),
        ("explain_layer", ("explain", *LAYER)),
        ("explain_layer_one_core", ("explain", *LAYER, "--cores", "1")),
    ],
)
def test_tables(run, golden, name, arguments):
    ran = run(*arguments)
    assert (ran.code, ran.err) == (0, "")
    golden(f"{name}.txt", without_margins(ran.out))


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("models", ("models",)),
        ("plan_layer", ("plan", *LAYER, "--no-cache")),
        ("plan_model", ("plan", *MODEL, "--top", "3")),
        ("plan_layer_one_core", ("plan", *LAYER, "--cores", "1", "--no-cache")),
        ("explain_layer", ("explain", *LAYER)),
    ],
)
def test_json(run, golden, name, arguments):
    ran = run(*arguments, "--json")
    assert (ran.code, ran.err) == (0, "")
    golden(f"{name}.json", json.dumps(rounded(json.loads(ran.out)), indent=1) + "\n")
