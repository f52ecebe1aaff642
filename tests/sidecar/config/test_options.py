"""What the sidecar refuses to start with, each in a sentence, and what it takes."""

import subprocess
import sys
from collections.abc import Sequence

import pytest

from rota_sidecar.config import parse
from rota_sidecar.config.delivery_flags import delivery_config
from rota_sidecar.config.endpoints import has_tls, is_coordinated_by_rota, rota_addresses
from rota_sidecar.config.validation import problem, secret_in
from rota_sidecar.core.delivery.config import Reset

STRATEGIES = ("range", "cooperative-sticky")
ENOUGH = ("--group-id=orders", "--topics=a,b")
KAFKA = "--bootstrap-servers=kafka:9092"
FAR = "--bootstrap-servers=rota://rota.example:7070"
SCRAM = "--sasl-mechanism=SCRAM-SHA-256"
USER = "--sasl-username-file=user"


@pytest.mark.parametrize(
    ("given", "derived"),
    [
        ((), (3_000, Reset.EARLIEST)),
        (("--session-timeout-ms=6000",), (2_000, Reset.EARLIEST)),
        (("--session-timeout-ms=6000", "--heartbeat-interval-ms=500"), (500, Reset.EARLIEST)),
        (("--session-timeout-ms=60000", "--initial-offset=latest"), (3_000, Reset.LATEST)),
        (("--initial-offset=none",), (3_000, Reset.NONE)),
        (("--initial-offset=latest", "--on-offset-expired=fail"), (3_000, Reset.NONE)),
        (("--initial-offset=none", "--on-offset-expired=earliest"), (3_000, Reset.EARLIEST)),
    ],
)
def test_what_is_not_given_follows_what_is(given: Sequence[str], derived: tuple[int, Reset]) -> None:
    options = parse(["--group-id=orders", *given])
    assert problem(options, STRATEGIES) == ""
    assert (options.heartbeat_interval_ms, delivery_config(options).on_offset_expired) == derived


def wrong(*more: str, instead_of: Sequence[str] = ENOUGH) -> str:
    return problem(parse([*instead_of, *more]), STRATEGIES)


@pytest.mark.parametrize(
    "more",
    [
        (),
        ("--bootstrap-servers=rota://a:7070, rota://[::1]:7071",),
        (KAFKA, "--coordination=rota", "--coordinator-address=rota:7070,10.0.0.1:7070"),
        (KAFKA, "--coordination=kafka"),
        ("--group-instance-id=orders-0", "--rack=eu 1", "--assignors=cooperative-sticky,range"),
        (FAR, "--token-file=token", "--tls"),
        (FAR, "--token-file=token", "--insecure"),
        ("--token-file=token",),
        ("--bootstrap-servers=rota://localhost:7070,rota://[::1]:7071", "--token-file=token"),
        (KAFKA, SCRAM, USER, "--sasl-password-file=password"),
        ("--tls-cert=a", "--tls-key=b"),
        ("--heartbeat-interval-ms=15000",),
    ],
)
def test_what_fits_is_taken(more: Sequence[str]) -> None:
    assert wrong(*more) == ""


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (("--group-id=",), "--group-id is missing"),
        (("--group-id=" + "g" * 250,), "at most 249 characters"),
        (("--topic-pattern=a.*",), "either --topics or --topic-pattern"),
        (("--topics=a,b/c",), "'b/c' can be no topic"),
        (("--topics=..",), "'..' can be no topic"),
        (("--topics=", "--topic-pattern=a("), "the topic pattern a( is no regular expression"),
        (("--assignors=",), "--assignors: name at least one strategy"),
        (("--assignors=range,range",), "--assignors: a strategy is named twice"),
        (
            ("--assignors=range,fair",),
            "there is no strategy fair; known are cooperative-sticky, range",
        ),
        (("--max-moved-partitions-percent=-1",), "--max-moved-partitions-percent: give 0 to 100"),
        (("--max-moved-partitions-percent=101",), "give 0 to 100"),
        (("--group-instance-id=a b",), "--group-instance-id a b: up to 249 letters"),
        (("--client-id=a\nb",), "--client-id: up to 249 characters that can be printed"),
        (("--rack=" + "r" * 250,), "--rack: up to 249"),
        (("--bootstrap-servers=",), "--bootstrap-servers: give rota://HOST:PORT"),
        (("--bootstrap-servers=rota://a:7070,b:9092",), "names Rota and Kafka at once"),
        (("--bootstrap-servers=rota://a",), "--bootstrap-servers rota://a: give HOST:PORT"),
        (("--bootstrap-servers=kafka:0",), "give HOST:PORT"),
        (("--bootstrap-servers=kafka:65536",), "give HOST:PORT"),
        (("--bootstrap-servers=::1:9092",), "give HOST:PORT"),
        (("--bootstrap-servers=http://a:80",), "give HOST:PORT"),
        (("--coordination=kafka",), "--coordination kafka needs brokers"),
        (("--coordinator-address=a:7070",), "a rota:// server coordinates groups itself"),
        ((KAFKA, "--coordination=rota"), "needs --coordinator-address"),
        ((KAFKA, "--coordinator-address=a:7070"), "--coordinator-address needs --coordination rota"),
        (
            (KAFKA, "--coordination=rota", "--coordinator-address=a"),
            "--coordinator-address a: give HOST:PORT",
        ),
        (("--session-timeout-ms=0",), "--session-timeout-ms: give 1 to 2147483647"),
        (("--rebalance-timeout-ms=2147483648",), "--rebalance-timeout-ms: give 1 to"),
        (("--topics-refresh-ms=-1",), "--topics-refresh-ms: give 1 to"),
        (("--leave-timeout-ms=0",), "--leave-timeout-ms: give 1 to"),
        (("--heartbeat-interval-ms=15001",), "a session needs room for 3 heartbeats, so give 15000 or less"),
        (("--tls-cert=a",), "--tls-key is missing"),
        (("--tls-key=a",), "--tls-cert is missing"),
        ((FAR, "--token-file=token"), "rota://rota.example:7070 is another machine"),
        ((KAFKA, "--token-file=token"), "--token-file is for Rota's servers"),
        (
            (KAFKA, "--coordination=rota", "--coordinator-address=far:7070", "--token-file=token"),
            "far:7070 is another machine",
        ),
        ((SCRAM, USER), "--sasl-mechanism is for Kafka"),
        ((KAFKA, "--sasl-mechanism=GSSAPI"), "GSSAPI: known are PLAIN, SCRAM-SHA-256, SCRAM-SHA-512"),
        ((KAFKA, SCRAM), "the login needs a name"),
        ((KAFKA, SCRAM, USER), "the login needs a password"),
        ((KAFKA, USER), "--sasl-mechanism is missing"),
    ],
)
def test_what_does_not_fit_is_refused_in_a_sentence(more: Sequence[str], sentence: str) -> None:
    assert sentence in wrong(*more)
    assert "\n" not in wrong(*more)


SERVES = ("--group-id=orders",)


@pytest.mark.parametrize(
    "more",
    [
        (),
        ("--topics=a",),
        ("--listen=", "--listen-socket=/run/app.sock", "--http-listen="),
        ("--listen=0.0.0.0:7080", "--insecure"),
        ("--delivery-url=http://127.0.0.1:8080/in", "--listen=", "--topics=a"),
        ("--static", "--fleet=operator:7083"),
        ("--fleet=127.0.0.1:7083", "--token-file=token"),
        (KAFKA, "--fleet=127.0.0.1:7083", "--token-file=token"),
        (KAFKA, "--fleet=127.0.0.1:7083", "--fleet-token-file=token"),
        ("--priorities=a=1,b=-2",),
    ],
)
def test_a_sidecar_that_delivers_takes_what_fits(more: Sequence[str]) -> None:
    assert wrong(*more, instead_of=SERVES) == ""


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (("--listen=0.0.0.0:7080",), "--listen 0.0.0.0:7080 is open to other machines"),
        (("--listen=7080",), "--listen 7080: give HOST:PORT"),
        (("--http-listen=here",), "--http-listen here: give HOST:PORT"),
        (("--listen=",), "there is nobody to deliver to"),
        (("--listen-socket=/" + "s" * 107,), "at most 107 bytes"),
        (("--topics=a", "--topic-pattern=b"), "either --topics or --topic-pattern"),
        (("--dead-letter-topic=a/b",), "--dead-letter-topic a/b can be no topic"),
        (("--dead-letter-topic=a", "--topics=a"), "its records would come round for ever"),
        (("--delivery-url=ftp://a", "--topics=a"), "--delivery-url"),
        (("--delivery-url=http://127.0.0.1:1/",), "nobody subscribes by HTTP"),
        (("--priorities=a",), "--priorities a: give TOPIC=N"),
        (("--priorities=a=x",), "--priorities a=x: give TOPIC=N"),
        (("--fleet=operator",), "--fleet operator: give HOST:PORT"),
        (("--fleet=operator:7083", "--token-file=token"), "operator:7083 is another machine"),
        (("--fleet=operator:7083", "--fleet-token-file=token"), "operator:7083 is another machine"),
        (("--fleet-token-file=token",), "--fleet-token-file is shown to Fleet"),
        (("--static",), "--static needs a name"),
        (("--concurrency=0",), "--concurrency: give 1 to"),
        (("--in-flight-max=1000001",), "--in-flight-max: give 1 to 1000000"),
        (("--drain-timeout-ms=0",), "--drain-timeout-ms: give 1 to"),
    ],
)
def test_a_sidecar_that_delivers_refuses_what_does_not_fit(more: Sequence[str], sentence: str) -> None:
    found = wrong(*more, instead_of=SERVES)
    assert sentence in found
    assert "\n" not in found


@pytest.mark.parametrize(
    ("variable", "value", "sentence"),
    [
        ("ROTA_GROUP_ID", "from-there", ""),
        ("ROTA_TLS", "yes", "ROTA_TLS is yes: give true or false"),
        ("ROTA_TLS", "true", ""),
        ("ROTA_COORDINATION", "zookeeper", "ROTA_COORDINATION is zookeeper: give one of auto, rota, kafka"),
        ("ROTA_LOG_FORMAT", "xml", "ROTA_LOG_FORMAT is xml"),
        ("ROTA_SUSPEND", "maybe", "ROTA_SUSPEND is maybe"),
        ("ROTA_HEARTBEAT_INTERVAL_MS", "15001", "give 15000 or less"),
    ],
)
def test_variables_are_the_flags_defaults(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, sentence: str
) -> None:
    monkeypatch.setenv(variable, value)
    found = wrong(instead_of=[flag for flag in ENOUGH if variable != "ROTA_GROUP_ID" or "group" not in flag])
    assert sentence in found
    assert bool(found) == bool(sentence)
    assert parse([]).group_id == ("from-there" if variable == "ROTA_GROUP_ID" else "")


def test_a_login_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROTA_SASL_USERNAME", "me")
    monkeypatch.setenv("ROTA_SASL_PASSWORD", "canary")
    assert wrong(KAFKA, SCRAM) == ""
    assert parse([]).sasl_password == "canary"


def test_who_coordinates_follows_from_the_addresses() -> None:
    for flags, by_rota, addresses in (
        ([], True, ["rota://127.0.0.1:7070"]),
        ([KAFKA], False, []),
        ([KAFKA, "--coordination=rota", "--coordinator-address=a:1,b:2"], True, ["a:1", "b:2"]),
    ):
        options = parse(flags)
        assert (is_coordinated_by_rota(options), rota_addresses(options)) == (by_rota, addresses)
    assert [has_tls(parse(flags)) for flags in ([], ["--tls"], ["--tls-ca=a"])] == [False, True, True]


@pytest.mark.parametrize(
    "arguments",
    [
        ["--sasl-password=canary"],
        ["--sasl-password", "canary"],
        ["--password", "canary"],
        ["--token", "canary"],
        ["--sasl-username", "canary"],
        ["--bootstrap-servers", "rota://me:canary@host:7070"],
        ["--client-id", 'username="me" password="canary"'],
    ],
)
def test_a_secret_in_an_argument_is_refused_and_not_repeated(arguments: list[str]) -> None:
    assert "everybody on this machine can read arguments" in secret_in(arguments)
    done = subprocess.run(
        [sys.executable, "-m", "rota_sidecar", *ENOUGH, *arguments], capture_output=True, text=True
    )
    assert done.returncode == 1
    assert "everybody on this machine can read arguments" in done.stderr
    assert "canary" not in done.stderr + done.stdout


def test_the_program_says_what_is_wrong_before_it_does_anything() -> None:
    command = [sys.executable, "-m", "rota_sidecar", *ENOUGH, "--max-moved-partitions-percent=101"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "rota-sidecar: --max-moved-partitions-percent: give 0 to 100\n"


def test_files_of_secrets_are_no_secrets() -> None:
    arguments = ["--token-file=t", "--sasl-password-file", "p", "--sasl-username-file=u", *ENOUGH, FAR]
    assert secret_in(arguments) == ""
