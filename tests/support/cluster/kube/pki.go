package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

const lifetime = 30 * 24 * time.Hour

// A certificate that somebody asked for. It serves when it has addresses or host names, else it is a client's.
type request struct {
	Name      string   `json:"name"` // of the files: NAME.crt, NAME.key
	User      string   `json:"user"`
	Groups    []string `json:"groups"`
	Addresses []net.IP `json:"addresses"`
	Hosts     []string `json:"hosts"`
}

// `kube pki FOLDER < requests.json` makes a certificate authority (ca.crt), the key that signs service account
// tokens (sa.key), and the certificates asked for. It is here because the tests' machines have no openssl.
func pki() {
	if len(os.Args) != 2 {
		fail("pki takes one folder; the requests come on standard input as JSON")
	}
	folder := os.Args[1]
	var requests []request
	check(json.NewDecoder(os.Stdin).Decode(&requests))

	authorityKey := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	authority := newCertificate(1, "cluster", nil)
	authority.IsCA = true
	authority.BasicConstraintsValid = true
	authority.KeyUsage |= x509.KeyUsageCertSign
	write(folder, "ca.crt", "CERTIFICATE", sign(authority, authority, authorityKey, authorityKey))

	accounts := must(rsa.GenerateKey(rand.Reader, 2048))
	write(folder, "sa.key", "RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(accounts))

	for at, wanted := range requests {
		key := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
		certificate := wanted.template(int64(at) + 2)
		write(folder, wanted.Name+".crt", "CERTIFICATE", sign(certificate, authority, key, authorityKey))
		write(folder, wanted.Name+".key", "EC PRIVATE KEY", must(x509.MarshalECPrivateKey(key)))
	}
}

func (r request) template(serial int64) *x509.Certificate {
	certificate := newCertificate(serial, r.User, r.Groups)
	certificate.IPAddresses, certificate.DNSNames = r.Addresses, r.Hosts
	certificate.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	if len(r.Addresses)+len(r.Hosts) > 0 {
		certificate.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	}
	return certificate
}

func newCertificate(serial int64, name string, groups []string) *x509.Certificate {
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: big.NewInt(serial),
		Subject:      pkix.Name{CommonName: name, Organization: groups},
		NotBefore:    now.Add(-time.Hour), // clocks of a suspended machine may step back
		NotAfter:     now.Add(lifetime),
		KeyUsage:     x509.KeyUsageDigitalSignature,
	}
}

func sign(certificate, authority *x509.Certificate, key, authorityKey *ecdsa.PrivateKey) []byte {
	return must(x509.CreateCertificate(rand.Reader, certificate, authority, &key.PublicKey, authorityKey))
}

func write(folder, name, kind string, content []byte) {
	block := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: content})
	check(os.WriteFile(filepath.Join(folder, name), block, 0o600))
}

func must[T any](value T, err error) T {
	check(err)
	return value
}

func check(err error) {
	if err != nil {
		fail("pki: %v", err)
	}
}
