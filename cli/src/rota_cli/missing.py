"""What is said of topics that are not there."""

from collections.abc import Sequence

from rota_cli.failures import NotFound


def no_topic(names: Sequence[str], servers: str) -> NotFound:
    """None of these names."""
    named = "no topic" if len(names) == 1 else "no topics"
    return NotFound(
        f"there is {named} {', '.join(names)} at {servers}: see `rota topics list`, or make it with "
        "`rota topics create`"
    )
