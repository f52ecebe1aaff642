"""
The coordinator's program, in a process in which the kernel refuses to flush any file: fsync and fdatasync fail with EIO.

    python -m tests.security.fsync_server FLAGS          as `python -m rota_coordinator`

They fail from SIGUSR2 on, or from the start if the file `flushes-fail` is beside the store. A seccomp filter does that: it
needs no rights, holds for all threads, and cannot be taken back.
"""

import ctypes
import errno
import os
import platform
import signal
import struct
import sys
from pathlib import Path

from rota_coordinator import __main__ as program

FROM_THE_START = "flushes-fail"
SAID = "flushes fail from now on"
# Of linux/audit.h and the kernel's tables: the numbers of seccomp, fsync and fdatasync.
NUMBERS = {"x86_64": (317, 74, 75), "aarch64": (277, 82, 83)}
PR_SET_NO_NEW_PRIVS = 38
SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC = 1, 1
LOAD_NUMBER, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06
ALLOW, REFUSE = 0x7FFF0000, 0x00050000 | errno.EIO


class Program(ctypes.Structure):
    """struct sock_fprog."""

    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def fail_flushes() -> None:
    """Have every flush of this process fail from now on."""
    seccomp, *flushes = NUMBERS[platform.machine()]
    steps = [
        (LOAD_NUMBER, 0, 0, 0),
        (JUMP_IF_EQUAL, 1, 0, flushes[0]),
        (JUMP_IF_EQUAL, 0, 1, flushes[1]),
        (RETURN, 0, 0, REFUSE),
        (RETURN, 0, 0, ALLOW),
    ]
    code = b"".join(struct.pack("=HBBI", *step) for step in steps)
    libc = ctypes.CDLL(None, use_errno=True)
    filters = ctypes.byref(Program(len(steps), code))
    if (
        libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0
        or libc.syscall(seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, filters) != 0
    ):
        raise OSError(ctypes.get_errno(), "the kernel took no seccomp filter")
    sys.stderr.write(f"{SAID}\n")
    sys.stderr.flush()


def main() -> None:
    """Run the program, and wait for the signal."""
    signal.signal(signal.SIGUSR2, lambda number, frame: fail_flushes())
    if Path(os.environ["ROTA_STORE"].removeprefix("sqlite:")).with_name(FROM_THE_START).exists():
        fail_flushes()
    program.main()


if __name__ == "__main__":
    main()
