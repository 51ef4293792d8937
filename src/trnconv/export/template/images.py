"""Filters and biases in the places that a recipe reads them from, by lists of strided copies."""

from __future__ import annotations

from typing import Any

import torch

Tensor = torch.Tensor


def packed(
    cores: list[list[dict[str, Any]]], weight: Tensor, bias: Tensor | None
) -> tuple[Tensor, ...]:
    """Every array of each core, those of the first and of the second core in turn."""
    made = [[_array(spec, weight, bias) for spec in core] for core in cores]
    return tuple(array for arrays in zip(*made, strict=True) for array in arrays)


def _array(spec: dict[str, Any], weight: Tensor, bias: Tensor | None) -> Tensor:
    if "values" in spec:
        return torch.tensor(spec["values"], dtype=getattr(torch, spec["dtype"]))
    if "channels" in spec:
        return _biases(spec, bias)
    filters = _merged(weight, spec["merged"]).contiguous().reshape(-1)
    image = torch.zeros(spec["shape"], dtype=weight.dtype)
    for line, lines, column, columns, apart, source, line_step, step in spec["copies"]:
        block = torch.as_strided(filters, (lines, columns), (line_step, step), source)
        image[line : line + lines, column : column + apart * (columns - 1) + 1 : apart] = block
    return image


def _biases(spec: dict[str, Any], bias: Tensor | None) -> Tensor:
    channels = torch.tensor(spec["channels"])
    image = torch.zeros(spec["shape"], dtype=torch.float32)
    if bias is not None:
        values = bias.detach().cpu().float()
        image = torch.where(channels >= 0, values[channels.clamp(min=0)], image)
    return image


def _merged(weight: Tensor, merged: list[list[list[int]]]) -> Tensor:
    """Taps that meet the same position summed, exactly, and rounded once."""
    if not any(merged):
        return weight
    sums = weight.double()
    for axis, groups in enumerate(merged, start=2):
        if groups:
            parts = [sums.index_select(axis, torch.tensor(taps)).sum(axis) for taps in groups]
            sums = torch.stack(parts, axis)
    return _rounded(sums, weight.dtype)


def _rounded(sums: Tensor, dtype: torch.dtype) -> Tensor:
    """float64 to a type, rounded once: a float32 that is odd unless exact rounds as it would."""
    near = sums.float()
    if dtype == torch.float32:
        return near
    exact = near.double() == sums
    even = near.view(torch.int32) % 2 == 0
    infinity = torch.full_like(near, float("inf"))
    towards = torch.where(sums > near.double(), infinity, -infinity)
    odd = torch.where(even & ~exact, torch.nextafter(near, towards), near)
    return odd.to(dtype)
