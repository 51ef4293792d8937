"""How long would this take on a NeuronCore, and what bounds it. Trace in, Timeline out."""

from nkisim.timing.schedule import schedule, schedule_launch
from nkisim.timing.timeline import Elision, Events, Timeline

__all__ = ["Elision", "Events", "Timeline", "schedule", "schedule_launch"]
