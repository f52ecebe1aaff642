"""
Flags that several commands share, declared as a dataclass and added to commands by `@with_flags`.

A command takes such a dataclass as one parameter; each of its fields becomes a flag after the command's own.
"""

import inspect
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import wraps
from typing import Any, get_type_hints


def with_flags(command: Callable[..., None]) -> Callable[..., None]:
    """Expand the parameters of a command that are flag dataclasses into one flag per field."""
    own = inspect.signature(command).parameters
    sets = {
        name: kind
        for name, each in own.items()
        if isinstance(kind := each.annotation, type) and is_dataclass(kind)
    }

    @wraps(command)
    def run(**given: Any) -> None:  # noqa: ANN401  typer has checked each
        built = {
            name: kind(**{field.name: given.pop(field.name) for field in fields(kind)})
            for name, kind in sets.items()
        }
        command(**built, **given)

    spread = [each for name, each in own.items() if name not in sets]
    for kind in reversed(sets.values()):
        spread += _parameters(kind)
    every = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in spread]
    run.__signature__ = inspect.Signature(every)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in every}
    return run


def _parameters(kind: type[Any]) -> list[inspect.Parameter]:
    hints = get_type_hints(kind, include_extras=True)
    return [
        inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=hints[field.name]
        )
        for field in fields(kind)
    ]
