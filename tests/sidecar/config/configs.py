"""Make configurations as the program does, with the variables of the test's own environment."""

import os
from collections.abc import Mapping, Sequence

from rota_sidecar.config.flag_types import ConfigError
from rota_sidecar.config.loading import read_sources
from rota_sidecar.config.settings import parse_json
from rota_sidecar.config.sidecar_config import SidecarConfig
from rota_sidecar.config.validation import assignor_problem


def config_of(
    arguments: Sequence[str], settings: bytes = b"{}", environ: Mapping[str, str] = os.environ
) -> SidecarConfig:
    """The configuration of a command line and of settings. Raises ConfigError."""
    return read_sources(arguments, environ).with_settings(parse_json(settings)).config()


def refusal(arguments: Sequence[str], strategies: Sequence[str], settings: bytes = b"{}") -> str:
    """Why the sidecar does not start with that; empty: it does."""
    try:
        return assignor_problem(config_of(arguments, settings).assignors, strategies)
    except ConfigError as error:
        return str(error)
