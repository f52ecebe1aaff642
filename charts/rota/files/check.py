"""
Checks an installed release: `helm test` runs it in a pod, with the operator's image.

Waits until each page answers 200 and each server accepts a connection; with a certificate authority, also until each server has
presented a certificate of that authority for the name by which clients reach it. Exits with 1 and the last error otherwise.
"""

import argparse
import socket
import ssl
import sys
import threading
import urllib.request
from collections.abc import Callable

TIMEOUT_S = 5


def main() -> None:
    """Parse the arguments, check, and print a line for each check that has passed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--page", action="append", default=[], metavar="URL")
    parser.add_argument("--server", action="append", default=[], metavar="HOST:PORT")
    parser.add_argument("--ca", default="", metavar="PEM")
    parser.add_argument("--within", type=int, default=60, metavar="SECONDS")
    options = parser.parse_args()
    context = None
    if options.ca:
        context = ssl.create_default_context(cafile=options.ca)
        context.set_alpn_protocols(["h2"])
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    for url in options.page:
        succeed(url, lambda url=url: direct.open(url, timeout=TIMEOUT_S).close(), options.within)
    for address in options.server:
        succeed(address, lambda address=address: connect(address, context), options.within)


def connect(address: str, context: ssl.SSLContext | None) -> None:
    """Connect to one of the addresses of a name. Raises OSError."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), TIMEOUT_S) as connection:
        if context is not None:
            context.wrap_socket(connection, server_hostname=host).close()


def succeed(what: str, check: Callable[[], None], seconds: int) -> None:
    """Repeat a check every second until it succeeds, at most so many times."""
    pause = threading.Event()
    for left in reversed(range(seconds)):
        try:
            check()
        except OSError as error:
            if not left:
                sys.exit(f"{what}: {error}")
            pause.wait(1)
        else:
            sys.stdout.write(f"{what}: ok\n")
            return


if __name__ == "__main__":
    main()
