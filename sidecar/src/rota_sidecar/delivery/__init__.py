"""The asyncio driver of the delivery core: events in from engines, member and application, effects out to them."""
