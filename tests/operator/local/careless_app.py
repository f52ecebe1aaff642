"""An application that takes its time for each record, and ends in the middle of its work when it is asked to end."""

import os
import sys
import threading
from pathlib import Path

import rota

NOTES = Path(sys.argv[1])
WORK_S = 0.1
work = threading.Event()

with NOTES.open("a", buffering=1) as notes, rota.Consumer() as consumer:
    while True:
        for records in consumer.poll(timeout_ms=1_000, max_records=3).values():
            for record in records:
                work.wait(WORK_S)
                notes.write(f"{os.environ['POD']} {record.partition} {record.offset}\n")
