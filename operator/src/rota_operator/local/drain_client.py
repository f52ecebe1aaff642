"""Requests a drain on a sidecar's drain socket, as a pod's preStop hook does. Called when a replica is stopped."""

import asyncio
from pathlib import Path

# The replica will not come back, so a static member leaves as well, at the latest when its drain time is
# over.
REQUEST = "POST /drain?then=leave&for_ms={for_ms} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
# Maximum size of the response: a status line, a few headers and one line of text.
ANSWER_BYTES_MAX = 16 * 1024


async def ask_to_drain(drain_socket: Path, within_s: float) -> str:
    """
    Request a drain and wait for it. Return the reason if it failed, else an empty string.

    If its process does not exit first, the sidecar leaves the group after `within_s` seconds.
    """
    try:
        async with asyncio.timeout(within_s):
            reader, writer = await asyncio.open_unix_connection(drain_socket, limit=ANSWER_BYTES_MAX)
            try:
                writer.write(REQUEST.format(for_ms=max(1, round(within_s * 1000))).encode())
                answer = await reader.read(ANSWER_BYTES_MAX)
                while not reader.at_eof() and len(answer) < ANSWER_BYTES_MAX:
                    answer += await reader.read(ANSWER_BYTES_MAX - len(answer))
            finally:
                writer.close()
    except (ConnectionRefusedError, FileNotFoundError):
        # The socket is open as long as records may be in flight; without it, nothing is to drain.
        return ""
    except TimeoutError:
        return f"the sidecar did not answer within {within_s:g} s"
    except OSError as error:
        return f"the sidecar's drain socket failed ({error})"
    return meaning_of(answer)


def meaning_of(answer: bytes) -> str:
    """Parse the HTTP response; an empty string if the drain is complete, else the reason."""
    head, _, body = answer.partition(b"\r\n\r\n")
    status = head.split(b"\r\n", 1)[0].split(b" ")
    if len(status) > 1 and status[1] == b"200":
        return ""
    said = body.decode(errors="replace").strip()
    return said or "the sidecar exited before it answered"
