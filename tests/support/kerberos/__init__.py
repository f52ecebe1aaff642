"""A Kerberos realm for tests: a real KDC on loopback, its principals and their keytabs."""

from tests.support.kerberos.realm import Realm, prepare

__all__ = ["Realm", "prepare"]
