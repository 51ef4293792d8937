"""All rules by their identifier."""

from collections.abc import Mapping
from types import MappingProxyType

from nkisim.lint.program_rules import PROGRAM_RULES
from nkisim.lint.rule import Rule
from nkisim.lint.syntax_rules import SYNTAX_RULES

_BY_IDENTIFIER = MappingProxyType(
    {rule.identifier: rule for rule in (*SYNTAX_RULES, *PROGRAM_RULES)}
)


def rules() -> Mapping[str, Rule]:
    """Every rule by its identifier: level, description, remedy and evidence."""
    return _BY_IDENTIFIER
