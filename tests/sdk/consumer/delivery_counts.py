"""A handler in a process of its own that retries a record twice, once on Rota and once on Kafka."""

import os
import signal
import sys
from pathlib import Path

import rota
from tests.support.processes import Process

WITHIN_S = 60
HANDLER = """
import os, rota

@rota.handler({topic!r})
def work(record):
    os.write(1, b"delivery %d\\n" % record.deliveries)
    if record.deliveries < 3:
        raise rota.Retry(after=0.01)

rota.run(work, group_id={topic!r}, bootstrap_servers={servers!r})
"""


def counts_of_retries(topic: str, servers: str, folder: Path) -> list[int]:
    """The counts that the handler is given with one record; the topic exists and is empty."""
    with rota.Producer(servers) as producer:
        producer.send(topic, b"one").result(WITHIN_S)
    log = folder / "handler.log"
    program = HANDLER.format(topic=topic, servers=servers)
    process = Process.start("handler", [sys.executable, "-c", program], log=log)
    try:
        process.wait_until(lambda: "delivery 3" in log.read_text(), within_s=WITHIN_S)
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait(within_s=WITHIN_S) == 0
    finally:
        process.stop()
    lines = log.read_text().splitlines()
    return [int(line.split()[1]) for line in lines if line.startswith("delivery")]
