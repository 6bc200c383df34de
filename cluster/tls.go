package cluster

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"slices"
)

// ServerOrganization in a certificate is the role that may open the Raft listener.
const ServerOrganization = "bourse:server"

// credentials of the Raft listener; nil means plain TCP.
type credentials struct {
	roots *x509.CertPool
	cert  tls.Certificate
}

// loadCredentials reads the files and proves that the certificate is this node's.
func loadCredentials(files TLSFiles, nodeID string) (*credentials, error) {
	pem, err := os.ReadFile(files.CAFile)
	if err != nil {
		return nil, fmt.Errorf("tls ca-file: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("tls ca-file %s: no PEM certificate in it", files.CAFile)
	}
	cert, err := tls.LoadX509KeyPair(files.CertFile, files.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("tls cert-file, key-file: %w", err)
	}
	c := &credentials{roots: roots, cert: cert}
	leaf, err := x509.ParseCertificate(cert.Certificate[0])
	if err != nil {
		return nil, fmt.Errorf("tls cert-file %s: %w", files.CertFile, err)
	}
	if err := speaksFor(leaf, nodeID); err != nil {
		return nil, fmt.Errorf("tls cert-file %s: %w", files.CertFile, err)
	}
	return c, nil
}

// speaksFor says whether a verified certificate may act as the server nodeID; any server where it is empty.
func speaksFor(cert *x509.Certificate, nodeID string) error {
	if !slices.Contains(cert.Subject.Organization, ServerOrganization) {
		return fmt.Errorf("%w: certificate of %q has organization %q, not %q",
			ErrForbidden, cert.Subject.CommonName, cert.Subject.Organization, ServerOrganization)
	}
	if nodeID != "" && cert.Subject.CommonName != nodeID && !slices.Contains(cert.DNSNames, nodeID) {
		return fmt.Errorf("%w: certificate is for node %q, not %q", ErrForbidden, cert.Subject.CommonName, nodeID)
	}
	return nil
}

// verify proves a peer's chain and role. Names are node ids, never hosts: a node may move.
func (c *credentials) verify(state tls.ConnectionState, usage x509.ExtKeyUsage, nodeID string) error {
	if len(state.PeerCertificates) == 0 {
		return errors.New("no certificate presented")
	}
	intermediates := x509.NewCertPool()
	for _, cert := range state.PeerCertificates[1:] {
		intermediates.AddCert(cert)
	}
	leaf := state.PeerCertificates[0]
	if _, err := leaf.Verify(x509.VerifyOptions{
		Roots: c.roots, Intermediates: intermediates, KeyUsages: []x509.ExtKeyUsage{usage},
	}); err != nil {
		return err
	}
	return speaksFor(leaf, nodeID)
}

func (c *credentials) server() *tls.Config {
	return &tls.Config{
		MinVersion:   tls.VersionTLS13,
		Certificates: []tls.Certificate{c.cert},
		ClientAuth:   tls.RequireAnyClientCert, // and verified below: chain, usage and role
		VerifyConnection: func(state tls.ConnectionState) error {
			return c.verify(state, x509.ExtKeyUsageClientAuth, "")
		},
	}
}

// client is for dialing the node nodeID; any server where it is empty.
func (c *credentials) client(nodeID string) *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS13,
		Certificates:       []tls.Certificate{c.cert},
		InsecureSkipVerify: true, // of the host name only: verified below against the node id
		VerifyConnection: func(state tls.ConnectionState) error {
			return c.verify(state, x509.ExtKeyUsageServerAuth, nodeID)
		},
	}
}
