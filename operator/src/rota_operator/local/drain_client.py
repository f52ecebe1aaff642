"""Asks a sidecar on its drain socket to drain, as the `preStop` of a pod does. Called when a replica ends."""

import asyncio
from pathlib import Path

# It is not to come back: a static member leaves too. Unless it ends before, that is when its time is over.
REQUEST = "POST /drain?then=leave&for_ms={for_ms} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
# A line of status, a few headers and one sentence.
ANSWER_BYTES_MAX = 16 * 1024


async def ask_to_drain(drain_socket: Path, within_s: float) -> str:
    """Why it has not drained, in one sentence; empty: it has. Without an end of its process it leaves after `within_s`."""
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
        # Its socket opens before anything is handed out, and closes after.
        return ""
    except TimeoutError:
        return f"the sidecar did not answer within {within_s:g} s"
    except OSError as error:
        return f"the sidecar's drain socket failed ({error})"
    return meaning_of(answer)


def meaning_of(answer: bytes) -> str:
    """Of what came back; empty: it has drained."""
    head, _, body = answer.partition(b"\r\n\r\n")
    status = head.split(b"\r\n", 1)[0].split(b" ")
    if len(status) > 1 and status[1] == b"200":
        return ""
    said = body.decode(errors="replace").strip()
    return said or "the sidecar exited before it answered"
