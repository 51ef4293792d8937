"""`trnconv doctor`: what there is, what is used and why, and what is missing."""

from __future__ import annotations

from typing import Any

import typer

from trnconv.cli.output import Json, amount, console, print_json
from trnconv.cli.refusals import FAILED


def doctor(json: Json = False) -> None:
    """Show versions, toolchain, devices and caches, and what is missing."""
    from trnconv.cli.environment import surroundings

    found = surroundings()
    found["usable"] = found["check"]["passed"]
    if json:
        print_json(found)
    else:
        _show(found)
    if not found["usable"]:
        raise typer.Exit(FAILED)


def _show(found: dict[str, Any]) -> None:
    screen = console()
    for name, words in [*found["versions"].items(), *_packages(found), *_machine(found)]:
        screen.print(f"{name:<12}{words}", markup=False)
    for line in _host(found["host"], device=bool(found["devices"])):
        screen.print(line, markup=False)
    for name, value in found["environment"].items():
        screen.print(f"{name} is {value}", markup=False)
    screen.print()
    for line in _missing(found):
        screen.print(line, markup=False)
    check = found["check"]
    screen.print(f"{check['what']}: {'right' if check['passed'] else 'WRONG'}")
    if found["usable"]:
        screen.print("Usable.")
    else:
        screen.print("Not usable: the convolution above has to come out right. Install again.")


def _packages(found: dict[str, Any]) -> list[tuple[str, str]]:
    every = [
        *found["packages"],
        *(package for extra in found["extras"] for package in extra["packages"]),
    ]
    return [(package["name"], package["version"] or "not installed") for package in every]


def _machine(found: dict[str, Any]) -> list[tuple[str, str]]:
    from trnconv.ask.cores import cores_in_words

    nki, backend = found["nki"], found["backend"]
    devices = ", ".join(found["devices"]) or "none found"
    lines = [
        ("nki", f"{nki['source']}{', simulated' if nki['simulated'] else ''}"),
        ("devices", f"Neuron: {devices}"),
        ("backend", f"{backend['taken'] or 'none'}: {backend['reason']}"),
    ]
    for cache in found["caches"]:
        aside = f", {cache['set_aside']} set aside" if cache["set_aside"] else ""
        held = f"{cache['entries']} {cache['name']}, {amount(cache['bytes'], 'B')}{aside}"
        lines.append(("cache", f"{held}, in {cache['folder']}"))
    lines += [
        (
            "tuned",
            f"{tuned_file['plans']} plans for {tuned_file['machine']}, in {tuned_file['file']}",
        )
        for tuned_file in found["tuned"]
    ]
    for launch in found["shipped"]:
        made = f"{launch['of_these_sources']} of {launch['files']} files made from these sources"
        where = f"{launch['machine']}, {cores_in_words(launch['cores'])}"
        lines.append(("shipped", f"{launch['plans']} plans for {where}; {made}"))
    return lines


def _host(host: dict[str, Any], *, device: bool) -> list[str]:
    """The machine of this host and its workarounds; without a device, only what was stored."""
    lines = [f"workaround  {words}" for words in host["workarounds"]]
    if host["measured"]:
        lines.append(f"measured    {host['measured']}")
    if host["machine"]:
        lines.insert(0, f"machine     {host['machine']}")
    elif device:
        lines.insert(0, f"machine     REFUSED: {host['refused']}")
    if device:
        lines += [f"run this    {line}" for line in host["exports"]]
    return lines


def _missing(found: dict[str, Any]) -> list[str]:
    lines = [
        f"Missing for {extra['for']}: {', '.join(extra['missing'])}. {extra['install']}"
        for extra in found["extras"]
        if extra["missing"]
    ]
    if found["devices"] and not found["nki"]["simulated"]:
        lines.append("A device and its toolchain: climb the ladder with `trnconv bringup`.")
    if not found["devices"]:
        lines.append("No Neuron device: kernels run in nkisim, times are modelled.")
    return lines
