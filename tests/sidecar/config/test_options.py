"""Command lines and variables that the sidecar refuses, each in one sentence, and those that it accepts."""

import subprocess
import sys
from collections.abc import Sequence

import pytest

from rota_sidecar.config.validation import secret_in
from rota_sidecar.core.delivery.config import Reset
from tests.sidecar.config.configs import config_of, refusal

STRATEGIES = ("range", "cooperative-sticky")
ENOUGH = ("--group-id=orders", "--topics=a,b")
KAFKA = "--bootstrap-servers=kafka:9092"
FAR = "--bootstrap-servers=rota://rota.example:7070"
SCRAM = "--sasl-mechanism=SCRAM-SHA-256"
USER = "--sasl-username-file=user"
OAUTH = "--sasl-mechanism=OAUTHBEARER"
IDP = "--sasl-oauthbearer-token-endpoint-url=https://idp.example/token"
TOKEN_URL = "--sasl-oauthbearer-token-endpoint-url=file:///run/token"
CLIENT = "--sasl-oauthbearer-client-id=orders"
SECRET_FILE = "--sasl-oauthbearer-client-secret-file=secret"


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
    config = config_of(["--group-id=orders", *given])
    assert (config.member.heartbeat_interval_ms, config.delivery.on_offset_expired) == derived


@pytest.mark.parametrize(
    ("given", "limits"),
    [
        ((), (1, None, None)),
        (("--fetch-min-bytes=1000",), (1000, None, None)),
        (("--fetch-max-bytes=100000", "--fetch-max-wait-ms=250"), (1, 100_000, 250)),
    ],
)
def test_the_limits_of_a_fetch_are_those_of_the_backend_unless_given(
    given: Sequence[str], limits: tuple[int, int | None, int | None]
) -> None:
    backend = config_of(["--group-id=orders", *given]).backend
    assert (backend.fetch_min_bytes, backend.fetch_max_bytes, backend.fetch_max_wait_ms) == limits


def test_requests_to_the_coordinator_are_sent_again_as_configured() -> None:
    member = config_of(["--group-id=orders", "--request-timeout-ms=5000", "--retry-backoff-ms=2000"]).member
    assert (member.request_timeout_ms, member.backoff_ms, member.backoff_max_ms) == (5_000, 2_000, 1_000)
    longer = config_of(["--group-id=orders", "--retry-backoff-max-ms=3000"]).member
    assert (longer.request_timeout_ms, longer.backoff_ms, longer.backoff_max_ms) == (30_000, 100, 3_000)


def wrong(*more: str, instead_of: Sequence[str] = ENOUGH) -> str:
    return refusal([*instead_of, *more], STRATEGIES)


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
        (FAR, "--token-file=token", "--rota-tls"),
        (FAR, "--token-file=token", "--rota-tls-ca=ca"),
        (KAFKA, "--fleet=far:7083", "--token-file=token", "--rota-tls-ca=ca"),
        ("--token-file=token",),
        ("--bootstrap-servers=rota://localhost:7070,rota://[::1]:7071", "--token-file=token"),
        (KAFKA, SCRAM, USER, "--sasl-password-file=password"),
        (KAFKA, OAUTH, TOKEN_URL),
        (
            KAFKA,
            OAUTH,
            IDP,
            CLIENT,
            SECRET_FILE,
            "--sasl-oauthbearer-scope=a b",
            "--sasl-oauthbearer-tls-ca=ca",
        ),
        (KAFKA, OAUTH, IDP, "--sasl-oauthbearer-client-id-file=id", SECRET_FILE),
        (KAFKA, OAUTH, IDP.replace("https", "http"), CLIENT, SECRET_FILE, "--insecure"),
        (KAFKA, "--sasl-mechanism=GSSAPI"),
        (
            KAFKA,
            "--sasl-mechanism=GSSAPI",
            "--sasl-kerberos-principal=rota/host@REALM",
            "--sasl-kerberos-keytab=k",
        ),
        ("--tls-cert=a", "--tls-key=b"),
        ("--heartbeat-interval-ms=15000",),
        (KAFKA, "--config=fetch.min.bytes=1000", "--config=broker.address.family=v4"),
        ("--listen-socket=a", "--listen-socket-mode=0666"),
        ("--listen-socket=a", "--listen-socket-mode=660"),
    ],
)
def test_what_fits_is_taken(more: Sequence[str]) -> None:
    assert wrong(*more) == ""


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--group-id=",), "--group-id is required"),
        (("--group-id=" + "g" * 250,), "at most 249 characters"),
        (("--topic-pattern=a.*",), "--topics and --topic-pattern exclude each other"),
        (("--topics=a,b/c",), '--topics is "b/c"; expected a topic name'),
        (("--topics=..",), '--topics is ".."; expected a topic name'),
        (
            ("--topics=", "--topic-pattern=a("),
            "--topic-pattern has an invalid topic pattern 'a('; expected a regular expression",
        ),
        (("--assignors=",), "name at least one strategy"),
        (("--assignors=range,range",), "a strategy is listed twice"),
        (
            ("--assignors=range,fair",),
            "unknown strategy fair; expected one of cooperative-sticky, range",
        ),
        (("--max-moved-partitions-percent=-1",), "--max-moved-partitions-percent is -1; expected 0 to 100"),
        (("--max-moved-partitions-percent=101",), "is 101; expected 0 to 100"),
        (("--group-instance-id=a b",), '--group-instance-id is "a b"; expected at most 249 letters'),
        (("--client-id=a\nb",), r'--client-id is "a\nb"; expected at most 249 printable characters'),
        (("--rack=" + "r" * 250,), "expected at most 249 printable characters"),
        (("--bootstrap-servers=",), "--bootstrap-servers is empty; expected rota://HOST:PORT"),
        (("--bootstrap-servers=rota://a:7070,b:9092",), "has addresses of Rota and of Kafka"),
        (("--bootstrap-servers=rota://a",), '--bootstrap-servers is "rota://a"; expected rota://HOST:PORT'),
        (("--bootstrap-servers=kafka:0",), "expected rota://HOST:PORT for Rota, HOST:PORT for Kafka"),
        (("--bootstrap-servers=kafka:65536",), "expected rota://HOST:PORT for Rota, HOST:PORT for Kafka"),
        (("--bootstrap-servers=::1:9092",), "expected rota://HOST:PORT for Rota, HOST:PORT for Kafka"),
        (("--bootstrap-servers=http://a:80",), "expected rota://HOST:PORT for Rota, HOST:PORT for Kafka"),
        (("--coordination=kafka",), "--coordination kafka requires Kafka brokers"),
        (("--coordinator-address=a:7070",), "rota:// servers coordinate groups themselves"),
        ((KAFKA, "--coordination=rota"), "requires --coordinator-address"),
        ((KAFKA, "--coordinator-address=a:7070"), "--coordinator-address requires --coordination rota"),
        (
            (KAFKA, "--coordination=rota", "--coordinator-address=a"),
            '--coordinator-address is "a"; expected HOST:PORT',
        ),
        (("--session-timeout-ms=0",), "--session-timeout-ms is 0; expected 3 to 2147483647"),
        (("--rebalance-timeout-ms=2147483648",), "--rebalance-timeout-ms is 2147483648; expected 1 to"),
        (("--topics-refresh-ms=-1",), "--topics-refresh-ms is -1; expected 1 to"),
        (("--leave-timeout-ms=0",), "--leave-timeout-ms is 0; expected 1 to"),
        (("--fetch-min-bytes=0",), "--fetch-min-bytes is 0; expected 1 to 100000000"),
        (("--fetch-max-bytes=1MB",), '--fetch-max-bytes is "1MB"; expected an integer from 1 to'),
        (("--fetch-max-wait-ms=30001",), "--fetch-max-wait-ms is 30001; expected 1 to 30000"),
        (("--request-timeout-ms=0",), "--request-timeout-ms is 0; expected 1 to"),
        (("--retry-backoff-ms=0.1",), '--retry-backoff-ms is "0.1"; expected an integer'),
        (("--heartbeat-interval-ms=15001",), "--heartbeat-interval-ms is 15001; expected 15000 or less"),
        (("--tls-cert=a",), "--tls-key is missing"),
        (("--tls-key=a",), "--tls-cert is missing"),
        ((KAFKA, "--config=fetch.min.bytes"), '--config is "fetch.min.bytes"; expected KEY=VALUE'),
        ((KAFKA, "--config=a=1", "--config=a=2"), "--config sets a twice"),
        (
            (KAFKA, "--config=group.id=x"),
            "--config sets group.id, which the sidecar sets itself; it owns acks, ",
        ),
        (
            (KAFKA, "--config=ssl.ca.location=x"),
            "--config sets ssl.ca.location, which the sidecar sets itself",
        ),
        (
            (KAFKA, "--config=isolation.level=read_committed"),
            "--config sets isolation.level, which the sidecar",
        ),
        (
            ("--config=fetch.min.bytes=1", "--config=a=1"),
            "--config is for Kafka's client, and --bootstrap-servers are rota:// addresses; remove a, fetch.min.bytes",
        ),
        (
            ("--listen-socket=a", "--listen-socket-mode=0777"),
            '--listen-socket-mode is "0777"; expected an octal mode',
        ),
        (("--listen-socket=a", "--listen-socket-mode=1666"), "expected an octal mode of 0600 and"),
        (("--listen-socket=a", "--listen-socket-mode=0066"), "expected an octal mode of 0600 and"),
        (("--listen-socket=a", "--listen-socket-mode=0o666"), "expected an octal mode of 0600 and"),
        (("--listen-socket-mode=0666",), "--listen-socket-mode requires --listen-socket"),
        (("--rota-tls-cert=a", "--tls-key=a", "--tls-cert=b"), "--rota-tls-key is missing"),
        (
            ("--no-rota-tls", "--rota-tls-ca=a"),
            "--no-rota-tls and the files of --rota-tls exclude each other",
        ),
        (
            (FAR, "--token-file=token", "--tls", "--no-rota-tls"),
            "rota://rota.example:7070 is another machine",
        ),
        ((FAR, "--token-file=token"), "rota://rota.example:7070 is another machine"),
        ((KAFKA, "--token-file=token"), "--token-file is for Rota's servers"),
        (
            (KAFKA, "--coordination=rota", "--coordinator-address=far:7070", "--token-file=token"),
            "far:7070 is another machine",
        ),
        ((SCRAM, USER), "--sasl-mechanism is for Kafka"),
        (
            (KAFKA, "--sasl-mechanism=DIGEST-MD5"),
            '"DIGEST-MD5"; expected one of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER, GSSAPI',
        ),
        (("--sasl-mechanism=GSSAPI",), "--sasl-mechanism is for Kafka"),
        (
            (KAFKA, "--sasl-mechanism=GSSAPI", USER),
            "--sasl-mechanism GSSAPI has no user name and no password",
        ),
        ((KAFKA, "--sasl-mechanism=GSSAPI", "--sasl-kerberos-service-name="), "service-name is empty"),
        (
            (KAFKA, "--sasl-kerberos-keytab=k"),
            "--sasl-mechanism is missing",
        ),
        ((KAFKA, SCRAM, USER, "--sasl-kerberos-principal=p"), "require --sasl-mechanism GSSAPI"),
        ((KAFKA, SCRAM), "the login requires a user name"),
        ((KAFKA, SCRAM, USER), "the login requires a password"),
        ((KAFKA, USER), "--sasl-mechanism is missing"),
        ((KAFKA, CLIENT), "--sasl-mechanism is missing; a login requires one of PLAIN"),
        ((OAUTH, TOKEN_URL), "--sasl-mechanism is for Kafka"),
        (
            (KAFKA, OAUTH),
            "OAUTHBEARER requires --sasl-oauthbearer-token-endpoint-url: a token endpoint, or file:///PATH",
        ),
        (
            (KAFKA, OAUTH, USER, TOKEN_URL),
            "--sasl-username-file and --sasl-password-file are not for OAUTHBEARER",
        ),
        (
            (KAFKA, SCRAM, USER, "--sasl-password-file=p", IDP),
            "-endpoint-url requires --sasl-mechanism OAUTHBEARER",
        ),
        (
            (KAFKA, OAUTH, IDP),
            "requires a client id; give --sasl-oauthbearer-client-id or --sasl-oauthbearer-client-id-file",
        ),
        (
            (KAFKA, OAUTH, IDP, CLIENT),
            "requires a secret; give --sasl-oauthbearer-client-secret-file, or the variable",
        ),
        (
            (KAFKA, OAUTH, TOKEN_URL, CLIENT),
            "is a file; client id, secret and scope are for a token endpoint",
        ),
        (
            (KAFKA, OAUTH, IDP.replace("https", "http"), CLIENT, SECRET_FILE),
            "sent to idp.example in clear text; use https",
        ),
        (
            (KAFKA, OAUTH, IDP.replace("https", "ftp")),
            "-endpoint-url: the token endpoint ftp://idp.example/token is not a URL",
        ),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(more: Sequence[str], message: str) -> None:
    assert message in wrong(*more)
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
    ("more", "message"),
    [
        (("--listen=0.0.0.0:7080",), "--listen 0.0.0.0:7080 is open to other machines"),
        (("--listen=7080",), '--listen is "7080"; expected HOST:PORT'),
        (("--http-listen=here",), '--http-listen is "here"; expected HOST:PORT'),
        (("--listen=",), "no application can receive records"),
        (("--listen-socket=/" + "s" * 107,), "at most 107 bytes"),
        (("--topics=a", "--topic-pattern=b"), "--topics and --topic-pattern exclude each other"),
        (("--dead-letter-topic=a/b",), '--dead-letter-topic is "a/b"; expected at most 249 letters'),
        (("--dead-letter-topic=a", "--topics=a"), "its records would be dead letters again"),
        (("--delivery-url=ftp://a", "--topics=a"), "--delivery-url"),
        (("--delivery-url=http://127.0.0.1:1/",), "no application subscribes over HTTP"),
        (("--priorities=a",), '--priorities is "a"; expected TOPIC=N'),
        (("--priorities=a=x",), '--priorities is "a=x"; expected TOPIC=N'),
        (("--fleet=operator",), '--fleet is "operator"; expected HOST:PORT'),
        (("--fleet=operator:7083", "--token-file=token"), "operator:7083 is another machine"),
        (("--fleet=operator:7083", "--fleet-token-file=token"), "operator:7083 is another machine"),
        (("--fleet-token-file=token",), "--fleet-token-file requires --fleet"),
        (("--static",), "--static requires --group-instance-id"),
        (("--concurrency=0",), "--concurrency is 0; expected 1 to"),
        (("--in-flight-max=1000001",), "--in-flight-max is 1000001; expected 1 to 1000000"),
        (("--drain-timeout-ms=0",), "--drain-timeout-ms is 0; expected 1 to"),
    ],
)
def test_a_sidecar_that_delivers_refuses_what_does_not_fit(more: Sequence[str], message: str) -> None:
    found = wrong(*more, instead_of=SERVES)
    assert message in found
    assert "\n" not in found


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("ROTA_GROUP_ID", "from-there", ""),
        ("ROTA_TLS", "yes", 'ROTA_TLS is "yes"; expected true or false'),
        ("ROTA_TLS", "true", ""),
        (
            "ROTA_COORDINATION",
            "zookeeper",
            'ROTA_COORDINATION is "zookeeper"; expected one of auto, rota, kafka',
        ),
        ("ROTA_LOG_FORMAT", "xml", 'ROTA_LOG_FORMAT is "xml"'),
        ("ROTA_SUSPEND", "maybe", 'ROTA_SUSPEND is "maybe"'),
        ("ROTA_HEARTBEAT_INTERVAL_MS", "15001", "expected 15000 or less"),
        ("ROTA_RETRIES", "many", 'ROTA_RETRIES is "many"; expected an integer from 0 to 1000000'),
    ],
)
def test_variables_are_the_flags_defaults(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, message: str
) -> None:
    monkeypatch.setenv(variable, value)
    found = wrong(instead_of=[flag for flag in ENOUGH if variable != "ROTA_GROUP_ID" or "group" not in flag])
    assert message in found
    assert bool(found) == bool(message)
    if variable == "ROTA_GROUP_ID":
        assert config_of([]).member.group_id == "from-there"


def test_a_login_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROTA_SASL_USERNAME", "me")
    monkeypatch.setenv("ROTA_SASL_PASSWORD", "canary")
    assert wrong(KAFKA, SCRAM) == ""
    config = config_of([*ENOUGH, KAFKA, SCRAM])
    assert config.security.sasl.password == "canary"
    assert "canary" not in repr(config)


def test_a_client_secret_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROTA_SASL_OAUTHBEARER_CLIENT_ID", "orders")
    monkeypatch.setenv("ROTA_SASL_OAUTHBEARER_CLIENT_SECRET", "canary")
    config = config_of([*ENOUGH, KAFKA, OAUTH, IDP])
    assert (config.security.sasl.oauth.client_id, config.security.sasl.oauth.client_secret) == (
        "orders",
        "canary",
    )
    assert "canary" not in repr(config)


def test_who_coordinates_follows_from_the_addresses() -> None:
    for flags, by_rota, addresses in (
        ([], True, ["rota://127.0.0.1:7070"]),
        ([KAFKA], False, []),
        ([KAFKA, "--coordination=rota", "--coordinator-address=a:1,b:2"], True, ["a:1", "b:2"]),
    ):
        backend = config_of([*ENOUGH, *flags]).backend
        assert (backend.is_coordinated_by_rota, list(backend.rota_addresses)) == (by_rota, addresses)
    secured = [config_of([*ENOUGH, *flags]).security.tls.is_on for flags in ([], ["--tls"], ["--tls-ca=a"])]
    assert secured == [False, True, True]


@pytest.mark.parametrize(
    ("flags", "kafka", "rota"),
    [
        ((), None, None),
        (("--tls-ca=general",), "general", "general"),
        (("--tls-ca=general", "--rota-tls-ca=own"), "general", "own"),
        (("--rota-tls-ca=own",), None, "own"),
        (("--rota-tls",), None, ""),
        (("--tls-ca=general", "--rota-tls"), "general", ""),
        (("--tls-ca=general", "--no-rota-tls"), "general", None),
    ],
)
def test_tls_flags_of_rotas_servers_replace_the_general_ones(
    flags: Sequence[str], kafka: str | None, rota: str | None
) -> None:
    security = config_of([*ENOUGH, KAFKA, *flags]).security
    authorities = [str(tls.ca_file or "") if tls.is_on else None for tls in (security.tls, security.rota_tls)]
    assert authorities == [kafka, rota]


@pytest.mark.parametrize(
    "arguments",
    [
        ["--sasl-password=canary"],
        ["--sasl-password", "canary"],
        ["--password", "canary"],
        ["--token", "canary"],
        ["--sasl-username", "canary"],
        ["--sasl-oauthbearer-client-secret=canary"],
        ["--sasl-oauthbearer-token", "canary"],
        ["--bootstrap-servers", "rota://me:canary@host:7070"],
        ["--client-id", 'username="me" password="canary"'],
    ],
)
def test_a_secret_in_an_argument_is_refused_and_not_repeated(arguments: list[str]) -> None:
    assert "every process on this machine can read arguments" in secret_in(arguments)
    done = subprocess.run(
        [sys.executable, "-m", "rota_sidecar", *ENOUGH, *arguments], capture_output=True, text=True
    )
    assert done.returncode == 1
    assert "every process on this machine can read arguments" in done.stderr
    assert "canary" not in done.stderr + done.stdout


def test_the_program_says_what_is_wrong_before_it_does_anything() -> None:
    command = [sys.executable, "-m", "rota_sidecar", *ENOUGH, "--max-moved-partitions-percent=101"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "rota-sidecar: --max-moved-partitions-percent is 101; expected 0 to 100\n"


@pytest.mark.parametrize("flag", ["--group-id=", "--topics=", "--client-id="])
@pytest.mark.parametrize("word", ["password", "username", "user", "token", "secret"])
def test_a_name_that_ends_like_a_secrets_flag_is_none(flag: str, word: str) -> None:
    assert secret_in([f"{flag}clicks-per-{word}"]) == ""


def test_files_of_secrets_are_no_secrets() -> None:
    arguments = ["--token-file=t", "--sasl-password-file", "p", "--sasl-username-file=u", *ENOUGH, FAR]
    assert secret_in(arguments) == ""
