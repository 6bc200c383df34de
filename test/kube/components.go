package kube

import (
	"context"
	_ "embed"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/bourse-dev/bourse/test/kube/internal/child"
)

//go:embed stages.yaml
var stages []byte

// leaseSeconds is how often kwok must renew a node's lease; the controllers call the node lost after 50 s.
const leaseSeconds = 40

// run starts a program of BinDir; Stop stops it.
func (c *Cluster) run(program string, args ...string) error {
	p, err := child.Start(child.Program{
		Name: program, Path: filepath.Join(c.binDir, program), Args: args, Dir: c.dir, LogPath: c.LogPath(program),
	})
	if err != nil {
		return err
	}
	c.procMu.Lock()
	defer c.procMu.Unlock()
	c.procs = append(c.procs, p)
	return nil
}

func (c *Cluster) startEtcd(ctx context.Context) error {
	client := "http://" + loopback(c.ports.etcdClient)
	peer := "http://" + loopback(c.ports.etcdPeer)
	if err := c.run("etcd",
		"--name="+c.name,
		"--data-dir="+filepath.Join(c.dir, "etcd"),
		"--listen-client-urls="+client,
		"--advertise-client-urls="+client,
		"--listen-peer-urls="+peer,
		"--initial-advertise-peer-urls="+peer,
		"--initial-cluster="+c.name+"="+peer,
		"--unsafe-no-fsync", // the data is thrown away after the test; syncing it would cost most of the start
		"--log-level=warn",
	); err != nil {
		return err
	}
	if err := c.waitFor(ctx, "etcd", func(ctx context.Context) error {
		return ready(ctx, http.DefaultClient, client+"/readyz")
	}); err != nil {
		return err
	}
	c.logf("etcd ready")
	return nil
}

func (c *Cluster) startAPIServer(ctx context.Context) error {
	if err := c.run("kube-apiserver",
		"--etcd-servers=http://"+loopback(c.ports.etcdClient),
		"--bind-address=127.0.0.1",
		"--advertise-address=127.0.0.1",
		"--secure-port="+strconv.Itoa(c.ports.apiserver),
		// Nothing can reach the address inside, and a loopback address is no valid endpoint.
		"--endpoint-reconciler-type=none",
		"--authorization-mode=Node,RBAC",
		"--client-ca-file="+c.pki.path("ca.crt"),
		"--tls-cert-file="+c.pki.path("apiserver.crt"),
		"--tls-private-key-file="+c.pki.path("apiserver.key"),
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file="+c.pki.path("sa.pub"),
		"--service-account-signing-key-file="+c.pki.path("sa.key"),
		"--service-cluster-ip-range=10.96.0.0/16",
	); err != nil {
		return err
	}
	client, err := rest.HTTPClientFor(c.config)
	if err != nil {
		return fmt.Errorf("making a client of the API server: %w", err)
	}
	if err := c.waitFor(ctx, "the API server", func(ctx context.Context) error {
		return ready(ctx, client, c.URL()+"/readyz")
	}); err != nil {
		return err
	}
	c.logf("API server ready at %s", c.URL())
	return nil
}

func (c *Cluster) startControllers() error {
	if err := c.run("kube-controller-manager",
		"--kubeconfig="+c.kubeconfigPath("controller-manager"),
		"--leader-elect=false",
		"--secure-port=0",
		"--use-service-account-credentials=true",
		"--service-account-private-key-file="+c.pki.path("sa.key"),
		"--root-ca-file="+c.pki.path("ca.crt"),
		"--cluster-signing-cert-file="+c.pki.path("ca.crt"),
		"--cluster-signing-key-file="+c.pki.path("ca.key"),
		"--kube-api-qps=500", "--kube-api-burst=1000", // tests make hundreds of pods at once
	); err != nil {
		return err
	}
	if err := c.run("kube-scheduler",
		"--kubeconfig="+c.kubeconfigPath("scheduler"),
		"--authentication-kubeconfig="+c.kubeconfigPath("scheduler"),
		"--authorization-kubeconfig="+c.kubeconfigPath("scheduler"),
		"--leader-elect=false",
		"--bind-address=127.0.0.1",
		"--secure-port="+strconv.Itoa(c.ports.scheduler),
		"--tls-cert-file="+c.pki.path("scheduler.crt"),
		"--tls-private-key-file="+c.pki.path("scheduler.key"),
		"--kube-api-qps=500", "--kube-api-burst=1000",
	); err != nil {
		return err
	}
	stagesPath := filepath.Join(c.dir, "stages.yaml")
	if err := os.WriteFile(stagesPath, stages, 0o600); err != nil {
		return fmt.Errorf("writing kwok's stages: %w", err)
	}
	return c.run("kwok",
		"--kubeconfig="+c.kubeconfigPath("kwok"),
		"--config="+stagesPath,
		"--manage-all-nodes=true",
		"--node-lease-duration-seconds="+strconv.Itoa(leaseSeconds),
		"--node-ip=127.0.0.1", // else kwok shows the machine's own address, and the API server would dial it
		"--cidr=10.244.0.1/16",
	)
}

// waitControllers waits for what the controllers and the scheduler have to do before a pod can be made and bound.
// kwok shows by making nodes Ready.
func (c *Cluster) waitControllers(ctx context.Context) error {
	if err := c.waitFor(ctx, "the default service account", func(ctx context.Context) error {
		_, err := c.client.CoreV1().ServiceAccounts(namespace).Get(ctx, "default", metav1.GetOptions{})
		if err != nil {
			return notYet{err}
		}
		return nil
	}); err != nil {
		return err
	}
	c.logf("controllers ready")
	client, err := rest.HTTPClientFor(&rest.Config{TLSClientConfig: rest.TLSClientConfig{CAData: c.pki.ca}})
	if err != nil {
		return fmt.Errorf("making a client of the scheduler: %w", err)
	}
	if err := c.waitFor(ctx, "the scheduler", func(ctx context.Context) error {
		return ready(ctx, client, "https://"+loopback(c.ports.scheduler)+"/readyz")
	}); err != nil {
		return err
	}
	c.logf("scheduler ready")
	return nil
}

// ready asks once whether url answers 200.
func ready(ctx context.Context, client *http.Client, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return notYet{err}
	}
	defer func() { _ = response.Body.Close() }() // only its status is of interest
	if response.StatusCode != http.StatusOK {
		return notYetf("%s answers %s", url, response.Status)
	}
	return nil
}
