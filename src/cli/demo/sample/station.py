"""The program: reads the settings, then polls every harbour for ever."""

import sys
import time

from readings import Reading, SensorError, read_level
from settings import Settings, SettingsError


def main(arguments):
    """Entry point. Answers with the exit code."""
    try:
        settings = Settings.load(arguments[1] if len(arguments) > 1 else "harbours.toml")
    except SettingsError as error:
        print(f"tidewatch: {error}", file=sys.stderr)
        return 78
    run(settings)
    return 0


def run(settings):
    """Polls in rounds. A harbour that fails does not hold up the others."""
    last = {}
    while True:
        for harbour in settings.harbours:
            try:
                last[harbour.name] = read_level(harbour)
            except SensorError as error:
                stale = last.get(harbour.name)
                print(f"{harbour.name}: {error}; last good reading: {stale}", file=sys.stderr)
                continue
            warn(settings, harbour, last[harbour.name])
        time.sleep(settings.interval)


def warn(settings, harbour, reading: Reading):
    if reading.level > harbour.flood_level - settings.margin:
        print(f"{harbour.name}: {reading.level:.2f} m, flood at {harbour.flood_level:.2f} m")


if __name__ == "__main__":
    sys.exit(main(sys.argv))
