"""
The drain orders in force: source, expiry and next step of each. Without IO or clocks; used by `drain`.

An order comes from SIGTERM, from the drain socket or from Fleet. A later order from the same source replaces the
earlier one. Each order except that of SIGTERM expires, so a drain that is not followed by the end of the process ends
by itself.
"""

from dataclasses import dataclass
from enum import Enum


class Source(Enum):
    """Origin of an order."""

    SIGNAL = "signal"
    SOCKET = "socket"
    FLEET = "fleet"


class OnExpiry(Enum):
    """Action at the expiry of an order."""

    RESUME = "resume"
    # Leave the group, as a static member too, and end the process.
    LEAVE = "leave"


@dataclass(frozen=True, slots=True)
class DrainOrder:
    """Drain until `expires_ms`; None: until the process ends."""

    expires_ms: int | None
    then: OnExpiry = OnExpiry.RESUME


class DrainOrders:
    """Invariant: at most one order of each source is in force."""

    def __init__(self) -> None:
        self._orders: dict[Source, DrainOrder] = {}

    def give(self, source: Source, order: DrainOrder) -> bool:
        """Put an order in force; return False if it replaces one of the same source."""
        is_new = source not in self._orders
        self._orders[source] = order
        return is_new

    def has(self, source: Source) -> bool:
        """Return True if an order of that source is in force."""
        return source in self._orders

    def expire(self, now_ms: int) -> OnExpiry | None:
        """
        Remove the orders that have expired by `now_ms`; return what follows, None while another order is in force.

        An order that ends in LEAVE stays in force until the process has ended.
        """
        due = {source: order for source, order in self._orders.items() if _is_due(order, now_ms)}
        if not due or Source.SIGNAL in self._orders:
            return None
        if any(order.then is OnExpiry.LEAVE for order in due.values()):
            return OnExpiry.LEAVE
        for source in due:
            del self._orders[source]
        return None if self._orders else OnExpiry.RESUME

    @property
    def next_expiry_ms(self) -> int | None:
        """The time at which `expire` is due; None: never."""
        if Source.SIGNAL in self._orders:
            return None
        return min(
            (order.expires_ms for order in self._orders.values() if order.expires_ms is not None),
            default=None,
        )

    @property
    def leaves_for_good(self) -> bool:
        """True if the group continues without the member: a static member then leaves when the process ends."""
        return Source.FLEET in self._orders or any(
            each.then is OnExpiry.LEAVE for each in self._orders.values()
        )

    def reason(self, now_ms: int) -> str:
        """Return the reason and the end of the drain, without a period; empty: no order is in force."""
        if Source.SIGNAL in self._orders:
            return "the process is ending"
        for source, reason in (
            (Source.SOCKET, "a drain was requested on the drain socket"),
            (Source.FLEET, "Fleet ordered a drain"),
        ):
            order = self._orders.get(source)
            if order is not None and order.expires_ms is not None:
                left_s = max(0, -(-(order.expires_ms - now_ms) // 1000))
                return f"{reason}; the member {_what_follows(order.then)} in {left_s} s unless its process ends first"
        return ""


def _is_due(order: DrainOrder, now_ms: int) -> bool:
    return order.expires_ms is not None and order.expires_ms <= now_ms


def _what_follows(then: OnExpiry) -> str:
    return "resumes" if then is OnExpiry.RESUME else "leaves the group"
