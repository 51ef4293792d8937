"""Call: one use of an instruction, which its rules judge."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from nkisim.errors import refuse

if TYPE_CHECKING:
    from nkisim.device_rules.rule import DeviceRule
    from nkisim.device_rules.rule_monitor import RuleMonitor
    from nkisim.enums import engine
    from nkisim.machine import Machine
    from nkisim.tensors.tensor import NkiTensor


@dataclass(frozen=True)
class Call:
    """One use of an instruction, as its rules see it. Tensors that were not passed are absent."""

    instruction: str
    engine: engine
    machine: Machine
    tensors: dict[str, NkiTensor]
    facts: dict[str, Any]
    monitor: RuleMonitor

    def __getitem__(self, name: str) -> NkiTensor:
        return self.tensors[name]

    def __contains__(self, name: str) -> bool:
        return name in self.tensors

    def refuse(self, what: str, limit: str, remedy: str) -> NoReturn:
        """Refuse the call in the name of its instruction."""
        refuse(self.instruction, what, limit, remedy)

    def breaks(self, rule: DeviceRule, what: str) -> None:
        """The call breaks a device rule: refused, warned about, or noted."""
        self.monitor.broken(rule, what, self.instruction)


Rule = Callable[[Call], None]
