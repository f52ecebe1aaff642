"""
A group's settings as the file `--settings` or Fleet brings them: JSON in the words of a ConsumerGroup's spec.

Read by `__main__` before anything starts, and by the Fleet client. Each setting stands for a flag; what it may be
beyond its kind, the flags' own checks say.
"""

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path

BYTES_MAX = 256 << 10
DURATION = re.compile(r"PT(?=\d)(?:(\d{1,6})H)?(?:(\d{1,6})M)?(?:(\d{1,9}(?:\.\d{1,3})?)S)?")
Reader = Callable[[str, object], str]


class SettingsError(Exception):
    """The settings cannot be used: one sentence that names the setting by its path."""


def text(path: str, value: object) -> str:
    """As it is."""
    if not isinstance(value, str):
        raise SettingsError(f"{path} is no text: put it in quotes")
    return value


def number(path: str, value: object) -> str:
    """A whole one."""
    # True is an int too.
    if not isinstance(value, int) or isinstance(value, bool):
        raise SettingsError(f"{path} is no whole number: give one, without quotes")
    return str(value)


def seconds(path: str, value: object) -> str:
    """In milliseconds."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not abs(value) < 1e9:
        raise SettingsError(f"{path} is no number of seconds: give one, without quotes")
    return str(round(value * 1000))


def duration(path: str, value: object) -> str:
    """In milliseconds."""
    found = DURATION.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise SettingsError(f"{path} is no duration: give one as PT30S, PT0.5S or PT1M30S")
    hours, minutes, rest_s = found.groups(default="0")
    return str(round((int(hours) * 3600 + int(minutes) * 60 + float(rest_s)) * 1000))


def switch(path: str, value: object) -> str:
    """True or false."""
    if not isinstance(value, bool):
        raise SettingsError(f"{path} is neither true nor false: give one of them, without quotes")
    return str(value).lower()


def names(path: str, value: object) -> str:
    """Several, with commas."""
    if not isinstance(value, list) or not all(isinstance(each, str) and "," not in each for each in value):
        raise SettingsError(f'{path} is no list of names: give one, for example ["orders"]')
    return ",".join(value)


def one_or_names(path: str, value: object) -> str:
    """The first one is preferred."""
    return text(path, value) if isinstance(value, str) else names(path, value)


def ranks(path: str, value: object) -> str:
    """A number for each topic."""
    if not isinstance(value, dict) or any("," in name or "=" in name for name in value):
        raise SettingsError(f'{path} has no number for each topic: give them, for example {{"urgent": 10}}')
    return ",".join(f"{name}={number(f'{path}.{name}', each)}" for name, each in value.items())


def ignored(path: str, value: object) -> str:
    """Others act on it."""
    return ""


SETTINGS: Mapping[str, tuple[str, Reader]] = {
    "topics": ("topics", names),
    "topicPattern": ("topic-pattern", text),
    "suspend": ("suspend", switch),
    "assignment.strategy": ("assignors", one_or_names),
    "assignment.maxMovedPartitionsPercent": ("max-moved-partitions-percent", number),
    "membership.sessionTimeoutSeconds": ("session-timeout-ms", seconds),
    "membership.heartbeatIntervalSeconds": ("heartbeat-interval-ms", seconds),
    "membership.rebalanceTimeoutSeconds": ("rebalance-timeout-ms", seconds),
    "membership.processingTimeoutSeconds": ("processing-timeout-ms", seconds),
    "membership.static": ("static", switch),
    "offsets.initialOffset": ("initial-offset", text),
    "offsets.onOffsetExpired": ("on-offset-expired", text),
    "offsets.commit.mode": ("commit-mode", text),
    "offsets.commit.intervalSeconds": ("commit-interval-ms", seconds),
    "delivery.ordering": ("ordering", text),
    "delivery.concurrency": ("concurrency", number),
    "delivery.timeout": ("delivery-timeout-ms", duration),
    "delivery.retry": ("retries", number),
    "delivery.backoffPolicy": ("backoff", text),
    "delivery.backoffDelay": ("backoff-ms", duration),
    "delivery.deadLetterTopic": ("dead-letter-topic", text),
    "delivery.http.url": ("delivery-url", text),
    "delivery.rateLimit.max": ("rate-max", number),
    "delivery.priorities": ("priorities", ranks),
    # The operator plans and carries out resets; it tells each pod its rack.
    "offsets.reset": ("", ignored),
    "membership.rackTopologyKey": ("", ignored),
    # Looked at below, beside delivery.http.url.
    "delivery.mode": ("", text),
}
MODES = ("pull", "http")


def read(file: Path) -> Mapping[str, str]:
    """Flags and what the file gives them. Raises SettingsError."""
    try:
        with file.open("rb") as content:
            data = content.read(BYTES_MAX + 1)
    except OSError as error:
        raise SettingsError(
            f"--settings {file} cannot be read ({error.strerror}): see that it is there, and readable"
        ) from None
    try:
        return flags_of(data)
    except SettingsError as error:
        raise SettingsError(f"--settings {file}: {error}") from None


def flags_of(data: bytes) -> Mapping[str, str]:
    """Flags and what the settings give them. Raises SettingsError."""
    if len(data) > BYTES_MAX:
        raise SettingsError(f"the settings are larger than {BYTES_MAX} bytes: shorten them")
    try:
        held = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise SettingsError(f"the settings are no JSON ({error}): correct them") from None
    if not isinstance(held, dict):
        raise SettingsError('the settings are no JSON object: give one, for example {"suspend": false}')
    found: dict[str, str] = {}
    gather("", held, found)
    check_mode(held.get("delivery"), found.get("delivery-url", ""))
    return found


def gather(prefix: str, held: Mapping[str, object], found: dict[str, str]) -> None:
    """All that is below a path."""
    for key, value in held.items():
        path = prefix + key
        if path in SETTINGS:
            flag, reader = SETTINGS[path]
            told = reader(path, value)
            if flag:
                found[flag] = told
        elif not any(known.startswith(f"{path}.") for known in SETTINGS):
            there_are = ", ".join(sorted(below(prefix)))
            raise SettingsError(f"{path} is no setting: correct it, or leave it out; there are {there_are}")
        elif isinstance(value, dict):
            gather(f"{path}.", value, found)
        else:
            raise SettingsError(f"{path} is no JSON object: give one")


def below(prefix: str) -> set[str]:
    """The settings, or beginnings of settings, one level below a path."""
    return {
        prefix + known.removeprefix(prefix).partition(".")[0]
        for known in SETTINGS
        if known.startswith(prefix)
    }


def check_mode(delivery: object, url: str) -> None:
    """Raises SettingsError when mode and address contradict each other."""
    mode = delivery.get("mode", "http" if url else "pull") if isinstance(delivery, dict) else "pull"
    if mode not in MODES:
        raise SettingsError(f"delivery.mode is {mode}: give one of {', '.join(MODES)}")
    if mode == "http" and not url:
        raise SettingsError("delivery.mode is http: give delivery.http.url too")
    if mode == "pull" and url:
        raise SettingsError(
            "delivery.http.url has no effect while delivery.mode is pull: give http, or no address"
        )
