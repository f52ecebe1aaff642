"""
MIT's KDC on loopback, from Debian's packages unpacked into the cache, with a realm of its own in a folder.

`Realm.make` writes `krb5.conf` and the database and starts the KDC; `add` creates a principal with a keytab. Clients find the
realm by `KRB5_CONFIG` alone (`environment`), so that neither the machine's `/etc/krb5.conf` nor its DNS has a say.
"""

import os
import subprocess
from pathlib import Path

from tests.support import debian
from tests.support.debian import Unpacked
from tests.support.network import HERE
from tests.support.ports import free_port
from tests.support.processes import Process, ProcessFailed, accepts_connections, current_owner
from tests.support.unavailable import Unavailable

REALM = "ROTA.TEST"
# The broker's principal; the host is the one that clients dial.
SERVICE = "kafka/localhost"
PACKAGES = ("krb5-kdc", "krb5-admin-server", "krb5-user", "faketime")
READY_S = 30
# Lifetimes of tickets are at most this, if a principal has no shorter one.
LIFETIME = "10h"
MASTER_PASSWORD = "rota-master"


def prepare() -> Unpacked:
    """The programs; fetched on the first call."""
    return debian.unpack("kerberos", *PACKAGES)


class Realm:
    """One realm; its KDC can be stopped and started again, with its principals."""

    def __init__(self, folder: Path, name: str, port: int) -> None:
        self.name = name
        self.config = folder / "krb5.conf"
        self._folder = folder
        self._port = port
        self._tree = prepare()
        self._kdc: Process | None = None
        self._owner = current_owner()

    @classmethod
    def make(cls, folder: Path, name: str = REALM) -> "Realm":
        """Create the realm's database and configuration in this folder, and start its KDC."""
        folder.mkdir(parents=True)
        realm = cls(folder, name, free_port())
        realm.config.write_text(realm._client_config())
        (folder / "kdc.conf").write_text(realm._kdc_config())
        (folder / "kadm5.acl").write_text("")
        # Without `-W` the master key would be drawn from strong random numbers; `-s` keeps it for the KDC.
        realm._run("kdb5_util", "create", "-s", "-r", name, "-P", MASTER_PASSWORD)
        realm.start()
        return realm

    @property
    def environment(self) -> dict[str, str]:
        """Environment of clients of this realm that bring libraries of their own."""
        return {"KRB5_CONFIG": str(self.config), "TZ": "UTC"}

    def add(self, principal: str, *, lifetime: str = LIFETIME) -> Path:
        """Create a principal with a random key; return its keytab. Its tickets live at most this long, such as `20s`."""
        keytab = self.keytab_path(principal)
        self._admin(f"addprinc -randkey -maxlife {lifetime} {principal}")
        self._admin(f"ktadd -k {keytab} {principal}")
        return keytab

    def replace_keytab(self, principal: str) -> None:
        """Give the principal another key, and let its keytab have that one alone."""
        keytab = self.keytab_path(principal)
        keytab.unlink()
        self._admin(f"ktadd -k {keytab} {principal}")

    def renew_key(self, principal: str) -> None:
        """Give the principal another key: keytabs that were written before are outdated."""
        self._admin(f"cpw -randkey {principal}")

    def remove(self, principal: str) -> None:
        """Delete a principal; its keytab stays."""
        self._admin(f"delprinc -force {principal}")

    def keytab_path(self, principal: str) -> Path:
        """The path of a principal's keytab."""
        return self._folder / f"{principal.replace('/', '-')}.keytab"

    def kinit(self, principal: str, cache: Path) -> None:
        """Write a credential cache, as `kinit -k` does."""
        self._run("kinit", "-k", "-t", str(self.keytab_path(principal)), "-c", f"FILE:{cache}", principal)

    def tickets_issued(self, principal: str) -> int:
        """Number of initial tickets that the KDC has issued to this principal."""
        log = (self._folder / "kdc.log").read_text()
        lines = [line for line in log.splitlines() if "AS_REQ" in line and "ISSUE" in line]
        return sum(f" {principal}@{self.name} for " in line for line in lines)

    def start(self, *, clock: str = "") -> None:
        """Start the KDC; returns when it accepts connections. `clock` moves its clock, such as `+600s`."""
        skew = {"LD_PRELOAD": str(self._faketime()), "FAKETIME": clock} if clock else {}
        self._kdc = Process.start(
            f"KDC of {self.name}",
            [self._tree.program("krb5kdc"), "-n", "-P", self._folder / "kdc.pid"],
            log=self._folder / "kdc.out",
            env={**self.administration, **skew},
            owner=self._owner,
        )
        self._kdc.wait_until(lambda: accepts_connections(HERE.address, self._port), within_s=READY_S)

    def stop(self) -> None:
        """Stop the KDC; clients find nothing at its address."""
        if self._kdc is not None:
            self._kdc.stop()

    def clock(self, moved: str) -> dict[str, str]:
        """Environment of a process whose clock is moved, such as `+600s`."""
        return {"LD_PRELOAD": str(self._faketime()), "FAKETIME": moved, "FAKETIME_DONT_FAKE_MONOTONIC": "1"}

    def _faketime(self) -> Path:
        found = sorted(self._tree.root.glob("usr/lib/*/faketime/libfaketime.so.1"))
        if not found:
            raise Unavailable(f"{self._tree.root} has no libfaketime.so.1; delete that folder and try again")
        return found[0]

    def _admin(self, command: str) -> None:
        self._run("kadmin.local", "-r", self.name, "-q", command)

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [self._tree.program(program), *arguments],
            env={**os.environ, **self.administration},
            capture_output=True,
            text=True,
        )
        # kadmin.local ends with 0 when its command fails.
        if done.returncode != 0 or "while" in done.stderr:
            raise ProcessFailed(f"{program} failed ({done.returncode}): {done.stderr.strip()}")

    @property
    def administration(self) -> dict[str, str]:
        """Environment of the KDC's own programs, such as `kadmin.local`."""
        return {
            **self._tree.environment(),
            **self.environment,
            "KRB5_KDC_PROFILE": str(self._folder / "kdc.conf"),
            "LC_ALL": "C",
        }

    def _client_config(self) -> str:
        return f"""\
[libdefaults]
    default_realm = {self.name}
    dns_lookup_kdc = false
    dns_lookup_realm = false
    dns_canonicalize_hostname = false
    rdns = false
    udp_preference_limit = 1
[realms]
    {self.name} = {{
        kdc = {HERE.address}:{self._port}
    }}
"""

    def _kdc_config(self) -> str:
        plugins = next(self._tree.root.glob("usr/lib/*/krb5/plugins/kdb"))
        return f"""\
[kdcdefaults]
    kdc_listen = {HERE.address}:{self._port}
    kdc_tcp_listen = {HERE.address}:{self._port}
[realms]
    {self.name} = {{
        database_name = {self._folder}/principal
        key_stash_file = {self._folder}/stash
        acl_file = {self._folder}/kadm5.acl
        max_life = {LIFETIME}
        # Preauthentication makes the KDC verify the client's key, and with it the client's clock.
        default_principal_flags = +preauth
        supported_enctypes = aes256-cts-hmac-sha1-96:normal
    }}
[logging]
    kdc = FILE:{self._folder}/kdc.log
[dbmodules]
    db_module_dir = {plugins}
"""
