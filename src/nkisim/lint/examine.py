"""Follows a kernel through everything it reaches and turns breaches into findings."""

import ast
from collections.abc import Iterable, Iterator
from typing import TypeAlias

from nkisim.lint.analysis.definition import Definition, Role
from nkisim.lint.checks import Breach
from nkisim.lint.checks.cache_key import key_breaches
from nkisim.lint.front_ends import DEFAULT, Version, level_for
from nkisim.lint.report import Finding, Report
from nkisim.lint.review import Reach, Review, review
from nkisim.lint.rulebook import rules

_Key: TypeAlias = tuple[str, int, str]
_Reviews: TypeAlias = dict[tuple[_Key, Role], tuple[Definition, Review]]


def examine(entries: Iterable[Definition], version: Version = DEFAULT) -> Report:
    """Check the entries and all they reach, each definition once for each role."""
    entries = list(entries)
    reviews: _Reviews = {}
    waiting = [Reach(entry) for entry in entries]
    while waiting:
        reach = waiting.pop()
        key = (reach.definition.key, reach.role)
        if key not in reviews:
            result = review(reach)
            reviews[key] = (reach.definition, result)
            waiting.extend(result.reached)
    findings = [*_findings(reviews, version), *_key_findings(entries, version)]
    return Report.of(findings, version)


def _key_findings(entries: Iterable[Definition], version: Version) -> Iterator[Finding]:
    """What is wrong with the cache key of a kernel's arguments."""
    for entry in entries:
        for breach, definition in key_breaches(entry):
            yield from _finding(breach, definition, version)


def _findings(reviews: _Reviews, version: Version) -> Iterator[Finding]:
    looping = _definitions_that_loop(reviews)
    for definition, result in reviews.values():
        for breach in (*result.breaches, *_hidden_loops(result, looping)):
            yield from _finding(breach, definition, version)


def _finding(breach: Breach, definition: Definition, version: Version) -> Iterator[Finding]:
    """The breach as a finding, if it is one in this version."""
    rule = rules()[breach.rule]
    level = level_for(rule.identifier, rule.level, version)
    if level is None or (version != "0.6" and not breach.traced):
        return
    yield Finding(
        file=definition.file,
        line=getattr(breach.node, "lineno", definition.node.lineno),
        column=getattr(breach.node, "col_offset", definition.node.col_offset) + 1,
        rule=rule.identifier,
        level=level,
        function=definition.name,
        message=breach.message,
        remedy=breach.remedy or rule.remedy,
    )


def _definitions_that_loop(reviews: _Reviews) -> set[_Key]:
    """The definitions that start a device loop themselves or through what they use."""
    uses: dict[_Key, set[_Key]] = {}
    looping: set[_Key] = set()
    for (key, _), (_, result) in reviews.items():
        uses.setdefault(key, set()).update(reach.definition.key for reach in result.reached)
        if result.device_loops:
            looping.add(key)
    while more := {key for key, used in uses.items() if key not in looping and used & looping}:
        looping |= more
    return looping


def _hidden_loops(result: Review, looping: set[_Key]) -> Iterator[Breach]:
    for use, definition in result.ordered_uses:
        if definition.key in looping:
            text = ast.unparse(use)
            yield Breach("L05", use, f"`{text}` runs a device loop inside `nl.no_reorder()`")
