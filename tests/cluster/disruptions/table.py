"""The table of disruptions: repeats, rebalances and the time without an owner, by what was done."""

from collections.abc import Iterator
from statistics import median

from tests.cluster.disruptions.story import Story


def lines(story: Story) -> Iterator[str]:
    """A table for people, of one workload."""
    setting, history = story.setting, story.history()
    membership = "static" if setting.is_static else "dynamic"
    yield f"{setting.namespace}: {setting.kind}, {membership}, {len(history.acknowledged)} records"
    yield f"  {'what':<32}{'repeats':>9}{'rebalances':>12}{'moved':>7}{'unowned p50':>13}{'max s':>7}"
    after = [*story.generations[1:], story.generation()]
    for hit, (first, last) in zip(history.hits, zip(story.generations, after, strict=True), strict=True):
        unowned = [gap.unowned_ms / 1000 for gap in history.gaps if gap.what == hit.what]
        p50, highest = (f"{median(unowned):.2f}", f"{max(unowned):.2f}") if unowned else ("-", "-")
        yield (
            f"  {hit.what:<32}{history.repeats(hit.what):>9}{last - first:>12}{len(unowned):>7}{p50:>13}{highest:>7}"
        )
