"""
The tokens file: principals with their credentials, grants and quotas. docs/guide/security.md shows one.

Pure: text in, principals out. `tokens_file` reads the file.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rota_coordinator.core.group.config import GROUP_ID_LENGTH_MAX
from rota_coordinator.core.quotas import QUOTAS, UNLIMITED, Quota
from rota_coordinator.security.authenticator import Digest, digest_of, is_same
from rota_coordinator.security.errors import SecurityError
from rota_coordinator.security.policy import Action, Grants, NameSet, TopicAction
from rota_coordinator.security.service_accounts import EXPECTED, SUBJECT, is_in, subjects_of

Right = Action | TopicAction | None
CERTIFICATE = "certificate"
# For pods of a service account, which Kubernetes authenticates.
SERVICE_ACCOUNT = "service-account"
SHA256 = re.compile("[0-9a-f]{64}", re.IGNORECASE)
RIGHTS: "Mapping[str, Right]" = {
    "read": Action.READ,
    "member": Action.MEMBER,
    "admin": Action.ADMIN,
    "consume": TopicAction.CONSUME,
    "produce": TopicAction.PRODUCE,
    "topics": TopicAction.ADMIN,
    "transactional": None,
}
# Prefix of a field with quotas, such as quota:groups=10,members=100.
QUOTA = "quota:"
QUOTA_FIELDS = {name: field for field, (name, _) in QUOTAS.items()}
CREDENTIALS = "sha256:HEX, plain:TOKEN, certificate or service-account"


class ParseError(Exception):
    """An error in a line of the tokens file."""


class Grant(NamedTuple):
    """The grant that one field of a line contains."""

    # Right to groups or to topics; None: the right to be a transactional producer.
    action: Right
    # A name, or a prefix followed by `*`.
    pattern: str


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of the file: a principal with its credentials, grants and quotas."""

    name: str
    digests: tuple[Digest, ...]
    has_certificate: bool
    is_service_account: bool
    grants: Grants
    # Field of `Usage` -> quota that overrides the flag's.
    quota: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Principals:
    """The principals of the file. Invariant: names and tokens are unique."""

    by_name: Mapping[str, Entry]

    def with_token(self, digest: Digest) -> str | None:
        """Return the principal of the token. All digests are compared, so that timing reveals nothing about them."""
        found = None
        for entry in self.by_name.values():
            for known in entry.digests:
                if is_same(known, digest):
                    found = entry.name
        return found

    def with_certificate(self, names: Sequence[str]) -> str | None:
        """Return the principal whose certificate has one of these names; it must be listed with `certificate`."""
        found = (self.by_name[name] for name in names if name in self.by_name)
        return next((entry.name for entry in found if entry.has_certificate), None)

    def grants_of(self, name: str) -> Grants | None:
        """Return the grants of the principal; None when there is no such principal."""
        entry = self.by_name.get(name)
        return None if entry is None else entry.grants

    def grants_of_pods(self, subject: str) -> Grants | None:
        """Return the grants of a service account, or of a group of them; its line must have `service-account`."""
        entry = self.by_name.get(subject)
        return None if entry is None or not entry.is_service_account else entry.grants

    def grants_in(self, namespace: str) -> Iterator[Grants]:
        """Yield the grants of all service accounts of a namespace, one by one and together."""
        for entry in self.by_name.values():
            if entry.is_service_account and is_in(entry.name, namespace):
                yield entry.grants

    def quota_of(self, name: str, default: Quota) -> Quota:
        """
        Return the quota of the principal; `default` for fields that its line does not set. The quota of a service account is
        that of all of them, with the fields of its namespace's line and of its own line.
        """
        found = default
        for subject in subjects_of(name) or (name,):
            entry = self.by_name.get(subject)
            if entry is not None:
                found = found._replace(**entry.quota)
        return found


def parse(text: str, where: str) -> Principals:
    """Return the principals of a file; an error in one line rejects the whole file, with the line's number."""
    by_name: dict[str, Entry] = {}
    owners: dict[Digest, str] = {}
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        try:
            entry = parse_line(line.split())
            add(entry, by_name, owners)
        except ParseError as error:
            raise SecurityError(f"{where}, line {number}: {error}") from None
    if not by_name:
        raise SecurityError(f"{where}: the file has no principals, so every call would be rejected; add one")
    return Principals(by_name)


def add(entry: Entry, by_name: dict[str, Entry], owners: dict[Digest, str]) -> None:
    """Add a line; raise if its name or a token is on an earlier line."""
    if entry.name in by_name:
        raise ParseError(
            f"{entry.name} is on an earlier line too; list its tokens on one line, separated by commas"
        )
    for digest in entry.digests:
        if digest in owners:
            raise ParseError(
                f"{entry.name} and {owners[digest]} have the same token; give each principal its own"
            )
        owners[digest] = entry.name
    by_name[entry.name] = entry


def parse_line(fields: Sequence[str]) -> Entry:
    """Parse the line of one principal. Error messages contain no credentials, because they are logged."""
    if len(fields) == 1:
        raise ParseError(f"{fields[0]} has no credentials; write {CREDENTIALS} after the name")
    name, credentials, *rest = fields
    patterns = [field for field in rest if not field.startswith(QUOTA)]
    quotas = [field.removeprefix(QUOTA) for field in rest if field.startswith(QUOTA)]
    if "*" in name:
        raise ParseError(f"invalid principal name {name}; it must not contain *")
    given = credentials.split(",")
    if SERVICE_ACCOUNT in given and not SUBJECT.fullmatch(name):
        raise ParseError(f"{name} is not the name of a service account; write {EXPECTED}")
    kinds = (CERTIFICATE, SERVICE_ACCOUNT)
    return Entry(
        name=name,
        digests=tuple(parse_token(credential) for credential in given if credential not in kinds),
        has_certificate=CERTIFICATE in given,
        is_service_account=SERVICE_ACCOUNT in given,
        grants=collect([parse_grant(pattern) for pattern in patterns]),
        quota=dict(parse_quota(each) for field in quotas for each in field.split(",")),
    )


def parse_quota(text: str) -> tuple[str, int]:
    """Parse a quota such as groups=10, and return its field and value."""
    name, _, value = text.partition("=")
    if name not in QUOTA_FIELDS:
        raise ParseError(f"quota:{text[:40]}: expected one of {', '.join(QUOTA_FIELDS)}")
    if value != str(UNLIMITED) and not (value.isascii() and value.isdecimal()):
        raise ParseError(f"quota:{text[:40]}: write {name}=N, or {name}={UNLIMITED} for no quota")
    return QUOTA_FIELDS[name], int(value)


def parse_token(credential: str) -> Digest:
    """Return the digest of a credential that is given as a plain token or as a digest."""
    kind, _, value = credential.partition(":")
    if kind == "plain" and value:
        return digest_of(value)
    if kind == "sha256" and SHA256.fullmatch(value):
        return Digest(bytes.fromhex(value))
    if kind == "sha256":
        raise ParseError("sha256: must be followed by 64 hexadecimal digits")
    raise ParseError(f"credentials must be {CREDENTIALS}, or several of these separated by commas")


def parse_grant(field: str) -> Grant:
    """Parse a grant: a right and a pattern of names; without a right, it is MEMBER of groups."""
    word, colon, rest = field.partition(":")
    action, pattern = (RIGHTS[word], rest) if colon and word in RIGHTS else (Action.MEMBER, field)
    if not pattern or len(pattern) > GROUP_ID_LENGTH_MAX:
        raise ParseError(f"{field[:40]}: a name has 1 to {GROUP_ID_LENGTH_MAX} characters")
    if "*" in pattern[:-1]:
        raise ParseError(f"{field}: * is allowed as the last character only")
    return Grant(action, pattern)


def collect(given: Sequence[Grant]) -> Grants:
    """Combine the grants of a line; a right includes the smaller ones."""

    def at_least(least: Action | TopicAction) -> NameSet:
        kind = type(least)
        return names(each for each in given if isinstance(each.action, kind) and each.action >= least)

    return Grants(
        groups={action: at_least(action) for action in Action},
        topics={action: at_least(action) for action in TopicAction},
        transactional_ids=names(each for each in given if each.action is None),
    )


def names(grants: Iterable[Grant]) -> NameSet:
    """Return the set of names of these patterns."""
    patterns = [grant.pattern for grant in grants]
    return NameSet(
        names=frozenset(pattern for pattern in patterns if not pattern.endswith("*")),
        prefixes=tuple(pattern[:-1] for pattern in patterns if pattern.endswith("*")),
    )
