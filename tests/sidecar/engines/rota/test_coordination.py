"""The adapter to Rota's coordinator, on the real process: responses, events, and the messages of failures."""

import asyncio
import signal
from collections.abc import Coroutine, Iterator, Sequence
from pathlib import Path
from typing import get_args

import pytest

from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_sidecar.core.member.messages import Request
from rota_sidecar.engines.port import CoordinatorEvent, Disconnected, Refused, Unreachable
from rota_sidecar.engines.rota.connection import Credentials, Distrusted
from rota_sidecar.engines.rota.coordination import FRAMES, IN_FLIGHT_MAX, RotaCoordination
from tests.conformance.members import subscription
from tests.coordinator.fleet import Fleet, until
from tests.coordinator.security.test_security import FILE, TOKENS
from tests.support.certificates import Authority, Issued
from tests.support.coordinator import QUICK, Coordinator, serving

pytestmark = pytest.mark.process
GROUP = "shop.orders"
WITHIN_S = 60
STORY_S = 25
NOBODY = "127.0.0.1:1"


@pytest.fixture(scope="module")
def coordinator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Coordinator]:
    with serving(tmp_path_factory.mktemp("coordinator")) as running:
        running.make_topic("events")
        yield running


class Events:
    """The events of a coordination."""

    def __init__(self) -> None:
        self._events: asyncio.Queue[CoordinatorEvent] = asyncio.Queue()

    def __call__(self, event: CoordinatorEvent) -> None:
        self._events.put_nowait(event)

    async def next(self) -> CoordinatorEvent:
        return await self._events.get()

    @property
    def silent(self) -> bool:
        return self._events.empty()


def run(story: Coroutine[None, None, None]) -> None:
    """A story that comes to an end."""

    async def bounded() -> None:
        async with asyncio.timeout(STORY_S):
            await story

    asyncio.run(bounded())


def adapter(
    addresses: Sequence[str],
    events: Events | None = None,
    *,
    credentials: Credentials | None = None,
    group: str = GROUP,
) -> RotaCoordination:
    return RotaCoordination(group, addresses, credentials or Credentials(), events or Events())


def trusting(authority: Path, certificate: Path, key: Path) -> Credentials:
    return Credentials(tls=True, ca_file=authority, certificate_file=certificate, key_file=key)


def join_request(member_id: str, group: str = GROUP) -> pb.JoinGroupRequest:
    return pb.JoinGroupRequest(
        group_id=group,
        member_id=member_id,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[pb.Protocol(name="range", metadata=subscription())],
    )


async def joined(coordination: RotaCoordination, group: str = GROUP) -> pb.JoinGroupResponse:
    """The member's first generation."""
    asked = await coordination.ask(join_request("", group), WITHIN_S)
    assert isinstance(asked, pb.JoinGroupResponse)
    assert asked.error_code == pb.MEMBER_ID_REQUIRED
    answer = await coordination.ask(join_request(asked.member_id, group), WITHIN_S)
    assert isinstance(answer, pb.JoinGroupResponse)
    assert answer.error_code == pb.NONE
    return answer


async def synced(coordination: RotaCoordination, join: pb.JoinGroupResponse) -> None:
    """The leader has decided."""
    answer = await coordination.ask(
        pb.SyncGroupRequest(
            group_id=GROUP,
            generation_id=join.generation_id,
            member_id=join.member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[pb.Assignment(member_id=join.member_id, assignment=b"\x00\x00")],
        ),
        WITHIN_S,
    )
    assert isinstance(answer, pb.SyncGroupResponse)
    assert answer.error_code == pb.NONE


async def left(coordination: RotaCoordination, member_id: str) -> None:
    answer = await coordination.ask(
        pb.LeaveGroupRequest(group_id=GROUP, members=[pb.LeavingMember(member_id=member_id)]), WITHIN_S
    )
    assert isinstance(answer, pb.LeaveGroupResponse)
    assert answer.error_code == pb.NONE


def heartbeat() -> pb.HeartbeatRequest:
    return pb.HeartbeatRequest(group_id=GROUP, member_id="nobody")


def test_all_requests_of_a_group_and_its_notices_use_one_stream(coordinator: Coordinator) -> None:
    async def story() -> None:
        events = Events()
        first, second = adapter([coordinator.address], events), adapter([f"rota://{coordinator.address}/"])
        assert await first.find(WITHIN_S) == pb.NONE
        assert await second.find(WITHIN_S) == pb.NONE
        join = await joined(first)
        await synced(first, join)
        incarnation = await first.incarnation(WITHIN_S)
        assert incarnation is not None
        assert incarnation > 0
        waiting = asyncio.create_task(joined(second))
        notice = await events.next()
        assert isinstance(notice, pb.RebalanceNotice)
        assert (notice.member_id, notice.generation_id) == (join.member_id, join.generation_id)
        # While one join waits for the other members, everything else is answered.
        assert await first.ask(heartbeat(), WITHIN_S) == pb.HeartbeatResponse(error_code=pb.UNKNOWN_MEMBER_ID)
        again = await first.ask(join_request(join.member_id), WITHIN_S)
        assert isinstance(again, pb.JoinGroupResponse)
        both = await waiting
        assert again.generation_id == both.generation_id == join.generation_id + 1
        await left(first, join.member_id)
        await left(second, both.member_id)
        await first.close()
        await second.close()
        assert events.silent, "who closes hears nothing of it"

    run(story())


def test_offsets_and_requests_that_are_refused_come_back_as_they_are(coordinator: Coordinator) -> None:
    async def story() -> None:
        coordination = adapter([NOBODY, coordinator.address], group="offsets")
        assert await coordination.find(WITHIN_S) == pb.NONE
        offset = pb.PartitionOffset(index=3, offset=42, leader_epoch=-1, metadata="so far")
        commit = pb.CommitOffsetsRequest(
            group_id="offsets",
            generation_id=-1,
            topics=[pb.TopicOffsets(name="events", partitions=[offset])],
        )
        await coordination.ask(commit, WITHIN_S)
        fetched = await coordination.ask(pb.FetchOffsetsRequest(group_id="offsets", all=True), WITHIN_S)
        assert isinstance(fetched, pb.FetchOffsetsResponse)
        assert list(fetched.topics[0].partitions) == [
            pb.FetchedPartition(index=3, offset=42, leader_epoch=-1, metadata="so far")
        ]
        with pytest.raises(Refused, match="rejects the request"):
            await coordination.ask(pb.HeartbeatRequest(group_id="g" * 5_000), WITHIN_S)
        await coordination.ask(heartbeat(), WITHIN_S)  # the stream lives on
        await coordination.close()

    run(story())


def test_before_it_was_found_and_after_it_was_closed_nobody_can_be_asked(coordinator: Coordinator) -> None:
    async def story() -> None:
        events = Events()
        coordination = adapter([coordinator.address], events)
        for _ in range(2):
            with pytest.raises(Unreachable, match=f"not connected to the coordinator of group {GROUP}"):
                await coordination.ask(heartbeat(), WITHIN_S)
            await coordination.find(WITHIN_S)
            await coordination.close()
        assert events.silent

    run(story())


def test_whoever_waits_on_a_connection_that_is_given_up_learns_it(coordinator: Coordinator) -> None:
    async def story() -> None:
        events = Events()
        coordination, other = adapter([coordinator.address], events), adapter([coordinator.address])
        await coordination.find(WITHIN_S)
        await other.find(WITHIN_S)
        join = await joined(other)
        await synced(other, join)
        # It waits for the first member, which does not come.
        waiting = asyncio.create_task(joined(coordination))
        await coordination.ask(heartbeat(), WITHIN_S)  # the join was sent before
        assert await coordination.find(WITHIN_S) == pb.NONE
        with pytest.raises(Unreachable, match="was closed by this client"):
            await waiting
        assert events.silent
        await coordination.ask(heartbeat(), WITHIN_S)  # on the new connection
        await left(other, join.member_id)
        await coordination.close()
        await other.close()

    run(story())


def test_more_open_requests_than_the_limit_are_refused_at_once(coordinator: Coordinator) -> None:
    async def story() -> None:
        coordination = adapter([coordinator.address])
        await coordination.find(WITHIN_S)
        # A thousand answers may take a while on a busy machine.
        asked = [asyncio.create_task(coordination.ask(heartbeat(), STORY_S)) for _ in range(IN_FLIGHT_MAX)]
        # They begin in this order, and nothing is answered before all have begun.
        one_too_many = asyncio.create_task(coordination.ask(heartbeat(), WITHIN_S))
        with pytest.raises(Unreachable, match=f"{IN_FLIGHT_MAX} requests to .* are in flight already"):
            await one_too_many
        assert len(await asyncio.gather(*asked)) == IN_FLIGHT_MAX
        await coordination.close()

    run(story())


def test_a_coordinator_that_is_killed_is_noticed_by_all_who_wait(tmp_path: Path) -> None:
    coordinator = Coordinator(tmp_path)
    coordinator.start()

    async def story() -> None:
        events = Events()
        coordination, other = adapter([coordinator.address], events), adapter([coordinator.address])
        await coordination.find(WITHIN_S)
        await other.find(WITHIN_S)
        await synced(other, await joined(other))
        waiting = asyncio.create_task(joined(coordination))
        await coordination.ask(heartbeat(), WITHIN_S)
        coordinator.kill()
        with pytest.raises(Unreachable, match=f"^{coordinator.address} ended the connection"):
            await waiting
        gone = await events.next()
        assert isinstance(gone, Disconnected)
        assert coordinator.address in gone.reason
        with pytest.raises(Unreachable, match="ended the connection"):
            await coordination.ask(heartbeat(), WITHIN_S)
        with pytest.raises(Unreachable, match="Connection refused"):
            await coordination.find(WITHIN_S)
        await coordination.close()
        await other.close()

    run(story())


def test_a_clean_shutdown_of_the_coordinator_is_an_event_too(tmp_path: Path) -> None:
    coordinator = Coordinator(tmp_path)
    coordinator.start()

    async def story() -> None:
        events = Events()
        coordination = adapter([coordinator.address], events)
        await coordination.find(WITHIN_S)
        await asyncio.to_thread(coordinator.stop)
        event = await events.next()
        # In order, or cut off by gRPC when that takes too long: it was there, and ended it.
        assert isinstance(event, Disconnected)
        assert event.reason.startswith(f"{coordinator.address} ended the connection")
        await coordination.close()
        # gRPC's task that sends the requests ends with the stream; Python would log one that it destroys.
        await asyncio.gather(*asyncio.all_tasks() - {asyncio.current_task()})

    run(story())


def test_a_group_is_followed_to_the_server_that_takes_it_over(tmp_path: Path, database: str) -> None:
    fleet = Fleet(tmp_path, database, "ab")
    first, second = fleet.members.values()
    first.start()

    async def story() -> None:
        events = Events()
        # Of the second one it learns on the way.
        coordination = adapter([first.address], events)

        async def serves() -> bool:
            if await coordination.find(WITHIN_S) != pb.NONE:
                return False
            answer = await coordination.ask(heartbeat(), WITHIN_S)
            return answer == pb.HeartbeatResponse(error_code=pb.UNKNOWN_MEMBER_ID)

        await until(serves)  # it claims its slots one after the other
        join = await joined(coordination)
        await synced(coordination, join)
        await asyncio.to_thread(second.end_start)
        await until(fleet.is_shared_equally)
        await asyncio.to_thread(first.stop)
        assert await events.next() == pb.GoAway(group_id=GROUP, address=second.address)
        assert await coordination.find(WITHIN_S) == pb.NONE
        alive = pb.HeartbeatRequest(
            group_id=GROUP, member_id=join.member_id, generation_id=join.generation_id
        )
        assert await coordination.ask(alive, WITHIN_S) == pb.HeartbeatResponse()
        await coordination.close()

    second.begin_start()
    run(story())
    second.stop()


def test_a_frozen_coordinator_costs_no_more_than_the_time_it_is_given(tmp_path: Path) -> None:
    async def story(coordinator: Coordinator) -> None:
        coordination = adapter([coordinator.address])
        await coordination.find(WITHIN_S)
        coordinator.signal(signal.SIGSTOP)
        late = f"^{coordinator.address} did not answer within 0.3 s"
        with pytest.raises(Unreachable, match=late):
            await coordination.ask(heartbeat(), 0.3)
        with pytest.raises(Unreachable, match=late):
            await coordination.incarnation(0.3)
        fresh = adapter([coordinator.address])
        with pytest.raises(Unreachable, match=late):
            await fresh.find(0.3)
        coordinator.signal(signal.SIGCONT)
        await coordination.ask(heartbeat(), WITHIN_S)  # the late answer to the first one harms nobody
        await coordination.close()

    with serving(tmp_path) as coordinator:
        run(story(coordinator))


def test_a_wrong_address_is_named(coordinator: Coordinator) -> None:
    async def story() -> None:
        with pytest.raises(Unreachable, match=f"^{NOBODY} cannot be reached .*check that it is running"):
            await adapter([NOBODY]).find(WITHIN_S)
        with pytest.raises(Unreachable, match=r"nobody\.invalid:7070 cannot be reached"):
            await adapter(["rota://nobody.invalid:7070"]).find(WITHIN_S)
        http = coordinator.http
        with pytest.raises(Unreachable, match=f"^{http}"):
            await adapter([http]).find(WITHIN_S)

    run(story())


def test_a_coordinator_that_names_a_wrong_address_of_itself_is_named_with_it(tmp_path: Path) -> None:
    async def story(address: str) -> None:
        said = f"^{NOBODY} is the coordinator of group {GROUP}, but {NOBODY} cannot be reached"
        with pytest.raises(Unreachable, match=said):
            await adapter([address]).find(WITHIN_S)

    with serving(tmp_path, [*QUICK, f"--advertise={NOBODY}"]) as coordinator:
        run(story(coordinator.address))


def test_a_wrong_token_and_a_forbidden_group_have_different_errors(tmp_path: Path) -> None:
    tokens, token = tmp_path / "tokens", tmp_path / "token"
    for file in (tokens, token):
        file.touch(mode=0o600)
    tokens.write_text(FILE)

    async def story(address: str) -> None:
        shows = adapter([address], credentials=Credentials(token_file=token))
        for wrong in ("wrong-canary", "", "two\nlines", "naïve"):
            token.write_text(wrong)
            with pytest.raises(Refused, match=r"token") as refused:
                await shows.find(WITHIN_S)
            assert "canary" not in str(refused.value)
        with pytest.raises(Refused, match="cannot authenticate this client"):
            await adapter([address]).find(WITHIN_S)
        token.write_text(TOKENS["stranger"])
        assert await shows.find(WITHIN_S) == pb.GROUP_AUTHORIZATION_FAILED
        token.write_text(f"{TOKENS['reader']}\n")
        assert await shows.find(WITHIN_S) == pb.NONE, "the file is read anew"
        answer = await shows.ask(join_request(""), WITHIN_S)
        assert answer == pb.JoinGroupResponse(error_code=pb.GROUP_AUTHORIZATION_FAILED, generation_id=-1)
        token.unlink()
        with pytest.raises(Refused, match="cannot be read"):
            await shows.find(WITHIN_S)
        await shows.close()

    with serving(tmp_path, [*QUICK, f"--tokens-file={tokens}"]) as guarded:
        run(story(guarded.address))


def test_each_kind_of_wrong_certificate_has_its_own_error(tmp_path: Path) -> None:
    ours, foreign = Authority(tmp_path / "ours"), Authority(tmp_path / "foreign")
    server, client, stranger = ours.issue("coordinator"), ours.issue("client"), foreign.issue("stranger")
    flags = [
        f"--tls-cert={server.certificate}",
        f"--tls-key={server.key}",
        f"--tls-client-ca={ours.certificate}",
    ]

    async def story(address: str) -> None:
        right = trusting(ours.certificate, client.certificate, client.key)
        coordination = adapter([address], credentials=right)
        assert await coordination.find(WITHIN_S) == pb.NONE
        await coordination.ask(heartbeat(), WITHIN_S)
        assert await coordination.incarnation(WITHIN_S) == 0, "there is no such group yet"
        await coordination.close()
        ca, pair = ours.certificate, (client.certificate, client.key)
        for credentials, error, message in (
            (
                Credentials(tls=True, ca_file=foreign.certificate),
                Distrusted,
                "is not trusted .*unable to get",
            ),
            (Credentials(tls=True), Distrusted, "is not trusted .*check the CA file"),
            (Credentials(), Unreachable, "check that it is running, and whether it requires TLS"),
            (Credentials(tls=True, ca_file=ca), Unreachable, "requires another client certificate"),
            (trusting(ca, stranger.certificate, stranger.key), Unreachable, "another client cert"),
            (trusting(ca, pair[0], stranger.key), Refused, "not certificates with their key"),
            (trusting(server.key, *pair), Refused, "not certificates with their key"),
            (trusting(tmp_path / "none", *pair), Refused, "none cannot be read"),
        ):
            with pytest.raises(error, match=message) as wrong:
                await adapter([address], credentials=credentials).find(WITHIN_S)
            assert "OPENSSL" not in str(wrong.value)
            assert type(wrong.value) is error

    with serving(tmp_path, [*QUICK, *flags]) as guarded:
        run(story(guarded.address))


def test_a_member_goes_on_trying_while_its_file_lacks_the_new_authority(tmp_path: Path) -> None:
    """A release that is removed and installed again has another authority, which reaches the pods' files a minute later."""
    old, new = Authority(tmp_path / "old"), Authority(tmp_path / "new")
    first = old.issue("coordinator")
    used = Issued(tmp_path / "tls.crt", tmp_path / "tls.key")
    used.certificate.write_bytes(first.certificate.read_bytes())
    used.key.write_bytes(first.key.read_bytes())
    trusted = tmp_path / "ca.crt"
    trusted.write_bytes(old.certificate.read_bytes())
    flags = [f"--tls-cert={used.certificate}", f"--tls-key={used.key}"]

    async def story(address: str) -> None:
        def member() -> RotaCoordination:
            return adapter([address], credentials=Credentials(tls=True, ca_file=trusted))

        coordination = member()
        assert await coordination.find(WITHIN_S) == pb.NONE
        used.replace(new.issue("coordinator"))
        with pytest.raises(
            Unreachable, match=r"is not trusted .*; retrying until the file has its new authority"
        ):
            await coordination.find(WITHIN_S)
        with pytest.raises(Refused, match="is not trusted"):
            await member().find(WITHIN_S)
        trusted.write_bytes(new.certificate.read_bytes())
        assert await coordination.find(WITHIN_S) == pb.NONE
        await coordination.close()

    with serving(tmp_path, [*QUICK, *flags]) as secured:
        run(story(secured.address))


def test_a_server_without_tls_is_named_to_whoever_dials_with_it(coordinator: Coordinator) -> None:
    async def story() -> None:
        with pytest.raises(Refused, match="has no TLS"):
            await adapter([coordinator.address], credentials=Credentials(tls=True)).find(WITHIN_S)

    run(story())


def test_every_request_of_a_member_has_its_frame() -> None:
    fields = pb.SessionRequest.DESCRIPTOR.fields_by_name
    assert set(FRAMES) == set(get_args(Request))
    for kind, name in FRAMES.items():
        assert fields[name].message_type is kind.DESCRIPTOR
