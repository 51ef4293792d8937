"""What a shell offers when Tab is pressed: names from the tables, without loading torch."""

from __future__ import annotations

from collections.abc import Iterator

Offer = tuple[str, str]  # a word, and what it means


def model_names(incomplete: str) -> Iterator[Offer]:
    """Models of the registry."""
    from trnconv.models import models

    return ((model.name, model.title) for model in models() if model.name.startswith(incomplete))


def case_names(incomplete: str) -> Iterator[Offer]:
    """Named layers."""
    from trnconv.cases import BENCHMARK

    return ((case.name, case.note) for case in BENCHMARK if case.name.startswith(incomplete))


def machine_names(incomplete: str) -> Iterator[Offer]:
    """Machines of nkisim."""
    from nkisim.machine import MACHINES

    return ((name, "") for name in MACHINES if name.startswith(incomplete))


def phase_names(incomplete: str) -> Iterator[Offer]:
    """What a model does."""
    offers = (("decode", "latents to video"), ("encode", "video to latents"))
    return (offer for offer in offers if offer[0].startswith(incomplete))


def accuracy_names(incomplete: str) -> Iterator[Offer]:
    """Policies that every dtype has."""
    offers = (
        ("direct", "no fast algorithm"),
        ("bf16", "fast algorithms with the error of a bf16 convolution"),
        ("fast", "fast algorithms with 1.2 times that error"),
        ("fastest", "fast algorithms with 1.4 times that error"),
    )
    return (offer for offer in offers if offer[0].startswith(incomplete))
