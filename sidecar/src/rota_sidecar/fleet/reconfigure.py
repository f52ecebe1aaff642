"""
Applies new settings from Fleet while the sidecar runs: parsed as the settings file is, and applied entirely or not at all.

Used by `fleet.orders`. Flags and variables go before them, as they go before the file.
"""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace

from rota_sidecar.config import parse
from rota_sidecar.config.delivery_flags import delivery_config
from rota_sidecar.config.parsing import listed
from rota_sidecar.config.settings import SETTINGS, SettingsError, flags_of
from rota_sidecar.config.validation import problem
from rota_sidecar.delivery.driver import DeliveryDriver
from rota_sidecar.lifecycle.member import MemberLifecycle
from rota_sidecar.wiring import Strategies, offers_of, subscription

# What the member and the readers are made with.
FIXED = (
    "session-timeout-ms",
    "heartbeat-interval-ms",
    "rebalance-timeout-ms",
    "max-moved-partitions-percent",
    "static",
    "ordering",
    "delivery-url",
    "delivery-timeout-ms",
)
PATHS = {flag: path for path, (flag, _) in SETTINGS.items() if flag}


class Reconfigurer:
    """Applies settings to one sidecar. Invariant: after `configure` returns a problem, the former settings are in force."""

    def __init__(
        self,
        options: argparse.Namespace,
        arguments: Sequence[str],
        strategies: Strategies,
        driver: DeliveryDriver,
        members: MemberLifecycle,
    ) -> None:
        self._options = options
        self._arguments = arguments
        self._strategies = strategies
        self._driver = driver
        self._members = members

    def suspend(self, *, suspended: bool) -> None:
        """Suspend or resume consumption."""
        self._options.suspend = suspended
        self._driver.configure(replace(self._driver.config, suspended=suspended))

    def configure(self, settings: bytes) -> str:
        """Why that cannot be done, in one sentence; nothing when it is done."""
        try:
            flags = flags_of(settings)
        except SettingsError as error:
            return str(error)
        wanted = parse(self._arguments, flags)
        # An order of Fleet gave it.
        wanted.group_instance_id = self._options.group_instance_id
        wrong = problem(wanted, self._strategies) or self._fixed_problem(wanted, flags)
        if wrong:
            return wrong
        before, self._options = self._options, wanted
        self._driver.configure(delivery_config(wanted))
        if listed(wanted.assignors) != listed(before.assignors):
            offers = offers_of(self._strategies)
            self._members.offer(tuple(offers[name] for name in listed(wanted.assignors)))
        if subscription(wanted) != subscription(before) and (wanted.topics or wanted.topic_pattern):
            self._driver.participation.subscribe(subscription(wanted))
        return ""

    def _fixed_problem(self, wanted: argparse.Namespace, flags: Mapping[str, str]) -> str:
        for flag in FIXED:
            dest = flag.replace("-", "_")
            if getattr(wanted, dest) != getattr(self._options, dest):
                return f"{PATHS[flag]} cannot be changed while the sidecar runs: restart its pod"
        return ""
