package kube

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// certLifetime outlives any test; a cluster is never kept longer.
const certLifetime = 7 * 24 * time.Hour

// pki is the cluster's own authority. It signs servers and clients alike, and the controllers sign CSRs with it.
type pki struct {
	dir  string
	cert *x509.Certificate
	key  crypto.Signer
	ca   []byte // PEM
}

// newPKI makes the authority and the files that the programs are given: ca, apiserver, scheduler (each .crt and .key)
// and the key pair sa.key, sa.pub that signs service account tokens.
func newPKI(dir string) (*pki, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	p := &pki{dir: dir, key: key}
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: "kubernetes-ca"},
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	if p.cert, p.ca, err = sign(template, template, key.Public(), key); err != nil {
		return nil, err
	}
	if err := p.writeKeyPair("ca", p.ca, key); err != nil {
		return nil, err
	}
	for _, server := range []string{"apiserver", "scheduler"} {
		if err := p.issueServer(server); err != nil {
			return nil, err
		}
	}
	return p, p.writeServiceAccountKeys()
}

func (p *pki) path(file string) string { return filepath.Join(p.dir, file) }

func (p *pki) issueServer(name string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	_, cert, err := sign(&x509.Certificate{
		Subject:     pkix.Name{CommonName: name},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames: []string{
			"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc",
			"kubernetes.default.svc.cluster.local",
		},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv4(10, 96, 0, 1)},
	}, p.cert, key.Public(), p.key)
	if err != nil {
		return err
	}
	return p.writeKeyPair(name, cert, key)
}

// issueClient returns a client certificate and its key for a user, both PEM.
func (p *pki) issueClient(user string, groups ...string) (cert, key []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	_, cert, err = sign(&x509.Certificate{
		Subject:     pkix.Name{CommonName: user, Organization: groups},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, p.cert, private.Public(), p.key)
	if err != nil {
		return nil, nil, err
	}
	key, err = encodeKey(private)
	return cert, key, err
}

func (p *pki) writeServiceAccountKeys() error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	private, err := encodeKey(key)
	if err != nil {
		return err
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return err
	}
	if err := os.WriteFile(p.path("sa.key"), private, 0o600); err != nil {
		return err
	}
	return os.WriteFile(p.path("sa.pub"), pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), 0o600)
}

func (p *pki) writeKeyPair(name string, cert []byte, key crypto.Signer) error {
	private, err := encodeKey(key)
	if err != nil {
		return err
	}
	if err := os.WriteFile(p.path(name+".crt"), cert, 0o600); err != nil {
		return err
	}
	return os.WriteFile(p.path(name+".key"), private, 0o600)
}

// sign fills in what all certificates share and signs with the parent's key.
func sign(template, parent *x509.Certificate, public crypto.PublicKey, key crypto.Signer) (*x509.Certificate, []byte, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, nil, err
	}
	template.SerialNumber = serial
	// Clocks of one machine agree, but a step back of a minute must not make a new certificate invalid.
	template.NotBefore = time.Now().Add(-time.Hour)
	template.NotAfter = time.Now().Add(certLifetime)
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, key)
	if err != nil {
		return nil, nil, fmt.Errorf("signing certificate of %s: %w", template.Subject.CommonName, err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, nil, fmt.Errorf("reading back certificate of %s: %w", template.Subject.CommonName, err)
	}
	return cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), nil
}

func encodeKey(key crypto.Signer) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}
