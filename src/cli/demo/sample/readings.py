"""Readings of the water level, and what can go wrong with them."""

from dataclasses import dataclass


class SensorError(Exception):
    """The sensor gave no reading that could be believed."""


@dataclass
class Reading:
    level: float
    stale: bool = False


def read_level(harbour):
    """Reads one sensor. Raises SensorError, never returns a level that cannot be."""
    try:
        with open(harbour.sensor) as device:
            raw = device.read().strip()
    except OSError as error:
        raise SensorError(f"cannot read {harbour.sensor}: {error}") from error
    try:
        level = float(raw)
    except ValueError as error:
        raise SensorError(f"not a number: {raw!r}") from error
    if not -5.0 <= level <= 15.0:
        raise SensorError(f"{level} m is outside what this sensor can measure")
    return Reading(level)
