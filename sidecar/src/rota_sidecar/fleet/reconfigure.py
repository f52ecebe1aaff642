"""
Applies new settings from Fleet while the sidecar runs: entirely or not at all.

Used by `fleet.orders`. Flags and variables take precedence over them, as they do over the settings file.
"""

from dataclasses import replace

from rota_proto.fleet.v1.settings_pb2 import GroupSettings
from rota_sidecar.config.flag_types import ConfigError
from rota_sidecar.config.loading import ConfigSources
from rota_sidecar.config.sidecar_config import SidecarConfig
from rota_sidecar.config.validation import assignor_problem
from rota_sidecar.delivery.driver import DeliveryDriver
from rota_sidecar.lifecycle.member import MemberLifecycle
from rota_sidecar.wiring import Strategies


class Reconfigurer:
    """Applies settings to one sidecar. Invariant: after `configure` returns a problem, the former settings are in force."""

    def __init__(
        self,
        sources: ConfigSources,
        config: SidecarConfig,
        strategies: Strategies,
        driver: DeliveryDriver,
        members: MemberLifecycle,
    ) -> None:
        """`config` is the one that `sources` has made."""
        self._sources = sources
        self._config = config
        self._strategies = strategies
        self._driver = driver
        self._members = members

    def suspend(self, *, suspended: bool) -> None:
        """Suspend or resume consumption."""
        self._driver.configure(replace(self._driver.config, suspended=suspended))

    def configure(self, settings: GroupSettings) -> str:
        """Apply the settings; return why they are refused, in one sentence, or an empty string."""
        try:
            sources = self._sources.with_settings(settings)
            config = sources.config()
        except ConfigError as error:
            return str(error)
        wrong = assignor_problem(config.assignors, self._strategies)
        if wrong:
            return f"assignment.strategy: {wrong}"
        fixed = self._sources.changed_fixed_setting(sources)
        if fixed:
            return f"{fixed} cannot be changed while the sidecar runs; restart its pod"
        before, self._config, self._sources = self._config, config, sources
        self._driver.configure(config.delivery)
        if config.assignors != before.assignors:
            self._members.offer(config.assignors)
        if config.subscription != before.subscription and config.has_subscription:
            self._driver.participation.subscribe(config.subscription)
        return ""
