"""Deliver: credit, records, verdicts, and an application that gets it wrong."""

from collections.abc import Sequence

import pytest

from rota_proto.sidecar.v1 import sidecar_pb2 as pb
from rota_sidecar.application import attachment
from rota_sidecar.application.allowance import UNSENT_BYTES_MAX
from rota_sidecar.application.wellformed import CREDIT_MAX
from rota_sidecar.core.delivery import actions as do
from rota_sidecar.core.delivery import events as on
from rota_sidecar.core.ledger.rules import Verdict
from tests.sidecar.application.fakes import P0, P1, batch, batch_slice, damaged, handed, rebalance_event
from tests.sidecar.application.talking import (
    Code,
    DeliverStream,
    Play,
    Talk,
    at,
    credit,
    ended,
    judged,
    judgement,
    values,
)

pytestmark = pytest.mark.process
LIMIT = 4 << 20


async def message_of(stream: DeliverStream) -> pb.DeliverResponse:
    response = await stream.read()
    assert isinstance(response, pb.DeliverResponse)
    return response


def test_credit_is_passed_on(play: Play) -> None:
    async def story(talk: Talk) -> None:
        await talk.attach()
        stream = await talk.deliver()
        await stream.write(credit(3))
        await stream.write(credit(4))
        await talk.deliveries.until(lambda: talk.deliveries.credit == 7)

    play(story)


def test_what_is_handed_out_together_comes_in_one_message(play: Play) -> None:
    async def story(talk: Talk) -> None:
        await talk.attach()
        stream = await talk.deliver()
        await stream.write(credit(10))
        await talk.deliveries.until(lambda: talk.deliveries.credit)
        talk.deliveries.there.deliver(
            [
                handed(batch_slice(batch(5, [b"a", b"b"])), batch_slice(batch(9, [b"c"]))),
                handed(batch_slice(batch(1, [b"d"])), partition=P1, delivery_epoch=2, deliveries=3),
            ]
        )
        first, second = (await message_of(stream)).partitions
        assert first.partition == at("orders", 0)
        assert (first.delivery_epoch, first.deliveries, first.first_offset) == (1, 1, 5)
        assert first.tenure == pb.Tenure(member_id="member-1", generation_id=4, incarnation=77, number=1)
        assert values([first]) == [(5, b"a"), (6, b"b"), (9, b"c")]
        assert (second.delivery_epoch, second.deliveries) == (2, 3)
        assert values([second]) == [(1, b"d")]

    play(story)


def test_what_does_not_fit_into_a_message_comes_in_the_next_ones_in_order(play: Play) -> None:
    batches = [batch(number * 10, [bytes([number]) * 200_000] * 10) for number in range(5)]

    async def story(talk: Talk) -> None:
        await talk.attach()
        stream = await talk.deliver()
        await stream.write(credit(50))
        await talk.deliveries.until(lambda: talk.deliveries.credit)
        talk.deliveries.there.deliver([handed(*map(batch_slice, batches))])
        found: list[tuple[int, bytes | None]] = []
        messages = 0
        while len(found) < 50:
            message = await message_of(stream)
            assert message.ByteSize() <= LIMIT
            found += values(message.partitions)
            messages += 1
        assert [offset for offset, _ in found] == list(range(50))
        assert messages == 3

    play(story)


def test_a_batch_that_is_too_large_alone_comes_in_parts(play: Play) -> None:
    large = batch(0, [bytes([number]) * 1_500_000 for number in range(5)])

    async def story(talk: Talk) -> None:
        await talk.attach()
        stream = await talk.deliver()
        await stream.write(credit(5))
        await talk.deliveries.until(lambda: talk.deliveries.credit == 5)
        talk.deliveries.there.deliver([handed(batch_slice(large))])
        found: list[tuple[int, bytes | None]] = []
        while len(found) < 5:
            message = await message_of(stream)
            assert message.ByteSize() <= LIMIT
            found += values(message.partitions)
        assert [(offset, (value or b"")[:1]) for offset, value in found] == [
            (number, bytes([number])) for number in range(5)
        ]

    play(story)


def test_a_record_that_fits_into_no_message_is_a_dead_letter_and_takes_no_credit(play: Play) -> None:
    async def story(talk: Talk) -> None:
        await talk.attach()
        stream = await talk.deliver()
        await stream.write(credit(2))
        await talk.deliveries.until(lambda: talk.deliveries.credit == 2)
        talk.deliveries.there.deliver(
            [handed(batch_slice(batch(7, [b"x" * LIMIT]))), handed(batch_slice(batch(8, [b"y"])))]
        )
        assert values((await message_of(stream)).partitions) == [(8, b"y")]
        await talk.deliveries.until(lambda: talk.deliveries.credit == 3)
        (verdict,) = talk.deliveries.judgements
        assert (verdict.first, verdict.last, verdict.verdict) == (7, 7, Verdict.DEAD_LETTER)
        assert "too many for a message of 4 MiB" in verdict.reason

    play(story)


def test_records_that_nobody_can_unpack_are_dead_letters(play: Play) -> None:
    async def story(talk: Talk) -> None:
        await talk.attach()
        stream = await talk.deliver()
        await stream.write(credit(10))
        await talk.deliveries.until(lambda: talk.deliveries.credit == 10)
        talk.deliveries.there.deliver([handed(batch_slice(damaged(3, 4), 3, 5))])
        await talk.deliveries.until(lambda: talk.deliveries.credit == 12)
        assert [(each.first, each.verdict) for each in talk.deliveries.judgements] == [
            (3, Verdict.DEAD_LETTER),
            (4, Verdict.DEAD_LETTER),
        ]

    play(story)


def test_only_the_first_batch_may_begin_before_what_is_meant(play: Play) -> None:
    whole = [batch(0, [b"a", b"b", b"c"]), batch(3, [b"d", b"e", b"f"])]

    async def story(talk: Talk) -> None:
        await talk.attach()
        stream = await talk.deliver()
        await stream.write(credit(10))
        await talk.deliveries.until(lambda: talk.deliveries.credit)
        talk.deliveries.there.deliver([handed(batch_slice(whole[0], 1), batch_slice(whole[1], 4))])
        groups = (await message_of(stream)).partitions
        assert [group.first_offset for group in groups] == [1, 4]
        assert values(groups) == [(1, b"b"), (2, b"c"), (4, b"e"), (5, b"f")]

    play(story)


def test_who_grants_much_and_reads_nothing_is_handed_little(play: Play) -> None:
    """Records for a slow reader wait where they were prefetched."""

    async def story(talk: Talk) -> None:
        await talk.attach()
        stream = await talk.deliver()
        await stream.write(credit(CREDIT_MAX))
        await talk.deliveries.until(lambda: talk.deliveries.credit)
        delivered = 0
        sent: list[int] = []
        # As deliveries do: as many as there is credit for, and no more. The stream is not read.
        while talk.deliveries.credit > delivered:
            for first in range(delivered, talk.deliveries.credit, 1_000):
                count = min(1_000, talk.deliveries.credit - first)
                talk.deliveries.there.deliver([handed(batch_slice(batch(first, [b"x" * 5_000] * count)))])
            delivered = talk.deliveries.credit
            sent.append(delivered)
        guess = UNSENT_BYTES_MAX // 1_024
        assert sent[0] == guess
        assert delivered <= 2 * guess
        found = 0
        while found < delivered:
            found += len(values((await message_of(stream)).partitions))
        await talk.deliveries.until(lambda: talk.deliveries.credit > delivered)

    play(story)


def test_verdicts_are_posted_as_they_are_given(play: Play) -> None:
    async def story(talk: Talk) -> None:
        await talk.attach()
        stream = await talk.deliver()
        await stream.write(
            judged(
                judgement(1, last_offset=4),
                judgement(5, pb.RETRY, retry_after_ms=250),
                judgement(6, pb.RETRY),
                judgement(7, pb.DEAD_LETTER, reason="no such customer"),
                judgement(8, pb.SKIP, last_offset=9, about=("orders", 0, 2)),
            )
        )
        await talk.deliveries.until(lambda: talk.deliveries.judgements)
        assert talk.deliveries.judgements == [
            on.Judgement(1, P0, 1, 4, Verdict.ACK),
            on.Judgement(1, P0, 5, 5, Verdict.RETRY, 250),
            on.Judgement(1, P0, 6, 6, Verdict.RETRY),
            on.Judgement(1, P0, 7, 7, Verdict.DEAD_LETTER, None, "no such customer"),
            on.Judgement(2, P0, 8, 9, Verdict.SKIP),
        ]

    play(story)


def test_what_the_application_was_wrong_about_is_said_and_the_stream_goes_on(play: Play) -> None:
    async def story(talk: Talk) -> None:
        await talk.attach()
        stream = await talk.deliver()
        await stream.write(credit(1))
        await talk.deliveries.until(lambda: talk.deliveries.credit)
        talk.deliveries.there.refuse([do.Refuse(4, P1, 12, "offset 12 was never delivered")])
        assert (await message_of(stream)).refusals == [
            pb.DeliverResponse.Refusal(
                partition=at("orders", 1),
                delivery_epoch=4,
                offset=12,
                message="offset 12 was never delivered",
            )
        ]
        talk.deliveries.there.deliver([handed(batch_slice(batch(0, [b"a"])))])
        assert values((await message_of(stream)).partitions) == [(0, b"a")]

    play(story)


def test_who_is_wrong_all_the_time_and_does_not_look_is_ended(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attachment, "REFUSALS_MAX", 2)

    async def story(talk: Talk) -> None:
        stream = await talk.attach()
        talk.deliveries.there.refuse([do.Refuse(1, P0, offset, "no") for offset in range(3)])
        code, details = await ended(stream)
        assert code is Code.RESOURCE_EXHAUSTED
        assert details.startswith("2 judgements were refused")

    play(story)


WRONG: Sequence[tuple[pb.DeliverRequest, str]] = [
    (pb.DeliverRequest(), "the message has no request that this version knows"),
    (credit(0), "credit for 0 records; it must be 1 to 1000000"),
    (credit(-5), "credit for -5 records; it must be 1 to 1000000"),
    (judged(judgement(1, pb.VERDICT_UNSPECIFIED)), "invalid verdict 0; use ACK, RETRY, DEAD_LETTER or SKIP"),
    (judged(judgement(1, 9)), "invalid verdict 9; use ACK, RETRY, DEAD_LETTER or SKIP"),
    (judged(judgement(-1)), "a judgement has offset -1; it cannot be negative"),
    (judged(judgement(5, last_offset=4)), "a judgement has last_offset 4 before its offset 5"),
    (
        judged(judgement(5, pb.RETRY, last_offset=6)),
        "last_offset is for ACK and SKIP; other verdicts are for one record",
    ),
    (judged(judgement(5, retry_after_ms=6)), "retry_after_ms is for RETRY only"),
    (
        judged(judgement(5, pb.RETRY, retry_after_ms=-6)),
        "retry_after_ms is -6; it must be 0 to 86400000",
    ),
    (
        judged(judgement(5, about=("orders", 0, 0))),
        "a judgement has no delivery_epoch; return the one of its records",
    ),
    (
        judged(judgement(5, about=("", 0, 1))),
        "invalid topic name ''; expected 1 to 249 letters, digits, '.', '_' and '-'",
    ),
    (
        judged(judgement(5, about=("a", -1, 1))),
        "partition a/-1: the number of a partition cannot be negative",
    ),
    (
        judged(judgement(5, pb.DEAD_LETTER, reason="x" * 2_000)),
        "reason has 2000 characters; at most 1024 are allowed",
    ),
    (
        judged(*[judgement(each) for each in range(10_001)]),
        "10001 judgements in one request; send at most 10000",
    ),
    (
        pb.DeliverRequest(hello=pb.DeliverRequest.Hello(session=1)),
        "Deliver has one hello; open another stream for another session",
    ),
]


@pytest.mark.parametrize(("message", "details"), WRONG, ids=[details for _, details in WRONG])
def test_a_malformed_message_ends_the_attachment_and_nothing_of_it_is_posted(
    play: Play, message: pb.DeliverRequest, details: str
) -> None:
    async def story(talk: Talk) -> None:
        stream = await talk.attach()
        assert await ended(await talk.deliver(), message) == (Code.INVALID_ARGUMENT, details)
        code, why = await ended(stream)
        assert code is Code.ABORTED
        assert details in why
        assert talk.deliveries.events == []
        assert talk.deliveries.detached == [(1, False)]
        await talk.attach()

    play(story)


def test_all_judgements_are_validated_before_any_is_posted(play: Play) -> None:
    async def story(talk: Talk) -> None:
        await talk.attach()
        code, _ = await ended(await talk.deliver(), judged(judgement(1), judgement(-2)))
        assert code is Code.INVALID_ARGUMENT
        assert talk.deliveries.events == []

    play(story)


@pytest.mark.parametrize("garbage", [b"\xff\xff\xff", b"\x0a\x7f"])
@pytest.mark.parametrize("method", ["Attach", "Deliver"])
def test_bytes_that_are_no_message_are_refused_and_the_service_lives_on(
    play: Play, garbage: bytes, method: str
) -> None:
    async def story(talk: Talk) -> None:
        details = "the bytes are not the message that this method takes"
        assert await talk.raw(method, garbage) == (Code.INVALID_ARGUMENT, details)
        await talk.attach()

    play(story)


def test_a_message_of_a_hundred_megabytes_is_refused_and_the_service_lives_on(play: Play) -> None:
    async def story(talk: Talk) -> None:
        await talk.attach()
        code, details = await talk.raw("Deliver", b"\x00" * 100_000_000)
        assert code is Code.RESOURCE_EXHAUSTED
        assert "4194304" in details.replace(",", "")
        await (await talk.deliver()).write(credit(5))
        await talk.deliveries.until(lambda: talk.deliveries.credit == 5)

    play(story)


def test_more_credit_than_anybody_needs_is_refused(play: Play) -> None:
    async def story(talk: Talk) -> None:
        await talk.attach()
        code, details = await ended(await talk.deliver(), credit(CREDIT_MAX), credit(1))
        assert code is Code.INVALID_ARGUMENT
        assert "exceed the limit of 1000000" in details

    play(story)


def test_records_that_are_handed_out_again_come_in_a_turn_of_their_own(play: Play) -> None:
    async def story(talk: Talk) -> None:
        await talk.attach()
        stream = await talk.deliver()
        await stream.write(credit(4))
        await talk.deliveries.until(lambda: talk.deliveries.credit == 4)
        talk.deliveries.there.deliver(
            [handed(batch_slice(batch(0, [b"a", b"b"]))), handed(batch_slice(batch(2, [b"c"])), turn=1)]
        )
        assert [group.turn for group in (await message_of(stream)).partitions] == [0, 1]

    play(story)


@pytest.mark.parametrize("kind", [do.Kind.LOST, do.Kind.REVOKING, do.Kind.REVOKED])
def test_records_of_partitions_that_go_are_not_sent_any_more_and_take_no_credit(
    play: Play, kind: do.Kind
) -> None:
    async def story(talk: Talk) -> None:
        await talk.attach()
        first = await talk.deliver()
        await first.write(credit(4))
        await talk.deliveries.until(lambda: talk.deliveries.credit == 4)
        talk.deliveries.there.deliver(
            [
                handed(batch_slice(batch(0, [b"a", b"b", b"c"]))),
                handed(batch_slice(batch(0, [b"d"])), partition=P1, delivery_epoch=2),
            ]
        )
        # In the same turn of the loop: nothing was sent yet.
        talk.deliveries.there.on_assignment_event(rebalance_event(1, kind, P0))
        assert values((await message_of(first)).partitions) == [(0, b"d")]
        assert talk.deliveries.credit == 7

    play(story)


def test_after_a_seek_what_has_not_left_never_does(play: Play) -> None:
    async def story(talk: Talk) -> None:
        await talk.attach()
        talk.deliveries.answers.append(do.Answer(1, delivery_epoch=6))
        # Nobody takes them before the seek.
        talk.deliveries.there.deliver(
            [
                handed(batch_slice(batch(0, [b"old"])), delivery_epoch=6),
                handed(batch_slice(batch(9, [b"new"])), delivery_epoch=7),
                handed(batch_slice(batch(4, [b"other"])), delivery_epoch=3, partition=P1),
            ]
        )
        offsets = [pb.PartitionOffset(partition=at("orders", 0), offset=9)]
        answer = await talk.stub.Seek(pb.SeekRequest(offsets=offsets))
        assert answer == pb.SeekResponse(voided_delivery_epoch=6)
        stream = await talk.deliver()
        assert values((await message_of(stream)).partitions) == [(9, b"new"), (4, b"other")]
        assert talk.deliveries.credit == 1

    play(story)
