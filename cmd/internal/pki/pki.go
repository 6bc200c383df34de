// Package pki makes the certificates of an exchange: one authority, and leaves
// whose subject says the role. It keeps files in one directory and knows
// nothing of servers or the network.
//
// A leaf's common name is the user's name; its organizations are roles and
// namespaces, each with the prefix "bourse:".
package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// How long certificates are valid, and how far back they begin, for clocks that differ.
const (
	authorityLife = 10 * 365 * 24 * time.Hour
	leafLife      = 365 * 24 * time.Hour
	clockSkew     = 5 * time.Minute
)

// File names in the directory.
const (
	caCertFile    = "ca.crt"
	caKeyFile     = "ca.key"
	gossipKeyFile = "gossip.key"
)

// gossipKeyBytes selects AES-256 in memberlist.
const gossipKeyBytes = 32

// Authority signs the certificates of one exchange.
type Authority struct {
	dir  string
	cert *x509.Certificate
	key  crypto.Signer
}

// Pair is a certificate and its private key, both PEM.
type Pair struct{ Cert, Key []byte }

// Init makes a new authority and gossip key in dir. It refuses a directory that has one.
func Init(dir string) (*Authority, error) {
	if _, err := os.Stat(filepath.Join(dir, caKeyFile)); err == nil {
		return nil, fmt.Errorf("%s already holds an authority (%s): remove it or choose another directory", dir, caKeyFile)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("create the certificate directory: %w", err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make the authority's key: %w", err)
	}
	template, err := newTemplate(pkix.Name{CommonName: "bourse-ca"}, authorityLife)
	if err != nil {
		return nil, err
	}
	template.IsCA = true
	template.BasicConstraintsValid = true
	template.MaxPathLenZero = true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageCRLSign
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("sign the authority: %w", err)
	}
	pair, err := encode(der, key)
	if err != nil {
		return nil, err
	}
	gossip := make([]byte, gossipKeyBytes)
	if _, err := rand.Read(gossip); err != nil {
		return nil, fmt.Errorf("make the gossip key: %w", err)
	}
	secret := base64.StdEncoding.EncodeToString(gossip) + "\n"
	err = errors.Join(
		writeFile(filepath.Join(dir, caCertFile), pair.Cert, 0o644),
		writeFile(filepath.Join(dir, gossipKeyFile), []byte(secret), 0o600),
		writeFile(filepath.Join(dir, caKeyFile), pair.Key, 0o600),
	)
	if err != nil {
		return nil, err
	}
	return Open(dir)
}

// Open reads the authority of dir.
func Open(dir string) (*Authority, error) {
	pair, err := ReadPair(filepath.Join(dir, caCertFile), filepath.Join(dir, caKeyFile))
	if err != nil {
		return nil, fmt.Errorf("open the authority (made by `bourse pki init`): %w", err)
	}
	cert, key, err := pair.parse()
	if err != nil {
		return nil, fmt.Errorf("read the authority in %s: %w", dir, err)
	}
	return &Authority{dir: dir, cert: cert, key: key}, nil
}

// CertFile is the path of the authority's certificate, which everybody trusts.
func (a *Authority) CertFile() string { return filepath.Join(a.dir, caCertFile) }

// GossipKeyFile is the path of the key that encrypts gossip between broker nodes.
func (a *Authority) GossipKeyFile() string { return filepath.Join(a.dir, gossipKeyFile) }

// Server issues the certificate of one broker node, for its API, Raft and RPC alike.
func (a *Authority) Server(nodeID string, hosts []string) (Pair, error) {
	template, err := newTemplate(pkix.Name{CommonName: nodeID, Organization: []string{OrgServer}}, leafLife)
	if err != nil {
		return Pair{}, err
	}
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	template.DNSNames = []string{nodeID, "localhost"}
	template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	return a.sign(template)
}

// Client issues the certificate of a user or agent.
func (a *Authority) Client(identity Identity) (Pair, error) {
	template, err := newTemplate(pkix.Name{CommonName: identity.Name, Organization: identity.organizations()}, leafLife)
	if err != nil {
		return Pair{}, err
	}
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	return a.sign(template)
}

func (a *Authority) sign(template *x509.Certificate) (Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, fmt.Errorf("make a key for %s: %w", template.Subject.CommonName, err)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return Pair{}, fmt.Errorf("sign the certificate of %s: %w", template.Subject.CommonName, err)
	}
	return encode(der, key)
}

func newTemplate(subject pkix.Name, life time.Duration) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("make a serial number: %w", err)
	}
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      subject,
		NotBefore:    now.Add(-clockSkew),
		NotAfter:     now.Add(life),
		KeyUsage:     x509.KeyUsageDigitalSignature,
	}, nil
}

func encode(der []byte, key crypto.Signer) (Pair, error) {
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return Pair{}, fmt.Errorf("encode a private key: %w", err)
	}
	return Pair{
		Cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		Key:  pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}),
	}, nil
}

func (p Pair) parse() (*x509.Certificate, crypto.Signer, error) {
	certBlock, _ := pem.Decode(p.Cert)
	keyBlock, _ := pem.Decode(p.Key)
	if certBlock == nil || keyBlock == nil {
		return nil, nil, errors.New("not PEM")
	}
	cert, err := x509.ParseCertificate(certBlock.Bytes)
	if err != nil {
		return nil, nil, fmt.Errorf("parse the certificate: %w", err)
	}
	key, err := x509.ParsePKCS8PrivateKey(keyBlock.Bytes)
	if err != nil {
		return nil, nil, fmt.Errorf("parse the private key: %w", err)
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, nil, fmt.Errorf("a private key of type %T can't sign", key)
	}
	return cert, signer, nil
}

// ReadPair reads a certificate and its key.
func ReadPair(certPath, keyPath string) (Pair, error) {
	cert, err := os.ReadFile(certPath)
	if err != nil {
		return Pair{}, err
	}
	key, err := os.ReadFile(keyPath)
	if err != nil {
		return Pair{}, err
	}
	return Pair{Cert: cert, Key: key}, nil
}

// Write stores the pair as <base>.crt and <base>.key.
func (p Pair) Write(base string) error {
	return errors.Join(writeFile(base+".crt", p.Cert, 0o644), writeFile(base+".key", p.Key, 0o600))
}

// writeFile replaces path as a whole or not at all.
func writeFile(path string, data []byte, mode os.FileMode) error {
	temp, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	_, writeErr := temp.Write(data)
	err = errors.Join(writeErr, temp.Chmod(mode), temp.Sync(), temp.Close())
	if err == nil {
		err = os.Rename(temp.Name(), path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", path, err), os.Remove(temp.Name()))
	}
	return nil
}
