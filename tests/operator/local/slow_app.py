"""An application for tests of the autoscaler: takes a while for each record, and notes it when it is done."""

import os
import sys
import time
from pathlib import Path

import rota

NOTES, TOPIC, SECONDS = Path(sys.argv[1]), sys.argv[2], float(sys.argv[3])


@rota.handler(TOPIC, ordering="partition", concurrency=1)
def work(record: rota.Record) -> None:
    """Work on one record."""
    time.sleep(SECONDS)  # noqa: TID251  its work is to take time
    with NOTES.open("a") as notes:
        notes.write(f"{os.environ['POD']} {record.partition} {record.offset}\n")


rota.run(work)
