"""Settings: what can be changed, the defaults, and the checks."""

import tomllib
from dataclasses import dataclass

DEFAULT_INTERVAL = 60.0
DEFAULT_MARGIN = 0.3


class SettingsError(Exception):
    """The settings file is missing or makes no sense."""


@dataclass
class Harbour:
    name: str
    sensor: str
    flood_level: float


@dataclass
class Settings:
    harbours: list
    interval: float = DEFAULT_INTERVAL
    margin: float = DEFAULT_MARGIN

    @classmethod
    def load(cls, path):
        """Reads the file and checks it whole before anything starts."""
        try:
            with open(path, "rb") as file:
                data = tomllib.load(file)
        except (OSError, tomllib.TOMLDecodeError) as error:
            raise SettingsError(f"{path}: {error}") from error
        harbours = [Harbour(**entry) for entry in data.get("harbours", [])]
        if not harbours:
            raise SettingsError(f"{path}: names no harbour")
        interval = float(data.get("interval", DEFAULT_INTERVAL))
        if interval < 1.0:
            raise SettingsError(f"{path}: interval is below one second")
        return cls(harbours, interval, float(data.get("margin", DEFAULT_MARGIN)))
