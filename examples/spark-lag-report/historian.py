"""A historian: appends the lag of a group, as `rota groups lag` prints it, to a topic, until it is asked to end."""

import json
import os
import signal
import subprocess
import sys
import threading

import rota


def main() -> None:
    """Write the history."""
    address, group = sys.argv[1:]
    pause_s = float(os.environ.get("SECONDS_BETWEEN_SAMPLES", "10"))
    ends = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ends.set())
    # Whoever comes first makes it.
    rota.create_topics(address, {"lag-history": 1})
    command = ["rota", "groups", "lag", group, "--output=json", f"--bootstrap-servers={address}"]
    with rota.Producer(address) as producer:
        while not ends.wait(pause_s):
            printed = subprocess.run(command, stdout=subprocess.PIPE, check=False)
            # A group that has not begun yet has no lag; the command says so.
            if printed.returncode == 0:
                sample = json.dumps(json.loads(printed.stdout)).encode()
                producer.send("lag-history", sample, key=group.encode())


if __name__ == "__main__":
    main()
