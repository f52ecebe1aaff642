"""SCRAM's conversation: by the example of RFC 7677, and with a server that does not play by the rules."""

from collections.abc import Sequence

import pytest

from rota_sidecar.engines.kafka.scram import ITERATIONS_MAX, Unproved, exchange
from rota_sidecar.engines.kafka.settings import Credentials

PENCIL = Credentials("user", "pencil")
NONCE = "rOprNGfwEbeRWgbNEkqO"
CHALLENGE = f"r={NONCE}%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
PROOF = f"c=biws,r={NONCE}%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
SIGNATURE = "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def talk(
    answers: Sequence[str], credentials: Credentials = PENCIL, mechanism: str = "SCRAM-SHA-256"
) -> list[str]:
    """Return the client's messages to a server with these answers."""
    conversation = exchange(mechanism, credentials, NONCE)
    said = [next(conversation).decode()]
    for answer in answers:
        try:
            said.append(conversation.send(answer.encode()).decode())
        except StopIteration:
            break
    return said


def test_the_conversation_is_that_of_the_rfc() -> None:
    assert talk([CHALLENGE, SIGNATURE]) == [f"n,,n=user,r={NONCE}", PROOF]


def test_the_server_has_to_sign_with_the_password() -> None:
    with pytest.raises(Unproved, match="its signature does not match the password"):
        talk([CHALLENGE, "v=" + "A" * 43 + "="])


def test_the_server_may_refuse_with_an_error_of_scram() -> None:
    with pytest.raises(Unproved, match="its error is 'invalid-proof'"):
        talk([CHALLENGE, "e=invalid-proof"])


def test_a_user_name_may_hold_what_separates_the_parts() -> None:
    assert talk([], Credentials("a=b,c", "x")) == [f"n,,n=a=3Db=2Cc,r={NONCE}"]


@pytest.mark.parametrize(
    ("challenge", "fault"),
    [
        (CHALLENGE.replace(NONCE, "other"), "its nonce does not continue the client's nonce"),
        (f"r={NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", "its nonce does not continue the client's nonce"),
        (CHALLENGE.replace("i=4096", "i=4095"), "it requires 4095 iterations"),
        (
            CHALLENGE.replace("i=4096", f"i={ITERATIONS_MAX + 1}"),
            f"it requires {ITERATIONS_MAX + 1} iterations",
        ),
        (CHALLENGE.replace("i=4096", "i=" + "9" * 5000), "it requires 99999999999999999999 iterations"),
        (CHALLENGE.replace("i=4096", "i=many"), "it requires many iterations"),
        (CHALLENGE.replace("s=W22", "s=*"), "its response is not SCRAM"),
        ("", "its response is not SCRAM"),
        ("\0,=,\n", "its response is not SCRAM"),
    ],
)
def test_a_challenge_that_breaks_the_rules_is_not_answered(challenge: str, fault: str) -> None:
    with pytest.raises(Unproved, match=fault):
        talk([challenge])


def test_a_nonce_is_drawn_for_each_conversation() -> None:
    first, second = (next(exchange("SCRAM-SHA-512", PENCIL)) for _ in range(2))
    assert first != second


def test_plain_sends_all_at_once() -> None:
    assert talk([""], mechanism="PLAIN") == ["\0user\0pencil"]
