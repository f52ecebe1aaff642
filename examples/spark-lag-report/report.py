"""Writes the report of `rota_spark` anew every minute, until it is asked to end."""

import os
import signal
import threading

from rota_spark.pipelines import lag_report


def main() -> None:
    """Write reports with the arguments of the pipeline."""
    ends = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ends.set())
    while not ends.wait(float(os.environ.get("SECONDS_BETWEEN_REPORTS", "60"))):
        lag_report.main()


if __name__ == "__main__":
    main()
