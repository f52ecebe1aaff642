"""A spec is read whole, with its defaults, or refused whole: each wrong field is named by its path, in a sentence."""

import copy
import re
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import ValidationError

from rota_operator.spec.model import ConsumerGroupSpec
from rota_operator.spec.schema import SpecModel
from rota_operator.spec.validation import InvalidSpec, Path, check_update, dotted, parse_spec
from tests.operator.spec.manifests import BROKEN, Broken, Spec, small, whole

# A sentence has what is wrong, and what to do.
MESSAGE = re.compile(r"spec[\w.\[\]]* (must (be|have|set|match|not) .+|is required|is an unknown field; .+)")
# Whatever is in them is somebody else's.
FREE = ("config", "requests", "limits", "priorities", "spec")


def leaves(held: object, path: Path = ()) -> Iterator[Path]:
    """The paths of all fields that have no fields."""
    if isinstance(held, dict) and not (path and path[-1] in FREE):
        for name, value in held.items():
            yield from leaves(value, (*path, name))
    else:
        yield path


def at(held: Any, path: Path) -> Any:  # noqa: ANN401  whatever is there
    """Value at the end of a path."""
    for name in path:
        held = held[name]
    return held


def put(spec: Spec, path: Path, value: object) -> Spec:
    """The same, with another value there."""
    found = copy.deepcopy(spec)
    at(found, path[:-1])[path[-1]] = value
    return found


def parts(held: object, path: Path = ()) -> Iterator[Path]:
    """The paths of all that has fields."""
    if isinstance(held, dict) and not (path and path[-1] in FREE):
        yield path
        for name, value in held.items():
            yield from parts(value, (*path, name))


def refused(spec: Spec) -> list[str]:
    with pytest.raises(InvalidSpec) as refusal:
        parse_spec(spec)
    sentences = [field_error.full_message for field_error in refusal.value.errors]
    assert all(MESSAGE.fullmatch(message) for message in sentences), sentences
    return sentences


def test_a_whole_spec_is_read_as_it_stands() -> None:
    read = parse_spec(whole())
    assert read.model_dump(mode="json", by_alias=True, exclude_unset=True) == whole()


def test_what_is_left_out_has_the_defaults_of_the_contract() -> None:
    given = parse_spec(small())
    said = whole()
    for path in (
        ("coordination",), ("coordinatorAddress",), ("groupId",), ("replicas",), ("auth",), ("config",),
        ("podDisruptionBudget",), ("scaleTargetRef",), ("topics",), ("bootstrapServers",), ("sidecar", "image"),
        ("sidecar", "container"), ("sidecar", "imagePullSecrets"), ("sidecar", "resources", "limits"), ("offsets", "reset"),
        ("delivery", "mode"), ("delivery", "http"), ("delivery", "deadLetterTopic"), ("delivery", "priorities"), ("autoscaling", "enabled"),
        ("autoscaling", "fallback", "replicas"), ("spark", "template"),
    ):  # fmt: skip
        del at(said, path[:-1])[path[-1]]
    dumped = given.model_dump(mode="json", by_alias=True)
    for leaf in leaves(said):
        assert at(dumped, leaf) == at(said, leaf), dotted(leaf)
    assert (given.group_id, given.replicas, given.coordination) == (None, None, "Auto")


@pytest.mark.parametrize("path", list(leaves(whole())), ids=dotted)
def test_a_value_of_another_kind_is_refused_by_its_path(path: Path) -> None:
    wrongs: list[object] = [[[]]]
    if path[-1] != "spec":
        wrongs.append({"not": [{"this": None}]})
    for message in wrongs:
        sentences = refused(put(whole(), path, message))
        assert any(message.startswith(f"spec.{dotted(path)}") for message in sentences), sentences


@pytest.mark.parametrize("path", list(parts(whole())), ids=lambda path: dotted(path) or "spec")
def test_a_name_that_is_no_field_is_refused(path: Path) -> None:
    where = dotted(("spec", *path, "speling"))
    assert refused(put(whole(), (*path, "speling"), 1)) == [
        f"{where} is an unknown field; correct its name or remove it"
    ]


@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: broken.rule)
def test_a_broken_rule_is_said_of_its_part(broken: Broken) -> None:
    (message,) = refused(broken.spec)
    assert message.startswith(f"{broken.path} {broken.message}")


def test_all_that_is_wrong_is_said_at_once() -> None:
    assert refused({**small(), "replicas": -1, "suspend": "no", "topics": ["a b"]}) == [
        'spec.topics[0] must match ^[a-zA-Z0-9._-]+$; got "a b"',
        "spec.replicas must be at least 0; got -1",
        "spec.suspend must be true or false",
    ]


@pytest.mark.parametrize(
    "address",
    ["kafka", "kafka:", ":9092", "kafka:port", "kafka:123456", "a:1,b:2", "http://kafka:9092", "rota://", "rota:///a:1", "::1:9092", "user@kafka:9092", " kafka:9092"],
)  # fmt: skip
def test_a_server_without_host_and_port_is_refused(address: str) -> None:
    [message] = refused({**small(), "bootstrapServers": [address]})
    assert message.startswith("spec.bootstrapServers[0] must match")
    coordination = {"coordination": "Rota", "coordinatorAddress": address}
    assert any(
        message.startswith("spec.coordinatorAddress must match")
        for message in refused({**small(), **coordination})
    )


@pytest.mark.parametrize("address", ["kafka:9092", "kafka.shop.svc:9092", "10.0.0.1:1", "[::1]:9092"])
def test_hosts_with_ports_are_servers(address: str) -> None:
    parse_spec({**small(), "bootstrapServers": [address]})
    parse_spec({**small(), "bootstrapServers": [f"rota://{address}"]})
    parse_spec({**small(), "coordination": "Rota", "coordinatorAddress": f"rota://{address}"})


def test_every_rule_has_a_spec_that_breaks_it() -> None:
    said = {broken.message for broken in BROKEN}
    rules = [rule.message for part in all_parts() for rule in part.rules]
    assert [rule for rule in rules if not any(rule.startswith(message) for message in said)] == []


def all_parts(part: type[SpecModel] = ConsumerGroupSpec) -> Iterator[type[SpecModel]]:
    yield part
    for field in part.model_fields.values():
        for kind in (field.annotation, *getattr(field.annotation, "__args__", ())):
            if isinstance(kind, type) and issubclass(kind, SpecModel):
                yield from all_parts(kind)


@pytest.mark.parametrize(
    ("was", "spec", "message"),
    [
        ({}, {"groupId": "other"}, "must not change groupId"),
        ({"groupId": "one"}, {}, "must not change groupId"),
        ({"groupId": "one"}, {"groupId": "other"}, "must not change groupId"),
        ({}, {"coordination": "Kafka"}, "must not change coordination"),
    ],
)
def test_what_offsets_are_kept_under_cannot_be_changed(was: Spec, spec: Spec, message: str) -> None:
    with pytest.raises(InvalidSpec, match=rf"spec {message}.*; create another ConsumerGroup"):
        check_update(parse_spec({**small(), **was}), parse_spec({**small(), **spec}))


SPARK = {"enabled": True, "template": {"spec": {}}}


@pytest.mark.parametrize(
    ("was", "spec", "message"),
    [
        ({"scaleTargetRef": {"name": "orders"}}, {"spark": SPARK}, "must not change between scaleTargetRef"),
        ({"spark": SPARK}, {"scaleTargetRef": {"name": "orders"}}, "must not change between scaleTargetRef"),
        (
            {"spark": SPARK},
            {"spark": {**SPARK, "apiVersion": "spark.apache.org/v1"}},
            "must not change spark.apiVersion",
        ),
    ],
)
def test_what_consumes_cannot_change_its_kind(was: Spec, spec: Spec, message: str) -> None:
    base = {name: value for name, value in small().items() if name != "scaleTargetRef"}
    with pytest.raises(InvalidSpec, match=rf"spec {message}.*; create another ConsumerGroup"):
        check_update(parse_spec({**base, **was}), parse_spec({**base, **spec}))


def test_everything_else_may_be_changed() -> None:
    check_update(parse_spec(small()), parse_spec(without_ids(whole())))


def without_ids(spec: Spec) -> Spec:
    return {
        name: value
        for name, value in spec.items()
        if name not in ("groupId", "coordination", "coordinatorAddress")
    }


def test_a_spec_cannot_be_altered() -> None:
    with pytest.raises(ValidationError):
        parse_spec(small()).suspend = True
