"""Tokens of files, endpoints and objects; each failure is one sentence, which says whether asking again helps."""

import socket
from pathlib import Path

import pytest

from rota_service import oauth_sources as module
from rota_service.oauth_sources import (
    TokenEndpoint,
    TokenFile,
    TokenObject,
    TokenSource,
    source_for,
)
from rota_service.oauth_tokens import NoToken
from rota_service.oauth_urls import url_problem
from tests.support.certificates import Authority
from tests.support.kafka.oauth import CLIENT_ID, CLIENT_SECRET, Answer, endpoint, jwt
from tests.support.ports import free_port

NOW_S = 1_000_000.0
TOKEN = jwt(sub="orders", exp=NOW_S + 600)


def failure(source: TokenSource) -> NoToken:
    with pytest.raises(NoToken) as failed:
        source.obtain(NOW_S)
    assert CLIENT_SECRET not in str(failed.value) + repr(source)
    return failed.value


def answered(answer: Answer) -> NoToken:
    with endpoint(lambda: answer) as idp:
        return failure(TokenEndpoint(idp.url, CLIENT_ID, CLIENT_SECRET))


def test_a_file_is_read_at_each_call(tmp_path: Path) -> None:
    source = TokenFile(tmp_path / "token")
    missing = failure(source)
    assert missing.may_heal
    assert (
        str(missing) == f"{source} cannot be read (No such file or directory); check its path and permissions"
    )
    source.path.write_text("")
    assert failure(source).may_heal
    assert str(failure(source)) == f"{source} is empty; write the token to it"
    source.path.write_text(TOKEN[:-1])
    assert failure(source).may_heal, "a part of a token"
    source.path.write_text(f"{TOKEN}\n")
    assert source.obtain(NOW_S).value == TOKEN
    source.path.write_bytes(b"\xff\xfe")
    assert failure(source).may_heal


def test_an_endpoint_gets_the_client_and_the_scope() -> None:
    answer = Answer.of(access_token="opaque", token_type="Bearer", expires_in="300")
    with endpoint(lambda: answer) as idp:
        token = TokenEndpoint(idp.url, CLIENT_ID, CLIENT_SECRET, scope="kafka read").obtain(NOW_S)
        (request,) = idp.requests
    assert (token.value, token.lifetime_s) == ("opaque", 300)
    assert request.login == f"{CLIENT_ID}:{CLIENT_SECRET}"
    assert request.form == {"grant_type": ["client_credentials"], "scope": ["kafka read"]}


def test_an_answer_without_a_life_has_that_of_the_token() -> None:
    with endpoint(lambda: Answer.of(access_token=TOKEN)) as idp:
        assert TokenEndpoint(idp.url, CLIENT_ID, CLIENT_SECRET).obtain(NOW_S).lifetime_s == 600


def test_client_id_and_secret_are_read_from_files_at_each_call(tmp_path: Path) -> None:
    user, secret = tmp_path / "id", tmp_path / "secret"
    with endpoint() as idp:
        source = TokenEndpoint(idp.url, client_id_file=user, client_secret_file=secret)
        assert "of the client id for the token endpoint cannot be read" in str(failure(source))
        user.write_text(f"{CLIENT_ID}\n")
        secret.write_text("")
        assert f"the client secret for the token endpoint is missing: {secret} is empty" in str(
            failure(source)
        )
        secret.write_text(f"{CLIENT_SECRET}\n")
        assert source.obtain(NOW_S).subject == CLIENT_ID


def test_a_missing_secret_does_not_heal() -> None:
    missing = failure(TokenEndpoint("http://127.0.0.1:1", CLIENT_ID))
    assert (
        "the client secret for the token endpoint is not set; set it in a file or in the environment"
        in str(missing)
    )
    assert not missing.may_heal


def test_the_connection_is_encrypted_and_the_server_verified(tmp_path: Path) -> None:
    ours, foreign = Authority(tmp_path / "ours"), Authority(tmp_path / "foreign")
    with endpoint(certificate=ours.issue("idp")) as idp:
        source = TokenEndpoint(idp.url, CLIENT_ID, CLIENT_SECRET, ca_file=ours.certificate)
        assert source.obtain(NOW_S).subject == CLIENT_ID
        wrong = failure(TokenEndpoint(idp.url, CLIENT_ID, CLIENT_SECRET, ca_file=foreign.certificate))
        assert f"the certificate of the token endpoint {idp.url} is not trusted (" in str(wrong)
        assert not wrong.may_heal
        nothing = tmp_path / "nothing"
        nothing.touch()
        wrong = failure(TokenEndpoint(idp.url, CLIENT_ID, CLIENT_SECRET, ca_file=nothing))
        assert "has no readable certificate; give a PEM file" in str(wrong)


@pytest.mark.parametrize(
    ("answer", "part", "may_heal"),
    [
        (
            Answer.of(401, error="invalid_client"),
            "rejects the client (401, invalid_client); check the",
            False,
        ),
        (Answer.of(400, error="invalid_scope"), "rejects the client (400, invalid_scope)", False),
        (Answer(403, b"<html>"), "rejects the client (403); check the client id", False),
        (Answer(404), "is not one (404); check the URL", False),
        (Answer(302), "is not one (302); check the URL", False),
        (Answer(429), "has no token now (429); see its log if that repeats", True),
        (
            Answer.of(503, error="temporarily_unavailable"),
            "has no token now (503, temporarily_unavailable)",
            True,
        ),
        (Answer(200, b"<html>"), "does not answer with an access_token; check the URL", False),
        (Answer(200, b"[" * 100_000), "does not answer with an access_token", False),
        (Answer.of(access_token=7), "does not answer with an access_token", False),
        (Answer.of(access_token="t", expires_in="soon"), "does not answer with an access_token", False),
        (Answer.of(access_token="t", expires_in=-60), "has a token that expired 60 s ago", True),
        (Answer.of(access_token="two tokens", expires_in=60), "has no bearer token", True),
        # What an answer repeats is not shown.
        (Answer.of(400, error=f"secret {CLIENT_SECRET}"), "rejects the client (400); check", False),
    ],
    ids=lambda value: str(value.status) if isinstance(value, Answer) else "",
)
def test_answers_without_a_token(answer: Answer, part: str, may_heal: bool) -> None:
    wrong = answered(answer)
    assert part in str(wrong)
    assert wrong.may_heal is may_heal


def test_an_endpoint_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ENDPOINT_S", 0.3)
    with endpoint() as idp:
        idp.answers.clear()
        wrong = failure(TokenEndpoint(idp.url, CLIENT_ID, CLIENT_SECRET))
    assert str(wrong) == f"the token endpoint {idp.url} did not answer within 0.3 s; check that it is running"
    assert wrong.may_heal


def test_an_endpoint_that_is_not_there_may_come_back() -> None:
    wrong = failure(TokenEndpoint(f"http://127.0.0.1:{free_port()}/token", CLIENT_ID, CLIENT_SECRET))
    assert "cannot be reached (Connection refused); check the URL and the network" in str(wrong)
    assert wrong.may_heal


@pytest.mark.parametrize("said", [b"", b"SSH-2.0\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}"])
def test_a_server_that_speaks_something_else_is_said(said: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        import threading

        def serve() -> None:
            connected, _ = server.accept()
            with connected:
                connected.recv(1 << 16)
                connected.sendall(said)

        thread = threading.Thread(target=serve)
        thread.start()
        wrong = failure(
            TokenEndpoint(f"http://127.0.0.1:{server.getsockname()[1]}/", CLIENT_ID, CLIENT_SECRET)
        )
        thread.join()
    assert "does not answer as an HTTP server; check the URL" in str(wrong)


def test_an_answer_in_chunks_is_read() -> None:
    body = Answer.of(access_token="opaque", expires_in=60).body
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (
        len(body),
        body,
    )
    assert module._parsed(chunked) == (200, body)


def test_an_object_of_the_application_is_asked() -> None:
    class Provider:
        said: object = TOKEN

        def token(self) -> str:
            if isinstance(self.said, Exception):
                raise self.said
            return self.said  # type: ignore[return-value]  # also what is wrong

    provider = Provider()
    source = TokenObject(provider)
    assert source.obtain(NOW_S).value == TOKEN
    provider.said = ValueError(f"secret {CLIENT_SECRET}")
    wrong = failure(source)
    assert str(wrong) == "the token provider Provider raised ValueError; see its own log"
    assert wrong.may_heal
    provider.said = 7
    assert "the token provider Provider returned int; expected a token as str" in str(failure(source))


@pytest.mark.parametrize(
    ("url", "part"),
    [
        ("https://idp.example.com/token", ""),
        ("http://127.0.0.1:8080/token", ""),
        ("http://idp.example.com/token", "the client secret would be sent to idp.example.com in clear text; use https"),
        ("https://user:password@idp.example.com", "must not have a user in its URL"),
        ("ftp://idp.example.com", "is not a URL"),
        ("https://idp.example.com:99999/", "is not a URL"),
        ("https:///token", "is not a URL"),
        ("file:///var/run/secrets/token", ""),
        ("file://host/token", "has no absolute path"),
        ("https://idp example.com", "has characters that are not valid in a URL"),
        ("", "is not a URL"),
    ],
)  # fmt: skip
def test_a_url_that_would_expose_the_secret_is_refused(url: str, part: str) -> None:
    found = url_problem(url, insecure=False)
    assert part in found if part else found == ""
    assert "password" not in found


def test_a_file_url_is_a_token_file() -> None:
    assert source_for(TokenEndpoint("file:///run/a%20token")) == TokenFile(Path("/run/a token"))
    endpoint = TokenEndpoint("https://idp.example.com/token", CLIENT_ID, CLIENT_SECRET)
    assert source_for(endpoint) is endpoint


def test_a_secret_is_sent_in_clear_text_if_that_is_allowed() -> None:
    assert url_problem("http://idp.example.com/token", insecure=True) == ""
