package server

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
)

// certificateCheckInterval: how often, at most, the files' times are looked at. A renewed
// certificate is in use this long after it was written.
const certificateCheckInterval = 10 * time.Second

// certificates reads the TLS files again when they change. A change that can't be used is logged
// and the old ones stay: a node must not lose its API to half a file. Safe for concurrent use.
type certificates struct {
	files  TLS
	logger hclog.Logger

	mu      sync.Mutex
	loaded  *loadedCertificates
	stamp   [3]time.Time
	checked time.Time
}

type loadedCertificates struct {
	pair      *tls.Certificate
	clientCAs *x509.CertPool
}

func newCertificates(files TLS, logger hclog.Logger) (*certificates, error) {
	c := &certificates{files: files, logger: logger, checked: time.Now()}
	var err error
	if c.stamp, err = c.times(); err != nil {
		return nil, err
	}
	if c.loaded, err = load(files); err != nil {
		return nil, err
	}
	return c, nil
}

// current is called on every handshake and every request.
func (c *certificates) current() *loadedCertificates {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.checked) < certificateCheckInterval {
		return c.loaded
	}
	c.checked = time.Now()
	stamp, err := c.times()
	if err == nil && stamp == c.stamp {
		return c.loaded
	}
	var renewed *loadedCertificates
	if err == nil {
		renewed, err = load(c.files)
	}
	if err != nil {
		c.logger.Error("the TLS files can't be used; those read before stay in use", "error", err)
		return c.loaded
	}
	c.logger.Info("TLS files read again")
	c.loaded, c.stamp = renewed, stamp
	return c.loaded
}

func (c *certificates) times() (stamp [3]time.Time, err error) {
	for i, path := range []string{c.files.CertFile, c.files.KeyFile, c.files.ClientCAFile} {
		info, err := os.Stat(path)
		if err != nil {
			return stamp, err
		}
		stamp[i] = info.ModTime()
	}
	return stamp, nil
}

func load(files TLS) (*loadedCertificates, error) {
	pair, err := tls.LoadX509KeyPair(files.CertFile, files.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("%s, %s: %w", files.CertFile, files.KeyFile, err)
	}
	bundle, err := os.ReadFile(files.ClientCAFile)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(bundle) {
		return nil, fmt.Errorf("%s: %w", files.ClientCAFile, errors.New("no certificate in it"))
	}
	return &loadedCertificates{&pair, pool}, nil
}
