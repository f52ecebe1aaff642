"""
Names with Kubernetes' rules: they become paths, labels and environment variables, so each kind has its pattern.

A pattern is declared on a field's type, from which the CustomResourceDefinition and the validation take it; `EXPECTED` has
its description for errors. Patterns use the syntax that RE2 and Rust share.
"""

from typing import Annotated

from pydantic import StringConstraints

_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
# A label value, and the part of a label key after the slash.
_VALUE = r"[a-zA-Z0-9]([-a-zA-Z0-9_.]*[a-zA-Z0-9])?"

LABEL = rf"^{_LABEL}$"
LABEL_OR_EMPTY = rf"^({_LABEL})?$"
SUBDOMAIN = rf"^{_SUBDOMAIN}$"
DATA_KEY = r"^[-._a-zA-Z0-9]+$"
VARIABLE = r"^[A-Za-z_][A-Za-z0-9_]*$"
VARIABLE_PREFIX = r"^([A-Za-z_][A-Za-z0-9_]*)?$"
LABEL_KEY = rf"^({_SUBDOMAIN}/)?{_VALUE}$"
LABEL_KEY_OR_EMPTY = rf"^(({_SUBDOMAIN}/)?{_VALUE})?$"
LABEL_VALUE = rf"^({_VALUE})?$"
PRINTABLE = r"^[^\x00-\x1f\x7f-\x9f]+$"

_RFC_1123_LABEL = 'a lowercase RFC 1123 label: lowercase letters, digits and "-", beginning and ending with a letter or digit'
# By pattern: the text of an error after "must be".
EXPECTED = {
    LABEL: _RFC_1123_LABEL,
    LABEL_OR_EMPTY: _RFC_1123_LABEL,
    SUBDOMAIN: 'a lowercase RFC 1123 subdomain: lowercase letters, digits, "-" and ".", each part between two "." '
    "beginning and ending with a letter or digit",
    DATA_KEY: 'a key of a Secret or ConfigMap: letters, digits, "-", "_" and "."',
    VARIABLE: 'the name of an environment variable: letters, digits and "_", not beginning with a digit',
    VARIABLE_PREFIX: 'the beginning of an environment variable\'s name: letters, digits and "_", no digit first',
    LABEL_KEY: 'a label key: an optional DNS prefix and "/", then letters, digits, "-", "_" and "."',
    LABEL_KEY_OR_EMPTY: 'a label key: an optional DNS prefix and "/", then letters, digits, "-", "_" and "."',
    LABEL_VALUE: 'a label value: letters, digits, "-", "_" and ".", beginning and ending with a letter or digit',
    PRINTABLE: "text without control characters",
}

# Names of most resources, and references to them.
ResourceName = Annotated[str, StringConstraints(min_length=1, max_length=253, pattern=SUBDOMAIN)]
Namespace = Annotated[str, StringConstraints(min_length=1, max_length=63, pattern=LABEL)]
ContainerName = Annotated[str, StringConstraints(min_length=1, max_length=63, pattern=LABEL)]
OptionalContainerName = Annotated[str, StringConstraints(max_length=63, pattern=LABEL_OR_EMPTY)]
DataKey = Annotated[str, StringConstraints(min_length=1, max_length=253, pattern=DATA_KEY)]
VariableName = Annotated[str, StringConstraints(min_length=1, pattern=VARIABLE)]
VariablePrefix = Annotated[str, StringConstraints(pattern=VARIABLE_PREFIX)]
LabelKey = Annotated[str, StringConstraints(min_length=1, max_length=317, pattern=LABEL_KEY)]
OptionalLabelKey = Annotated[str, StringConstraints(max_length=317, pattern=LABEL_KEY_OR_EMPTY)]
LabelValue = Annotated[str, StringConstraints(max_length=63, pattern=LABEL_VALUE)]
# Of Kerberos: the first part of a service's principal, and a principal with or without its realm.
ServiceName = Annotated[str, StringConstraints(min_length=1, max_length=249, pattern=r"^[a-zA-Z0-9._-]+$")]
Principal = Annotated[str, StringConstraints(min_length=1, max_length=249, pattern=PRINTABLE)]
GroupId = Annotated[str, StringConstraints(min_length=1, max_length=249, pattern=PRINTABLE)]
