"""
Base classes of the ConsumerGroup's models: frozen, strict, with rules between fields.

Each rule is declared as a Python predicate and as a CEL expression for the API server; a test compares the two.
"""

from collections.abc import Callable, Iterator
from typing import Any, ClassVar, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, model_validator
from pydantic.alias_generators import to_camel
from pydantic.config import JsonDict
from pydantic_core import PydanticCustomError

# Of a field that sidecars read when they start only: changing it restarts the pods.
NEEDS_RESTART: JsonDict = {"x-rota-needs-restart": True}


class ValidationRule(NamedTuple):
    """Rule between the fields of a model."""

    # CEL expression for the API server; `self` is the model. Empty if the API server checks the rule by
    # itself.
    cel: str
    # Error message, which follows the model's path.
    message: str
    holds: Callable[[Any], bool]


class TransitionRule(NamedTuple):
    """Rule between the old and the new value of a model, checked on updates."""

    # CEL expression; `self` is the new value, `oldSelf` the old one.
    cel: str
    message: str
    # Predicate of the old and the new value.
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


def paths_needing_restart(part: type[SpecModel]) -> Iterator[tuple[str, ...]]:
    """Yield the paths of the fields declared with NEEDS_RESTART, by their names in manifests."""
    for name, field in part.model_fields.items():
        alias, extra = field.alias or name, field.json_schema_extra
        if isinstance(extra, dict) and NEEDS_RESTART.keys() <= extra.keys():
            yield (alias,)
        if isinstance(field.annotation, type) and issubclass(field.annotation, SpecModel):
            yield from ((alias, *path) for path in paths_needing_restart(field.annotation))
