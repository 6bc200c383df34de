package server

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/group"
	requestx509 "k8s.io/apiserver/pkg/authentication/request/x509"
	"k8s.io/apiserver/pkg/authentication/user"
)

// authentication says who asks.
type authentication struct {
	request authenticator.Request
}

// authentication is by client certificate: the subject's CN is the user, its Os are the groups. The
// handshake asks for a certificate and does without (probes carry none); what needs a user then
// answers 401. In insecure mode everyone is the administrator.
func (s *Server) authentication() (authentication, error) {
	if s.cfg.TLS == nil {
		return authentication{authenticator.RequestFunc(func(*http.Request) (*authenticator.Response, bool, error) {
			return &authenticator.Response{User: &user.DefaultInfo{
				Name: "insecure-dev", Groups: []string{GroupAdmin, user.AllAuthenticated},
			}}, true, nil
		})}, nil
	}
	files, err := newCertificates(*s.cfg.TLS, s.cfg.Logger)
	if err != nil {
		return authentication{}, fmt.Errorf("server: TLS: %w", err)
	}
	s.tls = &tls.Config{
		MinVersion:     tls.VersionTLS12,
		NextProtos:     []string{"h2", "http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return files.current().pair, nil },
		// The chain is verified by the request, against the CA as it then is.
		ClientAuth: tls.RequestClientCert,
	}
	byCertificate := requestx509.NewDynamic(func() (x509.VerifyOptions, bool) {
		options := requestx509.DefaultVerifyOptions()
		options.Roots = files.current().clientCAs
		return options, true
	}, requestx509.CommonNameUserConversion)
	return authentication{&verified{inner: group.NewAuthenticatedGroupAdder(byCertificate), files: files}}, nil
}
