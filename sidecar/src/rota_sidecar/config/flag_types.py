"""
Types of flags: how a value is read from text or from a setting, and within which bounds it is accepted.

`flags` declares the flags with them; `loading` reads their values. Named tuples, because a dataclass takes ten times as long to
define, and every start of a sidecar defines them.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from rota_sidecar.config.kafka_properties import KEY, is_owned, owned_shown
from rota_sidecar.config.parsing import is_name, listed, pattern_problem

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
SWITCHES = {"true": True, "1": True, "false": False, "0": False}
INTEGER = re.compile(r"-?[0-9]{1,18}")
SOCKET_MODE = re.compile(r"0?[0-7]{3}")
OWNER_MODE, ALL_MODE = 0o600, 0o666
SHOWN_LENGTH_MAX = 100
PROPERTIES_MAX = 100
PROPERTY_LENGTH_MAX = 1_000


class ConfigError(Exception):
    """The configuration is refused: one sentence that names the flag, variable or setting, and the remedy."""


class Unacceptable(ValueError):
    """A value is refused; the message says what is expected."""


class FlagType(Protocol[T_co]):
    """Reads values of one type."""

    @property
    def metavar(self) -> str:
        """The placeholder of a value in the help."""

    def read(self, raw: Any) -> T_co:  # noqa: ANN401  text, or what a setting holds
        """Return the value that is given as text, or by a setting. Raises Unacceptable."""


def quoted(value: object) -> str:
    """Quote a value for a message: on one line, and no longer than 100 characters."""
    text = repr(str(value))[1:-1]
    return f'"{text[:SHOWN_LENGTH_MAX]}…"' if len(text) > SHOWN_LENGTH_MAX else f'"{text}"'


class Text(NamedTuple):
    """A text that meets a condition."""

    metavar: str
    is_accepted: Callable[[str], bool] = lambda text: True
    expected: str = "text"

    def read(self, raw: str) -> str:
        """Return the text. Raises Unacceptable."""
        if not self.is_accepted(raw):
            raise Unacceptable(f"is {quoted(raw)}; expected {self.expected}")
        return raw


class Pattern(NamedTuple):
    """A regular expression; empty: none."""

    metavar: str = "REGEX"

    def read(self, raw: str) -> str:
        """Return the expression. Raises Unacceptable."""
        wrong = pattern_problem(raw)
        if wrong:
            raise Unacceptable(f"has an {wrong}")
        return raw


class File(NamedTuple):
    """A file or folder; empty: none."""

    metavar: str = "FILE"
    path_bytes_max: int = 4096

    def read(self, raw: str) -> Path | None:
        """Return the path. Raises Unacceptable."""
        if len(raw.encode(errors="surrogateescape")) > self.path_bytes_max:
            raise Unacceptable(f"is {quoted(raw)}; expected a path of at most {self.path_bytes_max} bytes")
        return Path(raw) if raw else None


class Integer(NamedTuple):
    """An integer within bounds, both inclusive."""

    lowest: int
    highest: int
    metavar: str = "N"

    def read(self, raw: str | int) -> int:
        """Return the integer. Raises Unacceptable."""
        if isinstance(raw, str) and not INTEGER.fullmatch(raw):
            raise Unacceptable(f"is {quoted(raw)}; expected an integer from {self.lowest} to {self.highest}")
        value = int(raw)
        if not self.lowest <= value <= self.highest:
            raise Unacceptable(f"is {value}; expected {self.lowest} to {self.highest}")
        return value


class SocketMode(NamedTuple):
    """Permissions of a unix socket, in octal; connecting to one takes the permission to write."""

    metavar: str = "MODE"

    def read(self, raw: str) -> int:
        """Return the mode. Raises Unacceptable."""
        mode = int(raw, 8) if SOCKET_MODE.fullmatch(raw) else -1
        if mode & OWNER_MODE != OWNER_MODE or mode & ~ALL_MODE:
            raise Unacceptable(
                f"is {quoted(raw)}; expected an octal mode of 0600 and read and write permissions of others, such as 0666 for a "
                "socket whose folder only the application's container has"
            )
        return mode


class Choice(NamedTuple):
    """One of several texts."""

    values: tuple[str, ...]

    @property
    def metavar(self) -> str:
        """The texts in braces."""
        return f"{{{','.join(self.values)}}}"

    def read(self, raw: str) -> str:
        """Return the text. Raises Unacceptable."""
        if raw not in self.values:
            raise Unacceptable(f"is {quoted(raw)}; expected one of {', '.join(self.values)}")
        return raw


class Switch(NamedTuple):
    """True or false: `--name` and `--no-name` on the command line, text in a variable."""

    metavar: str = ""

    def read(self, raw: str | bool) -> bool:
        """Return the boolean. Raises Unacceptable."""
        value = SWITCHES.get(raw.lower()) if isinstance(raw, str) else raw
        if value is None:
            raise Unacceptable(f"is {quoted(raw)}; expected true or false")
        return value


class Texts(NamedTuple):
    """Texts of one type, with commas between them; empty: none."""

    each: Text

    @property
    def metavar(self) -> str:
        """The placeholder of one text, continued."""
        return f"{self.each.metavar},…"

    def read(self, raw: str | Iterable[str]) -> tuple[str, ...]:
        """Return the texts. Raises Unacceptable for the first that is not accepted."""
        return tuple(self.each.read(text) for text in (listed(raw) if isinstance(raw, str) else raw))


class Priorities(NamedTuple):
    """Integers by topic, as TOPIC=N with commas between them."""

    metavar: str = "TOPIC=N,…"

    def read(self, raw: str | Mapping[str, int]) -> Mapping[str, int]:
        """Return the priorities by topic. Raises Unacceptable."""
        parts = (
            listed(raw) if isinstance(raw, str) else [f"{topic}={number}" for topic, number in raw.items()]
        )
        found: dict[str, int] = {}
        for part in parts:
            topic, _, number = part.partition("=")
            if not is_name(topic) or not INTEGER.fullmatch(number):
                raise Unacceptable(f"is {quoted(part)}; expected TOPIC=N, for example urgent=10")
            found[topic] = int(number)
        return found


class Properties(NamedTuple):
    """Properties of Kafka's client: KEY=VALUE, repeated on the command line, one in a line of a variable."""

    metavar: str = "KEY=VALUE"

    def read(self, raw: str | Sequence[str]) -> Mapping[str, str]:
        """Return the properties by name. Raises Unacceptable."""
        given = [line for line in raw.splitlines() if line.strip()] if isinstance(raw, str) else raw
        if len(given) > PROPERTIES_MAX:
            raise Unacceptable(f"has {len(given)} properties; expected at most {PROPERTIES_MAX}")
        found: dict[str, str] = {}
        for text in given:
            name, is_pair, value = text.partition("=")
            key = name.strip()
            if not is_pair or not KEY.fullmatch(key) or len(value) > PROPERTY_LENGTH_MAX:
                raise Unacceptable(f"is {quoted(text)}; expected KEY=VALUE, for example fetch.min.bytes=1000")
            if key in found:
                raise Unacceptable(f"sets {key} twice; set it once")
            if is_owned(key):
                raise Unacceptable(f"sets {key}, which the sidecar sets itself; it owns {owned_shown()}")
            found[key] = value.strip()
        return found


def same(value: object) -> object:
    """Return a setting as it is."""
    return value


class Setting(NamedTuple):
    """The group setting that a flag can be given by."""

    # In GroupSettings' JSON, such as `delivery.http.url`.
    path: str
    # From the setting's unit to the flag's. Raises Unacceptable.
    convert: Callable[[Any], object] = same
    # The member and the readers are made with it: Fleet cannot change it while the sidecar runs.
    is_fixed: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Flag(Generic[T]):
    """The one declaration of a flag: `--NAME`, the variable ROTA_NAME, and a setting if there is one."""

    name: str
    type: FlagType[T]
    default: T
    help: str
    setting: Setting | None = None
    # The default in words, when it is derived from other flags.
    derived: str = field(default="", kw_only=True)

    @property
    def option(self) -> str:
        """The flag as it stands on the command line."""
        return f"--{self.name}"

    @property
    def variable(self) -> str:
        """The environment variable."""
        return "ROTA_" + self.name.replace("-", "_").upper()

    @property
    def shown_default(self) -> str:
        """The default as the help shows it; empty: none, or a switch that is off."""
        match self.default:
            case None | False:
                return ""
            case tuple() | dict() as several:
                return ",".join(several)
            case one:
                return str(one)

    def read(self, source: str, raw: object) -> T:
        """Return a value of the source, which is the flag, the variable or the setting. Raises ConfigError."""
        try:
            return self.type.read(raw)
        except Unacceptable as error:
            raise ConfigError(f"{source} {error}") from None


def is_printable(text: str) -> bool:
    """Return True for at most 249 printable characters."""
    return len(text) <= 249 and text.isprintable()


def is_name_or_empty(text: str) -> bool:
    """Return True for a name of a topic or an instance, and for an empty text."""
    return not text or is_name(text)
