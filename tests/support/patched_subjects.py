"""Subjects of the table of patched models: those of the registry, reduced, and imitations."""

import torch

from imitated_vaes import IMITATIONS
from trnconv.models import find, models
from trnconv.pytorch.model_builder import build, decode, encode, example_latent, example_video

REGISTERED = tuple(entry.name for entry in models())
DIFFUSERS = tuple(entry.name for entry in models() if entry.diffusers_class)
NAMES = (*REGISTERED, *IMITATIONS)


class Subject:
    """A model by name: how it is built, and one encode and one decode of it."""

    def __init__(self, name):
        self.name = name
        self.entry = None if name in IMITATIONS else find(name)
        self.phases = ("encode", "decode") if self.entry is None else self.entry.phases

    def model(self, **options):
        if self.entry is None:
            return IMITATIONS[self.name].model()
        return build(self.entry, reduced=True, **options)

    def given(self, phase, batch=1, size=None, seed=0):
        if self.entry is None:
            values = IMITATIONS[self.name].given(phase, batch)
            return values * (1 + seed / 8)
        size = size or self.entry.tiny
        options = {"seed": seed}
        if phase == "decode":
            make, options = example_latent, {**options, "reduced": True}
        else:
            make = example_video
        one = make(self.entry, size, **options)
        return torch.cat([one * (1 - at / 4) for at in range(batch)])

    def run(self, model, phase, given):
        if self.entry is None:
            return getattr(model, phase)(given)
        return {"encode": encode, "decode": decode}[phase](model, self.entry, given)

    def both(self, model, batch=1, size=None):
        """The results of all phases, without gradients."""
        with torch.no_grad():
            return [self.run(model, phase, self.given(phase, batch, size)) for phase in self.phases]
