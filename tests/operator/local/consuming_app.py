"""An application of ten lines, for tests: notes each record in a file, with who it is."""

import os
import signal
import sys
from pathlib import Path

import rota

NOTES = Path(sys.argv[1])
signal.signal(signal.SIGTERM, signal.default_int_handler)

with NOTES.open("a", buffering=1) as notes, rota.Consumer() as consumer:
    try:
        while True:
            for records in consumer.poll(timeout_ms=1_000).values():
                for record in records:
                    notes.write(f"{os.environ['POD']} {record.partition} {record.offset}\n")
    except KeyboardInterrupt:
        sys.exit(0)
