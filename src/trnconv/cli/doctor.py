"""`trnconv doctor`: what there is, what is used and why, and what is missing."""

from __future__ import annotations

from typing import Any

import typer

from trnconv.cli.output import Json, amount, console, print_json
from trnconv.cli.refusals import FAILED


def doctor(json: Json = False) -> None:
    """Show versions, toolchain, devices and caches, and what is missing."""
    from trnconv.cli.environment import surroundings

    answer = surroundings()
    answer["usable"] = answer["check"]["passed"]
    if json:
        print_json(answer)
    else:
        _show(answer)
    if not answer["usable"]:
        raise typer.Exit(FAILED)


def _show(surroundings: dict[str, Any]) -> None:
    screen = console()
    for name, words in [
        *surroundings["versions"].items(),
        *_packages(surroundings),
        *_machine(surroundings),
    ]:
        screen.print(f"{name:<12}{words}", markup=False)
    for line in _host(surroundings["host"], device=bool(surroundings["devices"])):
        screen.print(line, markup=False)
    for name, value in surroundings["environment"].items():
        screen.print(f"{name} is {value}", markup=False)
    screen.print()
    for line in _missing(surroundings):
        screen.print(line, markup=False)
    check = surroundings["check"]
    screen.print(f"{check['what']}: {'right' if check['passed'] else 'WRONG'}")
    if surroundings["usable"]:
        screen.print("Usable.")
    else:
        screen.print("Not usable: the convolution above has to come out right. Install again.")


def _packages(surroundings: dict[str, Any]) -> list[tuple[str, str]]:
    every = [
        *surroundings["packages"],
        *(package for extra in surroundings["extras"] for package in extra["packages"]),
    ]
    return [(package["name"], package["version"] or "not installed") for package in every]


def _machine(surroundings: dict[str, Any]) -> list[tuple[str, str]]:
    from trnconv.problem.cores import describe_cores

    nki, backend = surroundings["nki"], surroundings["backend"]
    devices = ", ".join(surroundings["devices"]) or "none found"
    lines = [
        ("nki", f"{nki['source']}{', simulated' if nki['simulated'] else ''}"),
        ("devices", f"Neuron: {devices}"),
        ("backend", f"{backend['taken'] or 'none'}: {backend['reason']}"),
    ]
    for cache in surroundings["caches"]:
        aside = f", {cache['set_aside']} set aside" if cache["set_aside"] else ""
        held = f"{cache['entries']} {cache['name']}, {amount(cache['bytes'], 'B')}{aside}"
        lines.append(("cache", f"{held}, in {cache['folder']}"))
    lines += [
        (
            "tuned",
            f"{tuned_file['plans']} plans for {tuned_file['machine']}, in {tuned_file['file']}",
        )
        for tuned_file in surroundings["tuned"]
    ]
    for launch in surroundings["shipped"]:
        made = f"{launch['of_these_sources']} of {launch['files']} files made from these sources"
        where = f"{launch['machine']}, {describe_cores(launch['cores'])}"
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


def _missing(surroundings: dict[str, Any]) -> list[str]:
    lines = [
        f"Missing for {extra['for']}: {', '.join(extra['missing'])}. {extra['install']}"
        for extra in surroundings["extras"]
        if extra["missing"]
    ]
    if surroundings["devices"] and not surroundings["nki"]["simulated"]:
        lines.append("A device and its toolchain: climb the ladder with `trnconv bringup`.")
    if not surroundings["devices"]:
        lines.append("No Neuron device: kernels run in nkisim, times are modelled.")
    return lines
