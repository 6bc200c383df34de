package pki

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/clientcmd"
)

func TestInitRefusesADirectoryThatHasAnAuthority(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "pki")
	_, err := Init(dir)
	require.NoError(t, err)
	before, err := os.ReadFile(filepath.Join(dir, caKeyFile))
	require.NoError(t, err)

	_, err = Init(dir)

	require.ErrorContains(t, err, "already holds an authority")
	after, err := os.ReadFile(filepath.Join(dir, caKeyFile))
	require.NoError(t, err)
	require.Equal(t, before, after)
}

func TestKeysAreReadableByTheirOwnerOnly(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	_, err := Init(dir)
	require.NoError(t, err)
	for _, name := range []string{caKeyFile, gossipKeyFile} {
		info, err := os.Stat(filepath.Join(dir, name))
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), info.Mode().Perm(), name)
	}
}

func TestAClientCertificateCannotServe(t *testing.T) {
	t.Parallel()
	authority, err := Init(t.TempDir())
	require.NoError(t, err)
	identity, err := ParseRole("agent:rome", nil)
	require.NoError(t, err)
	client, err := authority.Client(identity)
	require.NoError(t, err)
	server, err := authority.Server("n1", []string{"10.1.2.3", "broker.example"})
	require.NoError(t, err)

	require.Error(t, verify(t, authority, client, x509.ExtKeyUsageServerAuth))
	require.NoError(t, verify(t, authority, client, x509.ExtKeyUsageClientAuth))
	require.NoError(t, verify(t, authority, server, x509.ExtKeyUsageServerAuth))
	require.NoError(t, verify(t, authority, server, x509.ExtKeyUsageClientAuth))
	leaf := parse(t, server)
	require.NoError(t, leaf.VerifyHostname("10.1.2.3"))
	require.NoError(t, leaf.VerifyHostname("broker.example"))
	require.NoError(t, leaf.VerifyHostname("127.0.0.1"))
}

func TestRolesBecomeOrganizations(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		roles      string
		namespaces []string
		orgs       []string
		problem    string
	}{
		{roles: "admin", orgs: []string{"bourse:admin"}},
		{roles: "requester:rome", orgs: []string{"bourse:requester:rome", "bourse:namespace:rome"}},
		{roles: "requester:rome", namespaces: []string{"ml", "web"}, orgs: []string{"bourse:requester:rome", "bourse:namespace:ml", "bourse:namespace:web"}},
		{roles: "requester:rome,provider:rome", orgs: []string{"bourse:requester:rome", "bourse:provider:rome", "bourse:namespace:rome"}},
		{roles: "root", problem: `role "root"`},
		{roles: "server", problem: `role "server"`},
		{roles: "agent", problem: `the id ""`},
		{roles: "agent:Rome!", problem: `the id "Rome!"`},
		{roles: "admin:x", problem: "takes no id"},
		{roles: "requester:rome", namespaces: []string{"A"}, problem: `namespace "A"`},
	} {
		identity, err := ParseRole(tc.roles, tc.namespaces)
		if tc.problem != "" {
			require.ErrorContains(t, err, tc.problem)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, tc.orgs, identity.organizations())
	}
}

func TestAKubeconfigIsSelfContained(t *testing.T) {
	t.Parallel()
	authority, err := Init(t.TempDir())
	require.NoError(t, err)
	identity, err := ParseRole("requester:rome", nil)
	require.NoError(t, err)
	data, err := authority.Kubeconfig(identity, "https://127.0.0.1:7440")
	require.NoError(t, err)
	config, err := clientcmd.RESTConfigFromKubeConfig(data)
	require.NoError(t, err)
	require.Equal(t, "https://127.0.0.1:7440", config.Host)
	_, err = tls.X509KeyPair(config.CertData, config.KeyData)
	require.NoError(t, err)
}

func verify(t *testing.T, authority *Authority, pair Pair, usage x509.ExtKeyUsage) error {
	t.Helper()
	roots := x509.NewCertPool()
	roots.AddCert(authority.cert)
	_, err := parse(t, pair).Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{usage}})
	return err
}

func parse(t *testing.T, pair Pair) *x509.Certificate {
	t.Helper()
	block, _ := pem.Decode(pair.Cert)
	require.NotNil(t, block)
	cert, err := x509.ParseCertificate(block.Bytes)
	require.NoError(t, err)
	return cert
}
