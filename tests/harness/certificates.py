"""Certificates for a test: an authority, servers and clients, a list of the revoked.

Everything is made when it is asked for and lies in the test's own folder; nothing is kept in the
repository that could expire.
"""

import datetime
import ipaddress
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_DAY = datetime.timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Credentials:
    """A certificate and its key, as files."""

    certificate: Path
    key: Path
    serial: int


class Authority:
    """One that signs."""

    def __init__(
        self, folder: Path, name: str = "authority", *, above: "Authority | None" = None
    ) -> None:
        """Make its own certificate; everything it signs lies in `folder`."""
        issuer = above or self
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._number = 0
        made = (
            _builder(self._name, issuer._name, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(_key_usage(signs=True), critical=True)
            .sign(issuer._key, hashes.SHA256())
        )
        self.file = folder / f"{name}.pem"
        self.file.write_bytes(made.public_bytes(serialization.Encoding.PEM))
        self.crl_file = folder / f"{name}.crl"
        self.own = Credentials(self.file, self.file, made.serial_number)

    def between(self, name: str) -> "Authority":
        """Make an authority that this one vouches for."""
        return Authority(self._folder, name, above=self)

    def server(self) -> Credentials:
        """Make a certificate for this machine."""
        names = [
            x509.DNSName("localhost"),
            x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
            x509.IPAddress(ipaddress.ip_address("::1")),
        ]
        return self._sign("localhost", names, ExtendedKeyUsageOID.SERVER_AUTH, expired=False)

    def client(
        self, name: str | None, *, mail: str | None = None, expired: bool = False
    ) -> Credentials:
        """Make a certificate for a client; without a name its subject names only a country."""
        names = [] if mail is None else [x509.RFC822Name(mail)]
        return self._sign(name, names, ExtendedKeyUsageOID.CLIENT_AUTH, expired=expired)

    def revoke(self, *revoked: Credentials, expired: bool = False) -> Path:
        """Write the list of all that is revoked."""
        now = datetime.datetime.now(datetime.UTC)
        builder = (
            x509.CertificateRevocationListBuilder()
            .issuer_name(self._name)
            .last_update(now - 3 * _DAY)
            .next_update(now - _DAY if expired else now + _DAY)
            .add_extension(x509.CRLNumber(1), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
        )
        for one in revoked:
            builder = builder.add_revoked_certificate(
                x509.RevokedCertificateBuilder()
                .serial_number(one.serial)
                .revocation_date(now - _DAY)
                .build()
            )
        made = builder.sign(self._key, hashes.SHA256())
        self.crl_file.write_bytes(made.public_bytes(serialization.Encoding.PEM))
        return self.crl_file

    def _sign(
        self,
        name: str | None,
        names: Sequence[x509.GeneralName],
        usage: x509.ObjectIdentifier,
        *,
        expired: bool,
    ) -> Credentials:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = [x509.NameAttribute(NameOID.COUNTRY_NAME, "AT")]
        if name is not None:
            subject.append(x509.NameAttribute(NameOID.COMMON_NAME, name))
        builder = (
            _builder(x509.Name(subject), self._name, key.public_key(), expired=expired)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        )
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        made = builder.sign(self._key, hashes.SHA256())
        self._number += 1
        certificate = self._folder / f"{self.file.stem}-{self._number}.pem"
        certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))
        file = certificate.with_suffix(".key")
        file.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return Credentials(certificate, file, made.serial_number)

    def context(
        self,
        client: Credentials | None = None,
        *,
        alpn: tuple[str, ...] = (),
        oldest: ssl.TLSVersion = ssl.TLSVersion.TLSv1_2,
        newest: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3,
    ) -> ssl.SSLContext:
        """A client's view: trusts this authority, shows the certificate."""
        context = ssl.create_default_context(cafile=str(self.file))
        context.minimum_version, context.maximum_version = oldest, newest
        if alpn:
            context.set_alpn_protocols(list(alpn))
        if client is not None:
            context.load_cert_chain(client.certificate, client.key)
        return context


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    *,
    expired: bool = False,
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - 3 * _DAY)
        .not_valid_after(now - _DAY if expired else now + 30 * _DAY)
    )


def _key_usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )
