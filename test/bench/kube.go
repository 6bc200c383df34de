package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
)

// apiServer is a real kube-apiserver on the same etcd group.
type apiServer struct {
	*process
	config *rest.Config
}

const apiToken = "bench" // of a server on loopback that lives for minutes

func startAPIServer(ctx context.Context, bin, dir string, etcd *etcdGroup) (*apiServer, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	key, tokens := filepath.Join(dir, "sa.key"), filepath.Join(dir, "tokens.csv")
	if err := errors.Join(
		writeKey(key),
		// system:masters: exempt from fair queueing, which would hold 256 clients back.
		os.WriteFile(tokens, []byte(apiToken+`,bench,bench,"system:masters"`+"\n"), 0o600),
	); err != nil {
		return nil, err
	}
	ports, err := freePorts(1)
	if err != nil {
		return nil, err
	}
	_, port, err := net.SplitHostPort(ports[0])
	if err != nil {
		return nil, err
	}
	args := []string{
		filepath.Join(bin, "kube-apiserver"), "--bind-address=127.0.0.1", "--advertise-address=127.0.0.1",
		"--secure-port=" + port, "--cert-dir=" + filepath.Join(dir, "certs"), "--endpoint-reconciler-type=none",
		"--authorization-mode=AlwaysAllow", "--token-auth-file=" + tokens, "--anonymous-auth=false",
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + key, "--service-account-signing-key-file=" + key,
		"--service-cluster-ip-range=10.96.0.0/16", "--max-requests-inflight=3000", "--max-mutating-requests-inflight=1000",
	}
	for _, url := range etcd.urls() {
		args = append(args, "--etcd-servers="+url)
	}
	p, err := start(dir, "kube-apiserver", args...)
	if err != nil {
		return nil, err
	}
	s := &apiServer{process: p, config: &rest.Config{
		Host: "https://" + ports[0], BearerToken: apiToken, QPS: -1,
		TLSClientConfig: rest.TLSClientConfig{Insecure: true}, // it makes its own certificate
		WarningHandler:  rest.NoWarnings{},
	}}
	if err := s.prepare(ctx); err != nil {
		s.stop()
		return nil, err
	}
	return s, nil
}

// prepare waits for the server and gives it our two kinds.
func (s *apiServer) prepare(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startWithin)
	defer cancel()
	var err error
	for ctx.Err() == nil {
		if err = s.define(ctx); err == nil {
			return nil
		}
		if ended := s.ended(); ended != nil {
			return ended
		}
		time.Sleep(200 * time.Millisecond)
	}
	return fmt.Errorf("kube-apiserver did not get ready: %w", errors.Join(ctx.Err(), err))
}

// define makes the kinds and returns nil once they are served.
func (s *apiServer) define(ctx context.Context) error {
	c, err := client.New(s.config, client.Options{})
	if err != nil {
		return err
	}
	for _, kind := range []struct{ name, singular, scope string }{
		{"Reservation", "reservation", "Namespaced"}, {"ClusterAdvertisement", "clusteradvertisement", "Cluster"},
	} {
		plural := kind.singular + "s"
		crd := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
			"metadata": map[string]any{"name": plural + "." + broker.GroupName},
			"spec": map[string]any{
				"group": broker.GroupName, "scope": kind.scope,
				"names": map[string]any{"plural": plural, "singular": kind.singular, "kind": kind.name, "listKind": kind.name + "List"},
				"versions": []any{map[string]any{
					"name": broker.SchemeGroupVersion.Version, "served": true, "storage": true,
					"subresources": map[string]any{"status": map[string]any{}},
					// No schema to check and prune by: less work for the peer, not more.
					"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
				}},
			},
		}}
		if err := c.Create(ctx, crd); err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	served, err := client.New(s.config, client.Options{Scheme: peerScheme})
	if err != nil {
		return err
	}
	return errors.Join(served.List(ctx, &broker.ReservationList{}), served.List(ctx, &broker.ClusterAdvertisementList{}))
}

func writeKey(path string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), 0o600)
}
