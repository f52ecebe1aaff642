"""Failures of applications and their sidecars, each story once for both backends. Every one returns its history."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from tests.sidecar.delivery.rounds.crew import EVERYTHING, Crew, crew_of
from tests.sidecar.delivery.rounds.engine import Position
from tests.sidecar.delivery.rounds.history import History, done_by
from tests.sidecar.delivery.rounds.member import Member, Setting
from tests.support.processes import steady_ms
from tests.support.sidecar import Event

HANG_TIMEOUT_MS = 2_000
RETRIES = 2

Act = Callable[[Crew], None]


def restarts_kills_and_freezes(
    folder: Path, setting: Setting, seed: int, acts: Sequence[Act] = ()
) -> History:
    """Every pod is replaced; then one container after the other is killed, a pod is, and one is frozen; or `acts`."""
    with crew_of(folder, setting, seed) as crew:
        for seat in crew.chance.sample(range(len(crew.members)), len(crew.members)):
            crew.restart(crew.members[seat])
        crew.catch_up()
        acts = acts or (kill_sidecar, kill_app, kill_pod, freeze)
        for act in crew.chance.sample(acts, len(acts)):
            act(crew)
            crew.settle()
            crew.catch_up()
    return outcome_of(crew)


def kill_sidecar(crew: Crew) -> None:
    """Its container starts again at once, and remembers who it was."""
    member = crew.draw()
    crew.hit("kill -9 of a sidecar", member.partitions)
    member.kill_sidecar()
    member.sidecar.start()


def kill_app(crew: Crew) -> None:
    """Its container starts again at once."""
    member = crew.draw()
    crew.hit("kill -9 of an application", member.partitions)
    member.kill_app()
    member.app.start()


def kill_pod(crew: Crew) -> None:
    """Both at once; another pod comes, which knows nothing of it."""
    member = crew.draw()
    crew.hit("kill -9 of both", member.partitions)
    member.kill_app()
    member.kill_sidecar()
    crew.replace(member)


def freeze(crew: Crew) -> None:
    """A pod that stands still beyond its session wakes up with verdicts on records that others have done since."""
    member = crew.draw()
    had = member.partitions
    crew.hit("SIGSTOP of both, beyond the session", had)
    # By a record: at any other moment it may be done with all it has, and its verdicts on their way.
    crew.source.put(min(had), member.freezes)
    crew.until("the application stands still in the middle of a record", member.has_frozen_itself)
    member.freeze_sidecar()
    crew.wait_for_new_owners(had, member)
    crew.catch_up()
    woken_ms = steady_ms()
    member.wake_app()
    crew.until("the woken application is done with a record", lambda: member.has_done_since(woken_ms))
    member.wake_sidecar()


def hangs(folder: Path, setting: Setting, seed: int) -> History:
    """One application hangs on a record, and later one stands still as a whole; their sidecars live."""
    flags = [*setting.flags, f"--processing-timeout-ms={HANG_TIMEOUT_MS}"]
    with crew_of(folder, replace(setting, flags=flags), seed) as crew:
        hang_on_a_record(crew)
        stand_still(crew)
    return outcome_of(crew)


def hang_on_a_record(crew: Crew) -> None:
    """A hung application rejoins when its container starts again."""
    member = crew.draw()
    had = member.partitions
    crew.hit("an application hangs on a record", had)
    position = crew.source.put(min(had), member.hangs)
    wait_until_it_is_out(crew, member, had)
    assert position in done_since(crew, 0), "another one has done it"
    member.kill_app()
    member.app.start()
    wait_until_it_is_back(crew, member)


def stand_still(crew: Crew) -> None:
    """A frozen application rejoins when it continues."""
    member = crew.draw()
    had = member.partitions
    crew.hit("an application stands still", had)
    member.freeze_app()
    wait_until_it_is_out(crew, member, had)
    member.wake_app()
    wait_until_it_is_back(crew, member)


def wait_until_it_is_out(crew: Crew, member: Member, had: frozenset[int]) -> None:
    """Its sidecar says so, and others do its work."""
    crew.until(
        f"{member.name} says that it waits for a verdict",
        lambda: "has given no verdict on a record" in member.sidecar.unready_because,
    )
    crew.wait_for_new_owners(had, member)
    crew.catch_up()
    assert "has given no verdict on a record" in member.sidecar.unready_because, "it stays out"


def wait_until_it_is_back(crew: Crew, member: Member) -> None:
    """Wait until the member has its share, and is ready."""
    crew.settle()
    crew.until(f"{member.name} is ready", lambda: member.sidecar.is_ready)
    crew.catch_up()


def poison(folder: Path, setting: Setting, seed: int) -> History:
    """One record kills its application each time, another one fails each time."""
    dead_letters = f"{setting.topic}.dlq"
    setting.engine.make_topic(dead_letters, 1)
    flags = [*setting.flags, f"--dead-letter-topic={dead_letters}", f"--retries={RETRIES}", "--backoff-ms=50"]
    with crew_of(folder, replace(setting, flags=flags), seed) as crew:
        one, another = crew.chance.sample(crew.members, 2)
        neighbours = EVERYTHING - one.partitions
        crew.hit("records that fail and kill")
        put_ms = steady_ms()
        crew.has_deaths = True
        kills = crew.source.put(min(one.partitions), "die")
        fails = crew.source.put(min(another.partitions), "fail")
        crew.dead |= {kills, fails}
        wait_for_commit_after(crew, fails)
        assert "fail" in setting.engine.values_in(dead_letters)
        assert deliveries_of(crew, another, fails) == list(range(1, RETRIES + 2))
        wait_for_commit_after(crew, kills)
        assert sorted(setting.engine.values_in(dead_letters)) == ["die", "fail"]
        # What lay behind the record that fails had to wait for its letter, which may have come last of all.
        behind = {fails.partition}
        assert neighbours - partitions_done_since(crew, put_ms) <= behind
        crew.until("what lay behind goes on", lambda: behind <= partitions_done_since(crew, put_ms))
        crew.has_deaths = False
        crew.settle()
        crew.catch_up()
        without_dead_letters(folder, setting, crew, fails)
    return outcome_of(crew)


def wait_for_commit_after(crew: Crew, position: Position) -> None:
    """The group has got rid of that record."""
    crew.until(
        f"{position} is a dead letter, and committed",
        lambda: crew.watch.last.get(position.partition, 0) > position.offset,
    )


def without_dead_letters(folder: Path, setting: Setting, crew: Crew, fails: Position) -> None:
    """Another group, in which the partition of a record that fails stands still, and no other does."""
    flags = [*setting.flags, "--retries=1", "--backoff-ms=50"]
    group = f"{setting.group}-plain"
    member = Member(folder, replace(setting, group=group, flags=flags, rules={"fail": "retry"}), 0)
    ends = {partition: end for partition, end in crew.source.ends.items() if partition != fails.partition}

    def stands_and_others_flow() -> bool:
        committed = setting.engine.committed(group, setting.topic)
        return f"{setting.topic}-{fails.partition}: offset {fails.offset} failed permanently" in (
            member.sidecar.unready_because
        ) and all(committed.get(partition, 0) >= end for partition, end in ends.items())

    try:
        member.start()
        crew.until("the partition of a record that fails stands, and others flow", stands_and_others_flow)
        assert setting.engine.committed(group, setting.topic)[fails.partition] == fails.offset
    finally:
        member.close()


def outcome_of(crew: Crew) -> History:
    """Return the history, once everything is done."""
    assert crew.outcome is not None
    return crew.outcome


def done_since(crew: Crew, at_ms: int) -> set[Position]:
    """By whomever."""
    topic = crew.setting.topic
    done = (each for member in crew.members for each in done_by(member.name, topic, member.app.events))
    return {each.position for each in done if each.at_ms >= at_ms}


def partitions_done_since(crew: Crew, at_ms: int) -> set[int]:
    """Return the partitions of which records were completed since then."""
    return {position.partition for position in done_since(crew, at_ms)}


def deliveries_of(crew: Crew, member: Member, position: Position) -> list[int]:
    """As the application counted them when it judged that record."""

    def is_it(event: Event) -> bool:
        return event["event"] == "done" and Position(event["partition"], event["first"]) == position

    return [event["deliveries"] for event in member.app.events if is_it(event)]
