package pki

import (
	"fmt"
	"os"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Kubeconfig issues a client certificate for identity and puts it, with the
// authority's certificate, into a self-contained kubeconfig for server.
func (a *Authority) Kubeconfig(identity Identity, server string) ([]byte, error) {
	pair, err := a.Client(identity)
	if err != nil {
		return nil, err
	}
	ca, err := os.ReadFile(a.CertFile())
	if err != nil {
		return nil, fmt.Errorf("read the authority's certificate: %w", err)
	}
	namespace := "default"
	if len(identity.Namespaces) > 0 {
		namespace = identity.Namespaces[0]
	}
	config := clientcmdapi.NewConfig()
	config.Clusters["bourse"] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: ca}
	config.AuthInfos[identity.Name] = &clientcmdapi.AuthInfo{ClientCertificateData: pair.Cert, ClientKeyData: pair.Key}
	config.Contexts["bourse"] = &clientcmdapi.Context{Cluster: "bourse", AuthInfo: identity.Name, Namespace: namespace}
	config.CurrentContext = "bourse"
	data, err := clientcmd.Write(*config)
	if err != nil {
		return nil, fmt.Errorf("encode the kubeconfig: %w", err)
	}
	return data, nil
}

// WriteKubeconfig issues a kubeconfig and stores it at path, readable by its owner only.
func (a *Authority) WriteKubeconfig(path string, identity Identity, server string) error {
	data, err := a.Kubeconfig(identity, server)
	if err != nil {
		return err
	}
	return writeFile(path, data, 0o600)
}
