"""
Base classes of the ConsumerGroup's models: frozen, strict, with rules between fields.

Each rule is declared as a Python predicate and as a CEL expression for the API server; a test compares the two.
"""

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, model_validator
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError


class ValidationRule(NamedTuple):
    """Rule between the fields of a model."""

    # For the API server; `self` is the part. Empty for what has rules of its own there.
    cel: str
    # Ends the sentence that begins with the part's path.
    message: str
    holds: Callable[[Any], bool]


class TransitionRule(NamedTuple):
    """Rule between the old and the new value of a model, checked on updates."""

    # `self` is the part, `oldSelf` what it was.
    cel: str
    message: str
    # Of the part as it was, and as it is.
    holds: Callable[[Any, Any], bool]


class SpecModel(BaseModel):
    """Base of all models. Values of the wrong type are rejected; nothing is coerced."""

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
