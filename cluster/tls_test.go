package cluster

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// authority issues certificates for tests.
type authority struct {
	t    *testing.T
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t, dir: t.TempDir()}
	a.key = newKey(t)
	a.cert = &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, a.cert, a.cert, &a.key.PublicKey, a.key)
	require.NoError(t, err)
	a.write("ca.pem", "CERTIFICATE", der)
	return a
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	return key
}

func (a *authority) write(name, kind string, der []byte) string {
	path := filepath.Join(a.dir, name)
	require.NoError(a.t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
	return path
}

func (a *authority) issue(file, organization, commonName string) TLSFiles {
	key := newKey(a.t)
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()),
		Subject:      pkix.Name{CommonName: commonName, Organization: []string{organization}},
		NotBefore:    time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}, a.cert, &key.PublicKey, a.key)
	require.NoError(a.t, err)
	keyDER, err := x509.MarshalECPrivateKey(key)
	require.NoError(a.t, err)
	return TLSFiles{
		CAFile:   filepath.Join(a.dir, "ca.pem"),
		CertFile: a.write(file+".pem", "CERTIFICATE", der),
		KeyFile:  a.write(file+"-key.pem", "EC PRIVATE KEY", keyDER),
	}
}

// stranger is somebody who claims to be a node.
type stranger struct{ id, uuid, cluster string }

func (s stranger) self() (string, string, string) { return s.id, s.uuid, s.cluster }
func (stranger) joining() bool                    { return false }
func (stranger) logEnd() uint64                   { return 0 }
func (stranger) knownUUID(string, uint64) string  { return "" }

func TestOnlyServerCertificatesOpenTheRaftListener(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	key := make([]byte, 32)
	g := startGroup(t, 3, func(c *Config) {
		c.Insecure, c.GossipKey = false, key
		c.TLS = ca.issue(c.NodeID, ServerOrganization, c.NodeID)
	})
	mustPut(t, g.follower(), "things/a", "1")
	n := g.leader()
	_, _, cluster := n.self()

	open := func(files TLSFiles, claim string, kind streamKind) error {
		cert, err := tls.LoadX509KeyPair(files.CertFile, files.KeyFile)
		require.NoError(t, err)
		roots, err := loadCredentials(g.cfgs["n1"].TLS, "n1")
		require.NoError(t, err)
		d := &dialer{who: stranger{claim, "u", cluster}, creds: &credentials{roots: roots.roots, cert: cert}}
		conn, _, err := d.dial(context.Background(), kind, "", n.RaftAddress())
		if err == nil {
			_ = conn.Close()
		}
		return err
	}
	good := ca.issue("n9", ServerOrganization, "n9")
	agent := ca.issue("agent", "bourse:agent", "rome")
	other := newAuthority(t).issue("n9", ServerOrganization, "n9")
	for _, kind := range []streamKind{kindRaft, kindRPC} {
		require.NoError(t, open(good, "n9", kind))
		require.Error(t, open(agent, "rome", kind), "an agent's certificate")
		require.Error(t, open(agent, "n9", kind), "an agent's certificate that claims a node id")
		require.Error(t, open(other, "n9", kind), "another authority's certificate")
		require.ErrorIs(t, open(good, "n8", kind), ErrForbidden, "another node's certificate")
	}
	// Plain TCP gets no answer at all.
	conn, err := net.Dial("tcp", n.RaftAddress())
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
	require.NoError(t, writeHello(conn, kindRPC, hello{From: "n9", UUID: "u", ClusterID: cluster}))
	_, _, err = readHello(conn)
	require.Error(t, err)
}

func TestACertificateForAnotherNodeIsRefusedAtTheStart(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	cfg, _ := testConfig(t, "n1")
	cfg.BootstrapExpect, cfg.GossipListen, cfg.Insecure = 1, "", false
	cfg.TLS = ca.issue("n2", ServerOrganization, "n2")
	_, err := NewNode(cfg)
	require.ErrorContains(t, err, `certificate is for node "n2", not "n1"`)
}
