"""
The sidecar's connection to brokers with authentication and access control: accepted logins, and the messages of
refused ones.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_sidecar.engines.kafka.scram import PASSWORD_MECHANISMS
from rota_sidecar.engines.kafka.settings import KafkaSettings, Sasl, TlsFiles
from rota_sidecar.engines.kafka.topics import KafkaTopics
from rota_sidecar.engines.port import Refused, Unreachable
from tests.kafka.sidecar_group import WITHIN_S, member, run
from tests.support.certificates import Authority
from tests.support.kafka import Kafka, running
from tests.support.kafka.access import READ_GROUPS, READ_TOPICS, allow
from tests.support.kafka.security import Guarded
from tests.support.ports import free_port
from tests.support.processes import ProcessFailed, processor_s
from tests.support.sidecar import Sidecar
from tests.support.sidecar import running as running_sidecar

pytestmark = pytest.mark.kafka

ALLOWED = "allowed-"


@pytest.fixture(scope="module")
def guarded() -> Iterator[Kafka]:
    """Its user may read groups and topics that are named so, and nothing else."""
    with running(security="guarded") as kafka:
        for topic in (f"{ALLOWED}topic", "forbidden"):
            kafka.create_topic(topic, partitions=3)
        allow(kafka, security(kafka).user, ALLOWED, READ_GROUPS, READ_TOPICS)
        yield kafka


def security(kafka: Kafka) -> Guarded:
    assert isinstance(kafka.security, Guarded)
    return kafka.security


def settings(kafka: Kafka, mechanism: str = "SCRAM-SHA-512") -> KafkaSettings:
    """Settings of the user."""
    known = security(kafka)
    return KafkaSettings(
        (kafka.bootstrap,),
        tls=TlsFiles(known.ca, known.client.certificate, known.client.key),
        sasl=Sasl(mechanism, known.user, known.password),
    )


def refusal(wrong: KafkaSettings, group: str = f"{ALLOWED}group") -> str:
    """Message to a sidecar that looks for a coordinator with these settings; the second attempt gives the same one."""
    said: list[str] = []

    async def find() -> None:
        async with member(wrong, group) as one:
            for _ in range(2):
                with pytest.raises(Refused) as refused:
                    await one.coordination.find(WITHIN_S)
                said.append(str(refused.value))

    run(find())
    first, second = said
    assert first == second
    return first


@pytest.mark.parametrize("mechanism", PASSWORD_MECHANISMS)
def test_a_user_with_certificate_and_password_joins(guarded: Kafka, mechanism: str) -> None:
    async def join() -> None:
        async with member(settings(guarded, mechanism), f"{ALLOWED}{mechanism}", f"{ALLOWED}topic") as one:
            await one.serve()
            assert (await one.join()).error_code == pb.NONE
            assert (await one.sync(**{one.member_id: b""})).error_code == pb.NONE
            assert await one.heartbeat() == pb.NONE

    run(join())


@pytest.mark.parametrize("mechanism", PASSWORD_MECHANISMS)
def test_a_wrong_password_is_refused(guarded: Kafka, mechanism: str) -> None:
    right = settings(guarded)
    wrong = replace(right, sasl=Sasl(mechanism, security(guarded).user, "not-the-password"))
    assert refusal(wrong) == (
        f"Kafka at {guarded.bootstrap} rejects the login of user 'rota' with {mechanism}; "
        "check the user and the password"
    )


def test_an_unknown_user_is_refused_with_the_same_message(guarded: Kafka) -> None:
    stranger = replace(settings(guarded), sasl=Sasl("SCRAM-SHA-256", "stranger", "any"))
    assert "rejects the login of user 'stranger' with SCRAM-SHA-256" in refusal(stranger)


def test_a_group_that_the_user_may_not_read_is_an_answer(guarded: Kafka) -> None:
    async def find() -> None:
        async with member(settings(guarded), "forbidden") as one:
            assert await one.coordination.find(WITHIN_S) == pb.GROUP_AUTHORIZATION_FAILED
            with pytest.raises(Unreachable, match="not connected to the coordinator of group 'forbidden'"):
                await one.join()

    run(find())


def test_a_topic_that_the_user_may_not_read_is_refused_by_name_and_not_listed(guarded: Kafka) -> None:
    async def describe() -> None:
        topics = KafkaTopics(settings(guarded))
        assert list(await topics.describe(None, WITHIN_S)) == [f"{ALLOWED}topic"]
        with pytest.raises(
            Refused, match="Kafka does not authorize this user to describe topic 'forbidden'; allow it"
        ):
            await topics.describe([f"{ALLOWED}topic", "forbidden"], WITHIN_S)
        await topics.close()

    run(describe())


def test_a_certificate_that_is_not_trusted_is_refused(guarded: Kafka, tmp_path: Path) -> None:
    foreign = Authority(tmp_path / "foreign")
    said = refusal(replace(settings(guarded), tls=TlsFiles(foreign.certificate)))
    assert said.startswith(f"the certificate of Kafka at {guarded.bootstrap} is not trusted (")
    assert said.endswith("; check the CA file, and that the address is one of the certificate's names")


def test_a_missing_client_certificate_is_said_and_taken_once_it_is_there(
    guarded: Kafka, tmp_path: Path
) -> None:
    right = settings(guarded)
    assert "rejects the client certificate, or requires one" in refusal(
        replace(right, tls=TlsFiles(security(guarded).ca))
    )
    foreign = Authority(tmp_path / "foreign").issue("client")
    ours = replace(right, tls=TlsFiles(security(guarded).ca, foreign.certificate, foreign.key))
    assert "rejects the client certificate, or requires one" in refusal(ours)

    # Whoever renews it replaces the files; nothing is started anew.
    foreign.replace(security(guarded).client)

    async def find() -> None:
        async with member(ours, f"{ALLOWED}renewed") as one:
            await one.serve()

    run(find())


def test_a_missing_login_is_a_closed_connection(guarded: Kafka) -> None:
    async def find() -> None:
        async with member(replace(settings(guarded), sasl=None), f"{ALLOWED}group") as one:
            with pytest.raises(
                Unreachable, match=r"closed the connection before its first response; .* requires a login"
            ):
                await one.coordination.find(WITHIN_S)

    run(find())


def test_a_listener_with_tls_is_refused_without(guarded: Kafka) -> None:
    said = refusal(KafkaSettings((guarded.bootstrap,)))
    assert said == f"Kafka at {guarded.bootstrap} requires TLS; set a CA file, or use a listener without TLS"


def test_a_listener_without_tls_is_not_reached_with(kafka: Kafka, guarded: Kafka) -> None:
    async def find() -> None:
        async with member(replace(settings(guarded), bootstrap=(kafka.bootstrap,)), "any") as one:
            with pytest.raises(Unreachable, match="check that its listener has TLS"):
                await one.coordination.find(WITHIN_S)

    run(find())


def test_a_login_where_none_is_asked_for_is_refused(kafka: Kafka) -> None:
    said = refusal(KafkaSettings((kafka.bootstrap,), sasl=Sasl("SCRAM-SHA-256", "rota", "any")))
    assert said == (
        f"Kafka at {kafka.bootstrap} has no SASL on that listener; "
        "use a listener with SASL, or omit the login"
    )


def test_files_that_cannot_be_used_are_named(guarded: Kafka, tmp_path: Path) -> None:
    known, other = security(guarded), Authority(tmp_path / "other")
    ours, nothing = known.client, tmp_path / "nothing"
    nothing.touch()
    locked = other.lock(other.issue("client"), "passphrase")
    faults: Mapping[TlsFiles, str] = {
        TlsFiles(tmp_path / "none.crt"): "none.crt cannot be read (No such file or directory)",
        TlsFiles(nothing): "nothing has no readable certificate",
        TlsFiles(
            known.ca, ours.certificate, locked
        ): "is encrypted with a passphrase; give a key without one",
        TlsFiles(known.ca, ours.certificate, other.issue("more").key): "do not match",
        TlsFiles(known.ca, ours.certificate, nothing): "have no readable certificate and key",
        TlsFiles(
            known.ca, ours.certificate, tmp_path / "none.key"
        ): "cannot be read (No such file or directory)",
    }
    for files, fault in faults.items():
        assert fault in refusal(replace(settings(guarded), tls=files))


def process(kafka: Kafka, folder: Path, group: str, *more: str, password: str = "rota-password") -> Sidecar:
    """The sidecar itself, as the user; later flags count."""
    known = security(kafka)
    flags = (
        f"--topics={ALLOWED}topic",
        f"--tls-ca={known.ca}",
        f"--tls-cert={known.client.certificate}",
        f"--tls-key={known.client.key}",
        "--sasl-mechanism=SCRAM-SHA-512",
        *more,
    )
    login = {"ROTA_SASL_USERNAME": known.user, "ROTA_SASL_PASSWORD": password}
    return Sidecar(folder, kafka.bootstrap, group, flags, environment=login)


@pytest.mark.parametrize(
    ("group", "flags", "password", "message"),
    [
        (
            f"{ALLOWED}a",
            (),
            "wrong",
            "rejects the login of user 'rota' with SCRAM-SHA-512; check the user and",
        ),
        (
            "forbidden",
            (),
            "",
            "the coordinator of group forbidden answered GROUP_AUTHORIZATION_FAILED: grant this",
        ),
        (
            f"{ALLOWED}b",
            ("--topics=forbidden",),
            "",
            "Kafka does not authorize this user to describe topic 'forbidden'; allow it",
        ),
        (f"{ALLOWED}c", ("--no-tls", "--tls-ca="), "", "the certificate of Kafka at"),
    ],
    ids=["password", "group", "topic", "certificate"],
)
def test_a_sidecar_that_is_refused_says_why_and_ends(
    guarded: Kafka, tmp_path: Path, group: str, flags: Sequence[str], password: str, message: str
) -> None:
    ours = process(guarded, tmp_path, group, *flags, password=password or security(guarded).password)
    with running_sidecar(ours):
        stopped = ours.wait("stopped")
        assert message in stopped["reason"]
        assert ours.wait_for_exit() == 1
        last_line = ours.log.splitlines()[-1]
        assert last_line == f"json-member: {stopped['reason']}"
        assert [event["state"] for event in ours.events if event["event"] == "state"][-1] == "Stopped"
        assert ours.partitions == set()
        assert "wrong" not in ours.log


def test_a_sidecar_that_may_do_all_it_needs_has_its_partitions(guarded: Kafka, tmp_path: Path) -> None:
    ours = process(guarded, tmp_path, f"{ALLOWED}process")
    with running_sidecar(ours):
        held = ours.wait_until_it_has(3)
        assert ours.commit(dict.fromkeys(held, 7)) == {}
        assert ours.fetch() == dict.fromkeys(held, 7)
        assert ours.terminate() == 0


def test_a_topic_that_is_not_there_is_said_and_found_once_it_is(guarded: Kafka, tmp_path: Path) -> None:
    ours = process(guarded, tmp_path, f"{ALLOWED}later", f"--topics={ALLOWED}later")
    with running_sidecar(ours):
        said = ours.wait(
            "problem", lambda event: "subscribes to topics that do not exist" in event["sentence"]
        )
        assert f"topics that do not exist: {ALLOWED}later" in said["sentence"]
        ours.wait("state", lambda event: event["state"] == "Stable")
        guarded.create_topic(f"{ALLOWED}later", partitions=2)
        ours.wait_until_it_has(2)


def test_a_sidecar_that_finds_no_server_retries_with_backoff(tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    ours = Sidecar(tmp_path, address, "any")
    with running_sidecar(ours):
        ours.wait("problem", lambda event: event["sentence"].startswith(f"connection refused by {address};"))
        before_s = processor_s(ours.pid)
        with pytest.raises(ProcessFailed, match="was not ready after 2 s"):
            ours.wait("stopped", within_s=2)
        # A loop without pauses would compute all the time.
        assert processor_s(ours.pid) - before_s < 0.4
        assert ours.terminate() == 0
        assert {event["state"] for event in ours.events if event["event"] == "state"} == {
            "Discover",
            "Stopped",
        }
