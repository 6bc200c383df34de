package server_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
	"github.com/bourse-dev/bourse/server"
	"github.com/bourse-dev/bourse/server/servertest"
	"github.com/bourse-dev/bourse/store"
)

const group = "/apis/broker.fluidos.eu/v1alpha1"

// patience bounds every wait of these tests: far beyond what a loaded machine needs.
const patience = 30 * time.Second

// exchange is a running server with TLS on a whole exchange.
type exchange struct {
	*servertest.Exchange
	t       testing.TB
	address string
	ca      *authority
	ready   atomic.Pointer[error]
	stop    func() error
	files   server.TLS
}

func start(t testing.TB) *exchange {
	t.Helper()
	return startWith(t, servertest.NewExchange())
}

func startWith(t testing.TB, whole *servertest.Exchange) *exchange {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	x := &exchange{Exchange: whole, t: t, address: listener.Addr().String(), ca: newAuthority(t)}
	dir := t.TempDir()
	x.files = server.TLS{
		CertFile: filepath.Join(dir, "node.crt"), KeyFile: filepath.Join(dir, "node.key"), ClientCAFile: filepath.Join(dir, "ca.crt"),
	}
	x.writeFiles("n1")
	s, err := server.New(server.Config{
		Listener: listener, TLS: &x.files, DB: x.DB, Writer: x, Admin: x, Blueprints: servertest.Blueprints, Logger: hclog.NewNullLogger(), Registry: prometheus.NewRegistry(),
		Ready: func() error {
			if why := x.ready.Load(); why != nil {
				return *why
			}
			return nil
		},
	})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	x.stop = func() error {
		cancel()
		err := <-ended
		ended <- nil
		return err
	}
	t.Cleanup(func() { _ = x.stop() })
	return x
}

func (x *exchange) writeFiles(commonName string) {
	cert, key := x.ca.issue(x.t, commonName)
	require.NoError(x.t, os.WriteFile(x.files.CertFile, cert, 0o600))
	require.NoError(x.t, os.WriteFile(x.files.KeyFile, key, 0o600))
	require.NoError(x.t, os.WriteFile(x.files.ClientCAFile, x.ca.pem, 0o600))
}

// as is a client configuration of a user in groups; no groups: without a certificate.
func (x *exchange) as(groups ...string) *rest.Config {
	cfg := &rest.Config{Host: "https://" + x.address, TLSClientConfig: rest.TLSClientConfig{CAData: x.ca.pem, ServerName: "127.0.0.1"}, QPS: 1000, Burst: 1000}
	if len(groups) > 0 {
		cfg.CertData, cfg.KeyData = x.ca.issue(x.t, "user", groups...)
	}
	return cfg
}

var admin = []string{server.GroupAdmin}

// answer is what a raw request got.
type answer struct {
	code   int
	header http.Header
	body   string
}

func (a answer) reservation(t *testing.T) *broker.Reservation {
	t.Helper()
	r := &broker.Reservation{}
	require.NoError(t, json.Unmarshal([]byte(a.body), r), a.body)
	return r
}

// client that sends raw requests.
type client struct {
	t    testing.TB
	http *http.Client
	base string
}

func (x *exchange) client(groups ...string) client {
	transport, err := rest.TransportFor(x.as(groups...))
	require.NoError(x.t, err)
	return client{x.t, &http.Client{Transport: transport, Timeout: patience}, "https://" + x.address}
}

func (c client) do(method, path, body string, headers ...string) answer {
	c.t.Helper()
	request, err := http.NewRequestWithContext(c.t.Context(), method, c.base+path, strings.NewReader(body))
	require.NoError(c.t, err)
	request.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	response, err := c.http.Do(request)
	require.NoError(c.t, err)
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	require.NoError(c.t, err)
	return answer{response.StatusCode, response.Header, string(text)}
}

func (c client) must(code int, method, path, body string, headers ...string) answer {
	c.t.Helper()
	got := c.do(method, path, body, headers...)
	require.Equal(c.t, code, got.code, "%s %s: %s", method, path, got.body)
	return got
}

// badInput is a request and how it is refused: the status, and words of the message.
type badInput struct {
	method, path, body string
	contentType        string // empty: of a merge patch, else JSON
	code               int
	says               []string
}

// refuses sends each, and finds nothing changed by all of them.
func (x *exchange) refuses(c client, cases map[string]badInput) {
	x.t.Helper()
	before := x.DB.State().Hash()
	for name, b := range cases {
		contentType := b.contentType
		switch {
		case contentType == "" && b.method == "PATCH":
			contentType = mergeTyp
		case contentType == "":
			contentType = "application/json"
		}
		got := c.do(b.method, b.path, b.body, "Content-Type", contentType)
		require.Equal(x.t, b.code, got.code, "%s: %s", name, got.body)
		for _, word := range b.says {
			require.Contains(x.t, strings.ReplaceAll(got.body, `\"`, `"`), word, name)
		}
	}
	require.Equal(x.t, before, x.DB.State().Hash(), "something was changed")
}

func reservationBody(name, requester, spec string) string {
	if spec != "" {
		spec = "," + spec
	}
	return fmt.Sprintf(`{"apiVersion":"broker.fluidos.eu/v1alpha1","kind":"Reservation","metadata":{"name":%q},`+
		`"spec":{"requesterID":%q,"requestedResources":{"cpu":"4","memory":"8Gi"}%s}}`, name, requester, spec)
}

func advertisementBody(id string) string {
	return fmt.Sprintf(`{"apiVersion":"broker.fluidos.eu/v1alpha1","kind":"ClusterAdvertisement","metadata":{"name":"%[1]s-adv"},`+
		`"spec":{"clusterID":%[1]q,"endpoint":"https://%[1]s.example.org:6443","region":"eu"}}`, id)
}

// advertise makes a cluster with an agent that has reported once, in the session and epoch returned.
func (x *exchange) advertise(id string, cores int) (session string, epoch int64) {
	x.t.Helper()
	agent := x.client(server.GroupAgent + id)
	agent.must(http.StatusCreated, "POST", group+"/clusteradvertisements", advertisementBody(id))
	facts := group + "/clusteradvertisements/" + id + "-adv/facts"
	session = uuid.NewString()
	opened := agent.must(http.StatusCreated, "POST", facts, factsBody(session, 0, 0, ""))
	var report broker.FactsReport
	require.NoError(x.t, json.Unmarshal([]byte(opened.body), &report))
	require.Equal(x.t, broker.FactsAccepted, report.Status.Outcome)
	agent.must(http.StatusCreated, "POST", facts, factsBody(session, report.Status.Epoch, 1,
		fmt.Sprintf(`,"allocatable":{"cpu":"%d","memory":"60Pi"},"largestFree":{"cpu":"%d","memory":"60Pi"}`, cores, cores)))
	return session, report.Status.Epoch
}

func factsBody(session string, epoch, sequence int64, figures string) string {
	return fmt.Sprintf(`{"apiVersion":"broker.fluidos.eu/v1alpha1","kind":"FactsReport","session":%q,"epoch":%d,"sequence":%d%s}`,
		session, epoch, sequence, figures)
}

// authority signs the certificates of one test.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

var serial atomic.Int64

func newAuthority(t testing.TB) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial.Add(1)), Subject: pkix.Name{CommonName: "test CA"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	cert, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	return &authority{cert, key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}
}

func (a *authority) issue(t testing.TB, commonName string, groups ...string) (cert, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial.Add(1)), Subject: pkix.Name{CommonName: commonName, Organization: groups},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &private.PublicKey, a.key)
	require.NoError(t, err)
	keyDER, err := x509.MarshalECPrivateKey(private)
	require.NoError(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER})
}

// servedName is the subject of the certificate that the server shows.
func (x *exchange) servedName() string {
	x.t.Helper()
	pool := x509.NewCertPool()
	pool.AddCert(x.ca.cert)
	conn, err := tls.Dial("tcp", x.address, &tls.Config{RootCAs: pool, ServerName: "127.0.0.1"})
	require.NoError(x.t, err)
	defer func() { _ = conn.Close() }()
	return conn.ConnectionState().PeerCertificates[0].Subject.CommonName
}

// stored is a cluster's advertisement.
func (x *exchange) stored(id string) *broker.ClusterAdvertisement {
	return store.AdvertisementOf(x.DB.State().Row(broker.AdvertisementKey(id)))
}

func unmarshal(text string, into any) error { return json.Unmarshal([]byte(text), into) }
