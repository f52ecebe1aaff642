"""Writes a label selector as text, as `status.selector` of the scale subresource needs it."""

from collections.abc import Iterator

from rota_operator.reconcile.observed import Object


def selector_text(selector: Object) -> str:
    """Return a workload's selector in the syntax of `kubectl get --selector`."""
    return ",".join(_terms(selector))


def _terms(selector: Object) -> Iterator[str]:
    for key, value in sorted((selector.get("matchLabels") or {}).items()):
        yield f"{key}={value}"
    for each in selector.get("matchExpressions") or ():
        values = f"({','.join(sorted(each.get('values') or ()))})"
        match each["operator"]:
            case "In":
                yield f"{each['key']} in {values}"
            case "NotIn":
                yield f"{each['key']} notin {values}"
            case "Exists":
                yield each["key"]
            case "DoesNotExist":
                yield f"!{each['key']}"
            case operator:
                raise AssertionError(
                    f"a selector that the API server has validated has no operator {operator}"
                )
