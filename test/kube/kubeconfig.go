package kube

import (
	"context"
	"fmt"
	"path/filepath"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// tokenSeconds is how long a service account's token is good for: longer than any test.
const tokenSeconds int64 = 24 * 60 * 60

// Kubeconfig is the path of a kubeconfig with all rights.
func (c *Cluster) Kubeconfig() string { return c.kubeconfigPath("admin") }

// ServiceAccountKubeconfig writes a kubeconfig that carries a token of an existing service account, so that whoever
// uses it has that account's rights and no others. It returns the file's path, which is the same on every call.
func (c *Cluster) ServiceAccountKubeconfig(ctx context.Context, namespace, name string) (string, error) {
	seconds := tokenSeconds
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}
	token, err := c.client.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, name, request, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("cluster %s: token of service account %s/%s: %w", c.name, namespace, name, err)
	}
	file := namespace + "-" + name
	auth := &clientcmdapi.AuthInfo{Token: token.Status.Token}
	if err := c.writeKubeconfig(file, namespace, auth); err != nil {
		return "", err
	}
	return c.kubeconfigPath(file), nil
}

func (c *Cluster) kubeconfigPath(file string) string {
	return filepath.Join(c.dir, "kubeconfigs", file+".kubeconfig")
}

// writeKubeconfigs makes one for each program, with the name that RBAC knows it by, and the administrator's, from which
// it also makes the cluster's client.
func (c *Cluster) writeKubeconfigs() error {
	for _, who := range []struct {
		file, user string
		groups     []string
	}{
		{"admin", "kubernetes-admin", []string{"system:masters"}},
		{"controller-manager", "system:kube-controller-manager", nil},
		{"scheduler", "system:kube-scheduler", nil},
		// kwok plays every kubelet at once, which no built-in role allows.
		{"kwok", "kwok", []string{"system:masters"}},
	} {
		cert, key, err := c.pki.issueClient(who.user, who.groups...)
		if err != nil {
			return fmt.Errorf("making the certificate of %s: %w", who.user, err)
		}
		auth := &clientcmdapi.AuthInfo{ClientCertificateData: cert, ClientKeyData: key}
		if err := c.writeKubeconfig(who.file, "", auth); err != nil {
			return err
		}
	}
	return c.makeClient()
}

func (c *Cluster) writeKubeconfig(file, namespace string, auth *clientcmdapi.AuthInfo) error {
	config := clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{
			c.name: {Server: c.URL(), CertificateAuthorityData: c.pki.ca},
		},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{file: auth},
		Contexts:       map[string]*clientcmdapi.Context{c.name: {Cluster: c.name, AuthInfo: file, Namespace: namespace}},
		CurrentContext: c.name,
	}
	if err := clientcmd.WriteToFile(config, c.kubeconfigPath(file)); err != nil {
		return fmt.Errorf("writing kubeconfig %s: %w", c.kubeconfigPath(file), err)
	}
	return nil
}

func (c *Cluster) makeClient() error {
	config, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig())
	if err != nil {
		return fmt.Errorf("reading kubeconfig %s: %w", c.Kubeconfig(), err)
	}
	config.QPS = -1
	config.UserAgent = "bourse-test-kube"
	if c.client, err = kubernetes.NewForConfig(config); err != nil {
		return fmt.Errorf("making a client from %s: %w", c.Kubeconfig(), err)
	}
	c.config = config
	return nil
}
