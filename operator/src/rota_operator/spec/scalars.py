"""Types of fields with a single string or number, with their bounds and patterns."""

from typing import Annotated

from pydantic import Field, PlainValidator, StringConstraints, WithJsonSchema
from pydantic_core import PydanticCustomError

INT32_MAX = 2**31 - 1
# The API server's keyword for a field that accepts both.
INT_OR_STRING = "x-kubernetes-int-or-string"


def int_or_string(value: object) -> int | str:
    """Validate a field that accepts an integer or a string."""
    if isinstance(value, int | str) and not isinstance(value, bool):
        return value
    raise PydanticCustomError("rule", "{wrong}", {"wrong": "must be an integer or a string"})


ShortText = Annotated[str, StringConstraints(min_length=1, max_length=253)]
Topic = Annotated[str, StringConstraints(min_length=1, max_length=249, pattern=r"^[a-zA-Z0-9._-]+$")]
OptionalTopic = Annotated[str, StringConstraints(max_length=249, pattern=r"^[a-zA-Z0-9._-]*$")]
_HOST_AND_PORT = r"([^\s/@,:\[\]]+|\[[^\s/@,\[\]]+\]):[0-9]{1,5}"
# Of a Kafka broker, or of a Rota coordinator.
Address = Annotated[
    str, StringConstraints(min_length=1, max_length=1024, pattern=f"^(rota://)?{_HOST_AND_PORT}$")
]
OptionalRotaAddress = Annotated[
    str, StringConstraints(max_length=1024, pattern=f"^(rota://{_HOST_AND_PORT})?$")
]
# By https alone: the client secret is sent there.
OptionalTokenEndpoint = Annotated[
    str, StringConstraints(max_length=1024, pattern=r"^(https://[^\s/@?#]+(/[^\s#]*)?)?$")
]
# OAuth 2.0 scopes, separated by blanks.
OptionalScope = Annotated[str, StringConstraints(max_length=249, pattern=r"^[!#-\[\]-~ ]*$")]
Audience = Annotated[str, StringConstraints(min_length=1, max_length=253, pattern=r"^[!-~]+$")]
# ISO 8601 durations, limited to the units of constant length.
Duration = Annotated[
    str, StringConstraints(pattern=r"^PT([0-9]+H)?([0-9]+M)?([0-9]+(\.[0-9]{1,3})?S)?$", max_length=32)
]
Timestamp = Annotated[
    str, StringConstraints(pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]{8,15}(Z|[+-][0-9]{2}:[0-9]{2})$")
]
PositiveInt = Annotated[int, Field(ge=1, le=INT32_MAX, json_schema_extra={"format": "int32"})]
Int32 = Annotated[int, Field(ge=-INT32_MAX - 1, le=INT32_MAX, json_schema_extra={"format": "int32"})]
# Kubernetes' bounds of a projected token's lifetime, up to a day.
TokenSeconds = Annotated[int, Field(ge=600, le=86_400, json_schema_extra={"format": "int32"})]
NonNegativeInt = Annotated[int, Field(ge=0, le=INT32_MAX, json_schema_extra={"format": "int32"})]
# The API server's own bounds of an integer.
Int64 = Annotated[int, Field(json_schema_extra={"format": "int64"})]
IntOrString = Annotated[int | str, PlainValidator(int_or_string), WithJsonSchema({INT_OR_STRING: True})]
Fraction = Annotated[float, Field(gt=0, le=1)]
