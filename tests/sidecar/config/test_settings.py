"""Settings of a group: the flags that they stand for, their precedence, and the values refused by their path."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from google.protobuf.descriptor import Descriptor
from google.protobuf.json_format import MessageToJson

from rota_proto.fleet.v1.settings_pb2 import DeliverySettings, GroupSettings, MembershipSettings
from rota_sidecar.config.flag_types import ConfigError
from rota_sidecar.config.flags import BY_SETTING
from rota_sidecar.config.loading import read_sources
from rota_sidecar.config.settings import BYTES_MAX, MODE, parse_json, read_file, values_of
from rota_sidecar.config.sidecar_config import SidecarConfig
from rota_sidecar.core.delivery.config import CommitMode, Reset
from rota_sidecar.core.ledger.batches import Ordering
from rota_sidecar.core.ledger.rules import Backoff
from tests.sidecar.config.configs import config_of, refusal

WHOLE = {
    "topics": ["orders", "returns"],
    "suspend": True,
    "assignment": {"strategy": ["range", "cooperative-sticky"], "maxMovedPartitionsPercent": 50},
    "membership": {
        "sessionTimeoutSeconds": 60,
        "heartbeatIntervalSeconds": 2.5,
        "rebalanceTimeoutSeconds": 100,
        "processingTimeoutSeconds": 30,
        "static": False,
        "rackTopologyKey": "topology.kubernetes.io/zone",
    },
    "offsets": {
        "initialOffset": "latest",
        "onOffsetExpired": "earliest",
        "commit": {"mode": "sync", "intervalSeconds": 1},
        "reset": {"requestId": "r"},
    },
    "delivery": {
        "mode": "pull",
        "ordering": "key",
        "concurrency": 8,
        "timeout": "PT1M30S",
        "retry": 3,
        "backoffPolicy": "linear",
        "backoffDelay": "PT0.25S",
        "deadLetterTopic": "orders.dlq",
        "http": {"url": ""},
        "rateLimit": {"max": 100},
        "priorities": {"orders": 10, "returns": -1},
    },
}


def configured(settings: object, *arguments: str) -> SidecarConfig:
    return config_of(["--group-id=g", *arguments], json.dumps(settings).encode())


def leaves(descriptor: Descriptor, prefix: str = "") -> Iterator[str]:
    """The paths of a message's fields that are not messages."""
    for field in descriptor.fields:
        if field.message_type is not None and not field.is_repeated:
            yield from leaves(field.message_type, f"{prefix}{field.camelcase_name}.")
        else:
            yield prefix + field.camelcase_name


def test_every_setting_reaches_what_it_sets() -> None:
    whole = configured(WHOLE)
    member, config = whole.member, whole.delivery
    assert (whole.subscription.topics, whole.assignors) == (
        ("orders", "returns"),
        ("range", "cooperative-sticky"),
    )
    assert (member.session_timeout_ms, member.heartbeat_interval_ms) == (60_000, 2_500)
    assert (member.rebalance_timeout_ms, whole.max_moved_partitions_percent) == (100_000, 50)
    assert (config.processing_timeout_ms, config.suspended) == (30_000, True)
    assert (config.initial_offset, config.on_offset_expired) == (Reset.LATEST, Reset.EARLIEST)
    assert (config.commit_mode, config.commit_interval_ms) == (CommitMode.SYNC, 1_000)
    assert (config.rules.ordering, config.concurrency, config.rules.retries) == (Ordering.KEY, 8, 3)
    assert (config.rules.backoff, config.rules.backoff_ms) == (Backoff.LINEAR, 250)
    assert (config.dead_letter_topic, config.rules.has_dead_letters) == ("orders.dlq", True)
    assert (config.rate_max, config.priorities) == (100, {"orders": 10, "returns": -1})
    assert whole.http_delivery.timeout_ms == 90_000


def test_each_field_of_the_message_stands_for_a_flag() -> None:
    # The mode is given by whether there is a URL.
    assert sorted(leaves(GroupSettings.DESCRIPTOR)) == sorted([*BY_SETTING, MODE])


def test_the_json_of_the_message_is_the_settings_file() -> None:
    settings = parse_json(json.dumps(WHOLE).encode())
    assert parse_json(MessageToJson(settings).encode()) == settings


def test_flags_go_before_variables_and_variables_before_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"delivery": {"concurrency": 1, "retry": 1}, "suspend": True}
    monkeypatch.setenv("ROTA_RETRIES", "2")
    monkeypatch.setenv("ROTA_CONCURRENCY", "2")
    config = configured(settings, "--concurrency=3", "--no-suspend").delivery
    assert (config.concurrency, config.rules.retries, config.suspended) == (3, 2, False)
    assert configured(settings).delivery.suspended is True


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"delivery": {"retries": 3}},
            "unknown setting delivery.retries; expected one of delivery.backoffDelay, delivery.backoffPolicy",
        ),
        ({"replicas": 3}, "unknown setting replicas; expected one of assignment, delivery"),
        ({"delivery": 3}, "delivery must be a JSON object"),
        ({"offsets": {"commit": {"mode": 5}}}, "offsets.commit.mode must be a string"),
        ({"delivery": {"concurrency": "8"}}, "delivery.concurrency must be an integer"),
        ({"delivery": {"concurrency": True}}, "delivery.concurrency must be an integer"),
        ({"suspend": "yes"}, "suspend must be true or false"),
        (
            {"delivery": {"timeout": "30s"}},
            'delivery.timeout is "30s"; expected an ISO 8601 duration such as PT30S',
        ),
        ({"delivery": {"timeout": "PT"}}, 'delivery.timeout is "PT"; expected an ISO 8601 duration'),
        (
            {"membership": {"sessionTimeoutSeconds": "45"}},
            "membership.sessionTimeoutSeconds must be a number",
        ),
        ({"topics": "orders"}, "topics must be a list of names"),
        ({"topics": ["a,b"]}, 'topics is "a,b"; expected a topic name'),
        ({"delivery": {"priorities": ["a"]}}, "delivery.priorities must be a JSON object"),
        ({"delivery": {"priorities": {"a": "1"}}}, "delivery.priorities.a must be an integer"),
        ({"delivery": {"mode": "push"}}, 'delivery.mode is "push"; expected one of pull, http'),
        ({"delivery": {"mode": "http"}}, "delivery.mode is http; set delivery.http.url too"),
        ({"delivery": {"mode": "pull", "http": {"url": "http://a"}}}, "delivery.http.url has no effect"),
        ({"delivery": {"retry": 2**40}}, "delivery.retry must be an integer of 32 bits"),
        (
            {"offsets": {"commit": {"intervalSeconds": 1e10}}},
            "offsets.commit.intervalSeconds must be a number below 1e+09",
        ),
        ({"suspend": None}, "suspend must be true or false"),
        ({"delivery": {"http": {"url": "\ud800"}}}, "the settings are not valid JSON"),
        ({"assignment": {"strategy": ["range", 1]}}, "assignment.strategy must be a list of names"),
        (
            {"delivery": {"ordering": "random"}},
            'delivery.ordering is "random"; expected one of partition, key, unordered',
        ),
        ({"delivery": {"retry": -1}}, "delivery.retry is -1; expected 0 to 1000000"),
        ([], "the settings must be a JSON object"),
    ],
)
def test_unknown_and_mistyped_settings_are_refused_by_their_path(settings: object, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        configured(settings)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_file_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    file = tmp_path / "settings.json"
    for content, message in (
        (None, f"--settings {file} cannot be read (No such file or directory)"),
        ("{", f"--settings {file}: the settings are not valid JSON"),
        (" " * (BYTES_MAX + 1), "larger than"),
    ):
        if content is not None:
            file.write_text(content)
        with pytest.raises(ConfigError) as refused:
            read_file(file)
        assert message in str(refused.value)


def test_settings_that_do_not_fit_together_are_refused() -> None:
    settings = json.dumps({"membership": {"static": True}}).encode()
    assert "--static requires" in refusal(["--group-id=g"], ("cooperative-sticky",), settings)


def test_a_file_is_read_before_the_sidecar_starts(tmp_path: Path) -> None:
    file = tmp_path / "settings.json"
    file.write_text(json.dumps(WHOLE))
    arguments = ["--group-id=g", f"--settings={file}"]
    assert read_sources(arguments, {}).config() == configured(WHOLE)
    file.write_text(json.dumps({"delivery": {"retry": -1}}))
    with pytest.raises(ConfigError, match=f"--settings {file}: delivery.retry is -1"):
        read_sources(arguments, {})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (GroupSettings(delivery=DeliverySettings(mode="http")), "set delivery.http.url too"),
        (
            GroupSettings(membership=MembershipSettings(session_timeout_seconds=float("nan"))),
            "sessionTimeoutSeconds is nan",
        ),
        (GroupSettings(topics=["a" * 200 for _ in range(2000)]), "larger than"),
        # Field 100 of the settings, and of their part `delivery`, which is field 7.
        (
            GroupSettings.FromString(b"\xa0\x06\x01"),
            "does not know the setting with the number 100; update it",
        ),
        (GroupSettings.FromString(b"\x3a\x03\xa0\x06\x01"), "the setting with the number delivery.100"),
    ],
)
def test_a_message_of_fleet_is_refused_as_a_file_is(settings: GroupSettings, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        values_of(settings)
    assert message in str(refused.value)


def test_a_fixed_setting_is_found_by_its_path_unless_a_flag_is_given() -> None:
    other = GroupSettings(
        membership=MembershipSettings(session_timeout_seconds=60, processing_timeout_seconds=60)
    )
    for arguments, path in ([], "membership.sessionTimeoutSeconds"), (["--session-timeout-ms=45000"], ""):
        sources = read_sources(arguments, {})
        assert sources.changed_fixed_setting(sources.with_settings(other)) == path
