"""
How fields are declared: every part of a ConsumerGroup is a frozen value with rules, each said twice.

A rule is checked here, and by the API server, which only knows CEL; a test holds the two against each other.
"""

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, model_validator
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError


class ValidationRule(NamedTuple):
    """What must hold between the fields of a part."""

    # For the API server; `self` is the part. Empty for what has rules of its own there.
    cel: str
    # Ends the sentence that begins with the part's path.
    message: str
    holds: Callable[[Any], bool]


class TransitionRule(NamedTuple):
    """What must hold between a part and what it was before."""

    # `self` is the part, `oldSelf` what it was.
    cel: str
    message: str
    # Of the part as it was, and as it is.
    holds: Callable[[Any, Any], bool]


class SpecModel(BaseModel):
    """A part of a ConsumerGroup. Nothing is converted: what has another type is refused."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, alias_generator=to_camel, validate_default=True
    )
    rules: ClassVar[tuple[ValidationRule, ...]] = ()
    transition_rules: ClassVar[tuple[TransitionRule, ...]] = ()

    @model_validator(mode="after")
    def _check_rules(self) -> Self:
        for rule in self.rules:
            if not rule.holds(self):
                raise PydanticCustomError("rule", "{wrong}", {"wrong": rule.message})
        return self
