"""A job whose driver never speaks to Spark: it writes its process id to the file in its argument and sleeps."""

import os
import signal
import sys
from pathlib import Path

written = Path(sys.argv[1])
unfinished = written.with_suffix(".unfinished")
unfinished.write_text(str(os.getpid()))
unfinished.rename(written)
signal.pause()
