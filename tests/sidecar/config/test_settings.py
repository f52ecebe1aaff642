"""A group's settings: which flags they stand for, what goes before them, and what is refused by its path."""

import json
from pathlib import Path

import pytest

from rota_sidecar.config import parse
from rota_sidecar.config.delivery_flags import delivery_config
from rota_sidecar.config.settings import BYTES_MAX, SETTINGS, SettingsError, flags_of, read
from rota_sidecar.config.validation import problem
from rota_sidecar.core.delivery.config import CommitMode, Reset
from rota_sidecar.core.ledger.batches import Ordering
from rota_sidecar.core.ledger.rules import Backoff

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


def flags(settings: object) -> dict[str, str]:
    return dict(flags_of(json.dumps(settings).encode()))


def test_every_setting_reaches_what_it_sets() -> None:
    options = parse(["--group-id=g"], flags(WHOLE))
    assert problem(options, ("range", "cooperative-sticky")) == ""
    config = delivery_config(options)
    assert (options.topics, options.assignors) == ("orders,returns", "range,cooperative-sticky")
    assert (options.session_timeout_ms, options.heartbeat_interval_ms) == (60_000, 2_500)
    assert (options.rebalance_timeout_ms, options.max_moved_partitions_percent) == (100_000, 50)
    assert (config.processing_timeout_ms, config.suspended) == (30_000, True)
    assert (config.initial_offset, config.on_offset_expired) == (Reset.LATEST, Reset.EARLIEST)
    assert (config.commit_mode, config.commit_interval_ms) == (CommitMode.SYNC, 1_000)
    assert (config.rules.ordering, config.concurrency, config.rules.retries) == (Ordering.KEY, 8, 3)
    assert (config.rules.backoff, config.rules.backoff_ms) == (Backoff.LINEAR, 250)
    assert (config.dead_letter_topic, config.rules.has_dead_letters) == ("orders.dlq", True)
    assert (config.rate_max, config.priorities) == (100, {"orders": 10, "returns": -1})
    assert options.delivery_timeout_ms == 90_000


def test_each_setting_names_a_flag_that_there_is() -> None:
    options = parse([])
    for flag, _ in SETTINGS.values():
        assert not flag or hasattr(options, flag.replace("-", "_"))


def test_flags_go_before_variables_and_variables_before_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = flags({"delivery": {"concurrency": 1, "retry": 1}, "suspend": True})
    monkeypatch.setenv("ROTA_RETRIES", "2")
    monkeypatch.setenv("ROTA_CONCURRENCY", "2")
    options = parse(["--concurrency=3", "--no-suspend"], settings)
    assert (options.concurrency, options.retries, options.suspend) == (3, 2, False)
    assert parse([], settings).suspend is True


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (
            {"delivery": {"retries": 3}},
            "delivery.retries is no setting: correct it, or leave it out; there are",
        ),
        ({"replicas": 3}, "replicas is no setting"),
        ({"delivery": 3}, "delivery is no JSON object"),
        ({"offsets": {"commit": {"mode": 5}}}, "offsets.commit.mode is no text"),
        ({"delivery": {"concurrency": "8"}}, "delivery.concurrency is no whole number"),
        ({"delivery": {"concurrency": True}}, "delivery.concurrency is no whole number"),
        ({"suspend": "yes"}, "suspend is neither true nor false"),
        ({"delivery": {"timeout": "30s"}}, "delivery.timeout is no duration: give one as PT30S"),
        ({"delivery": {"timeout": "PT"}}, "delivery.timeout is no duration"),
        ({"membership": {"sessionTimeoutSeconds": "45"}}, "membership.sessionTimeoutSeconds is no number"),
        ({"topics": "orders"}, "topics is no list of names"),
        ({"topics": ["a,b"]}, "topics is no list of names"),
        ({"delivery": {"priorities": ["a"]}}, "delivery.priorities has no number for each topic"),
        ({"delivery": {"priorities": {"a": "1"}}}, "delivery.priorities.a is no whole number"),
        ({"delivery": {"mode": "push"}}, "delivery.mode is push: give one of pull, http"),
        ({"delivery": {"mode": "http"}}, "delivery.mode is http: give delivery.http.url too"),
        ({"delivery": {"mode": "pull", "http": {"url": "http://a"}}}, "delivery.http.url has no effect"),
        ([], "no JSON object"),
    ],
)
def test_what_is_no_setting_is_refused_by_its_path(settings: object, sentence: str) -> None:
    with pytest.raises(SettingsError) as refused:
        flags(settings)
    assert sentence in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_file_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    file = tmp_path / "settings.json"
    for content, sentence in (
        (None, f"--settings {file} cannot be read (No such file or directory)"),
        ("{", f"--settings {file}: the settings are no JSON"),
        (" " * (BYTES_MAX + 1), "larger than"),
    ):
        if content is not None:
            file.write_text(content)
        with pytest.raises(SettingsError) as refused:
            read(file)
        assert sentence in str(refused.value)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"delivery": {"ordering": "random"}}, "--ordering random: give one of partition, key, unordered"),
        ({"delivery": {"retry": -1}}, "--retries: give 0 to"),
        ({"topics": ["a/b"]}, "can be no topic"),
        ({"membership": {"static": True}}, "--static needs a name"),
    ],
)
def test_what_settings_may_be_the_flags_own_checks_say(settings: object, sentence: str) -> None:
    assert sentence in problem(parse(["--group-id=g"], flags(settings)), ("cooperative-sticky",))
