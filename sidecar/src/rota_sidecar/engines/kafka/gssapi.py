"""
The client side of GSSAPI with Kerberos: a binding of MIT's `libgssapi_krb5.so.2` by ctypes.

`kerberos.py` calls it, in a thread: acquiring credentials and the first step of a context may ask the KDC, and block. The library
is loaded with the first login. It reads `krb5.conf` (or `$KRB5_CONFIG`) itself. Each login acquires its credentials anew: with a
keytab the library gets tickets for it, and others when half of their lifetime is over or less than 30 s are left.
"""

import ctypes
import threading
from collections import Counter
from ctypes import POINTER, byref, c_char, c_char_p, c_int, c_size_t, c_uint32, c_void_p
from functools import cache
from pathlib import Path
from typing import NamedTuple

from typing_extensions import override

LIBRARY = "libgssapi_krb5.so.2"

# Constants of gssapi.h (RFC 2744).
COMPLETE, CONTINUE_NEEDED = 0, 1
ROUTINE_ERRORS = 0xFFFF0000
INITIATE = 1
MUTUAL_FLAG, INTEGRITY_FLAG = 2, 32
INDEFINITE = 0
GSS_CODE, MECHANISM_CODE = 1, 2


class _Buffer(ctypes.Structure):
    _fields_ = (("length", c_size_t), ("value", c_void_p))


class _Oid(ctypes.Structure):
    _fields_ = (("length", c_uint32), ("elements", c_char_p))


class _OidSet(ctypes.Structure):
    _fields_ = (("count", c_size_t), ("elements", POINTER(_Oid)))


class _Entry(ctypes.Structure):
    _fields_ = (("key", c_char_p), ("value", c_char_p))


class _Store(ctypes.Structure):
    _fields_ = (("count", c_uint32), ("elements", POINTER(_Entry)))


def _oid(encoded: bytes) -> _Oid:
    return _Oid(len(encoded), encoded)


KERBEROS = _oid(b"\x2a\x86\x48\x86\xf7\x12\x01\x02\x02")
HOST_BASED_SERVICE = _oid(b"\x2a\x86\x48\x86\xf7\x12\x01\x02\x01\x04")
PRINCIPAL = _oid(b"\x2a\x86\x48\x86\xf7\x12\x01\x02\x02\x01")


class LibraryMissing(Exception):
    """The library cannot be loaded; the message is the loader's."""


class GssFailure(Exception):
    """A call of the library failed. `minor` is the code of Kerberos, as a signed 32-bit number."""

    def __init__(self, major: int, minor: int, text: str) -> None:
        super().__init__(text)
        self.major = major
        self.minor = minor

    @override
    def __str__(self) -> str:
        return str(self.args[0])


class Identity(NamedTuple):
    """The client's identity. Without a keytab its tickets are those of the credential cache; without a principal, the first one's."""

    principal: str
    keytab: Path | None


@cache
def _library() -> ctypes.CDLL:
    """Load the library and declare its functions. Raises LibraryMissing."""
    try:
        library = ctypes.CDLL(LIBRARY)
    except OSError as error:
        raise LibraryMissing(str(error)) from None
    buffer, minor, handle = POINTER(_Buffer), POINTER(c_uint32), POINTER(c_void_p)
    flags = POINTER(c_uint32)
    for name, arguments in {
        "gss_import_name": (minor, buffer, POINTER(_Oid), handle),
        "gss_release_name": (minor, handle),
        "gss_acquire_cred_from": (
            *(minor, c_void_p, c_uint32, POINTER(_OidSet), c_int),
            *(POINTER(_Store), handle, c_void_p, c_void_p),
        ),
        "gss_release_cred": (minor, handle),
        "gss_init_sec_context": (
            *(minor, c_void_p, handle, c_void_p, POINTER(_Oid), c_uint32, c_uint32),
            *(c_void_p, buffer, c_void_p, buffer, flags, c_void_p),
        ),
        "gss_delete_sec_context": (minor, handle, c_void_p),
        "gss_wrap": (minor, c_void_p, c_int, c_uint32, buffer, POINTER(c_int), buffer),
        "gss_unwrap": (minor, c_void_p, buffer, buffer, POINTER(c_int), POINTER(c_uint32)),
        "gss_display_status": (minor, c_uint32, c_int, POINTER(_Oid), POINTER(c_uint32), buffer),
        "gss_release_buffer": (minor, buffer),
    }.items():
        function = getattr(library, name)
        function.argtypes, function.restype = arguments, c_uint32
    return library


# Tickets from keytabs are in memory, for a file would outlive the process: one cache for each identity, and another one each
# time that its tickets are discarded.
_discarded: Counter[Identity] = Counter()
_discarding = threading.Lock()


def discard_tickets(identity: Identity) -> None:
    """Let the next context of this identity begin with a new cache of tickets."""
    with _discarding:
        _discarded[identity] += 1


def _store_entries(identity: Identity) -> list[_Entry]:
    """Return where the library finds the keytab and keeps the tickets; empty: the credential cache of the environment."""
    if identity.keytab is None:
        return []
    cache = f"MEMORY:rota-{_discarded[identity]}:{identity.keytab}:{identity.principal}"
    return [
        _Entry(b"client_keytab", f"FILE:{identity.keytab}".encode()),
        _Entry(b"ccache", cache.encode()),
    ]


class Context:
    """
    A security context with one service, from the first token until `close`.

    Invariant: not used by two threads at a time.
    """

    def __init__(self, identity: Identity, service: str, host: str) -> None:
        """Acquire credentials; may ask the KDC. Raises GssFailure and LibraryMissing."""
        self.established = False
        # The service has proved that it knows its key.
        self.mutual = False
        self._library = _library()
        self._context, self._credentials, self._target = c_void_p(), c_void_p(), c_void_p()
        try:
            self._target = self._name(f"{service}@{host}", HOST_BASED_SERVICE)
            self._acquire(identity)
        except GssFailure:
            self.close()
            raise

    def step(self, token: bytes) -> bytes:
        """Take the service's token, none at first; return the next one to send. Raises GssFailure."""
        given, produced, flags = _buffer(token), _Buffer(), c_uint32()
        self._call(
            "gss_init_sec_context",
            *(self._credentials, byref(self._context), self._target, byref(KERBEROS)),
            *(MUTUAL_FLAG | INTEGRITY_FLAG, INDEFINITE, None, byref(given), None),
            *(byref(produced), byref(flags), None),
        )
        self.mutual = bool(flags.value & MUTUAL_FLAG)
        return self._take(produced)

    def unwrap(self, message: bytes) -> bytes:
        """Verify a message of the service and return its content. Raises GssFailure."""
        given, content = _buffer(message), _Buffer()
        self._call("gss_unwrap", self._context, byref(given), byref(content), None, None)
        return self._take(content)

    def wrap(self, content: bytes) -> bytes:
        """Sign a message for the service, without encrypting it. Raises GssFailure."""
        given, message = _buffer(content), _Buffer()
        self._call("gss_wrap", self._context, 0, 0, byref(given), None, byref(message))
        return self._take(message)

    def close(self) -> None:
        """Release what the library holds for it; no effect on the second call."""
        minor = c_uint32()
        self._library.gss_delete_sec_context(byref(minor), byref(self._context), None)
        self._library.gss_release_cred(byref(minor), byref(self._credentials))
        self._library.gss_release_name(byref(minor), byref(self._target))

    def _acquire(self, identity: Identity) -> None:
        entries = _store_entries(identity)
        store = _Store(len(entries), (_Entry * len(entries))(*entries))
        mechanisms = _OidSet(1, ctypes.pointer(KERBEROS))
        name = self._name(identity.principal, PRINCIPAL) if identity.principal else c_void_p()
        try:
            self._call(
                "gss_acquire_cred_from",
                *(name, INDEFINITE, byref(mechanisms), INITIATE),
                *(byref(store) if entries else None, byref(self._credentials), None, None),
            )
        finally:
            self._library.gss_release_name(byref(c_uint32()), byref(name))

    def _name(self, text: str, kind: _Oid) -> c_void_p:
        given, name = _buffer(text.encode()), c_void_p()
        self._call("gss_import_name", byref(given), byref(kind), byref(name))
        return name

    def _call(self, function: str, *arguments: object) -> None:
        minor = c_uint32()
        major = getattr(self._library, function)(byref(minor), *arguments)
        if major & ROUTINE_ERRORS:
            raise self._failure(major, minor.value)
        if function == "gss_init_sec_context":
            self.established = not major & CONTINUE_NEEDED

    def _failure(self, major: int, minor: int) -> GssFailure:
        text = self._text(minor, MECHANISM_CODE) if minor else self._text(major, GSS_CODE)
        return GssFailure(major & ROUTINE_ERRORS, c_int(minor).value, text)

    def _text(self, code: int, kind: int) -> str:
        text = _Buffer()
        more = c_uint32()
        self._library.gss_display_status(
            byref(c_uint32()), code, kind, byref(KERBEROS), byref(more), byref(text)
        )
        return self._take(text).decode("utf-8", "replace").strip()

    def _take(self, buffer: _Buffer) -> bytes:
        """Copy a buffer of the library's and release it."""
        data = ctypes.string_at(buffer.value, buffer.length) if buffer.value else b""
        self._library.gss_release_buffer(byref(c_uint32()), byref(buffer))
        return data


def _buffer(data: bytes) -> _Buffer:
    held = (c_char * max(1, len(data))).from_buffer_copy(data or b"\0")
    return _Buffer(len(data), ctypes.cast(held, c_void_p))
