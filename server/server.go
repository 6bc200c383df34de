package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	openapinamer "k8s.io/apiserver/pkg/endpoints/openapi"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/util/compatibility"
	restclient "k8s.io/client-go/rest"

	"golang.org/x/sync/errgroup"

	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
	"github.com/bourse-dev/bourse/api/openapi"
	"github.com/bourse-dev/bourse/store"
)

// Server is one node's HTTP side.
type Server struct {
	cfg     Config
	words   words
	metrics *metrics
	api     *genericapiserver.GenericAPIServer
	handler http.Handler
	tls     *tls.Config // nil: plain HTTP
}

// New assembles the server; it listens only in Run, but for the listener it was given.
func New(cfg Config) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	s := &Server{cfg: cfg, words: newWords()}
	var err error
	if s.metrics, err = newMetrics(cfg.Registry, cfg.DB, cfg.Admin); err != nil {
		return nil, fmt.Errorf("server: metrics: %w", err)
	}
	authenticate, err := s.authentication()
	if err != nil {
		return nil, err
	}
	if s.api, err = s.newAPIServer(authenticate); err != nil {
		return nil, fmt.Errorf("server: %w", err)
	}
	if err := s.installGroups(); err != nil {
		return nil, fmt.Errorf("server: %w", err)
	}
	s.api.PrepareRun()
	s.handler = s.api.Handler
	return s, nil
}

func (s *Server) newAPIServer(authenticate authentication) (*genericapiserver.GenericAPIServer, error) {
	c := genericapiserver.NewConfig(s.words.codecs)
	c.EffectiveVersion = compatibility.DefaultBuildEffectiveVersion()
	c.ExternalAddress = s.cfg.Listener.Addr().String()
	// Nothing here calls itself over the network; the library wants one all the same.
	c.LoopbackClientConfig = &restclient.Config{}
	c.Authentication.Authenticator = authenticate.request
	c.Authorization.Authorizer = roles{}
	c.AdmissionControl = admission.NewChainHandler(ownership{}, partsGate{s.cfg.DB})
	c.BuildHandlerChainFunc = s.handlerChain
	c.EnableMetrics, c.EnableProfiling = false, false // /metrics is ours
	c.MaxRequestBodyBytes = maxBodyBytes
	c.JSONPatchMaxCopyBytes = maxBodyBytes
	c.RequestTimeout = requestTimeout
	c.MinRequestTimeout = minWatchSeconds
	c.MaxRequestsInFlight, c.MaxMutatingRequestsInFlight = maxReads, maxWrites
	namer := openapinamer.NewDefinitionNamer(s.words.scheme)
	c.OpenAPIConfig = genericapiserver.DefaultOpenAPIConfig(openapi.GetOpenAPIDefinitions, namer)
	c.OpenAPIV3Config = genericapiserver.DefaultOpenAPIV3Config(openapi.GetOpenAPIDefinitions, namer)
	c.OpenAPIConfig.Info.Title, c.OpenAPIV3Config.Info.Title = "Bourse", "Bourse"
	return c.Complete(nil).New("bourse", genericapiserver.NewEmptyDelegate())
}

// installGroups adds every resource. A new one means a Kind in store, a constructor here, a rule in roles.
func (s *Server) installGroups() error {
	options := func(kind *store.Kind, codec runtime.Codec) generic.RESTOptionsGetter {
		return onOurStorage{s, kind, codec}
	}
	ours := s.words.codecs.LegacyCodec(broker.SchemeGroupVersion)
	core := s.words.codecs.LegacyCodec(corev1.SchemeGroupVersion)

	reservations, err := newReservations(s, options(store.ReservationKind(), ours))
	if err != nil {
		return err
	}
	batches, err := newBatches(s, options(store.BatchKind(), ours))
	if err != nil {
		return err
	}
	advertisements, err := newAdvertisements(s, options(store.AdvertisementKind(), ours))
	if err != nil {
		return err
	}
	blueprints, err := newBlueprints(s, options(store.BlueprintKind(), ours))
	if err != nil {
		return err
	}
	slices, err := newSlices(s, options(store.SliceKind(), ours))
	if err != nil {
		return err
	}
	namespaces, err := newNamespaces(s, options(store.NamespaceKind(), core))
	if err != nil {
		return err
	}
	events, err := newEvents(s, options(store.EventKind(), core))
	if err != nil {
		return err
	}
	legacy := s.group("", corev1.SchemeGroupVersion.Version, namespaces, events)
	if err := s.api.InstallLegacyAPIGroup(genericapiserver.DefaultLegacyAPIPrefix, legacy); err != nil {
		return err
	}
	market := s.group(broker.GroupName, broker.SchemeGroupVersion.Version, reservations, batches, advertisements, blueprints, slices)
	market.NegotiatedSerializer = explainingCodecs{withoutProtobuf{market.NegotiatedSerializer}}
	return s.api.InstallAPIGroups(market,
		s.group(authenticationv1.GroupName, authenticationv1.SchemeGroupVersion.Version, newAuthenticationReviews()),
		s.group(authorizationv1.GroupName, authorizationv1.SchemeGroupVersion.Version, newAuthorizationReviews()))
}

func (s *Server) group(name, version string, resources ...map[string]rest.Storage) *genericapiserver.APIGroupInfo {
	info := genericapiserver.NewDefaultAPIGroupInfo(name, s.words.scheme, s.words.params, s.words.codecs)
	all := map[string]rest.Storage{}
	for _, some := range resources {
		for path, storage := range some {
			all[path] = storage
		}
	}
	info.VersionedResourcesStorageMap[version] = all
	return &info
}

// Run serves until ctx ends, then drains: watches end at once, other requests have drainTimeout.
// It returns nil after an orderly end.
func (s *Server) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// Requests outlive ctx by the time they have to drain; watches end with it (see handlerChain).
	requests, endRequests := context.WithCancel(context.WithoutCancel(ctx))
	defer endRequests()

	web := &http.Server{
		Handler:           s.endingWith(ctx, s.handler),
		TLSConfig:         s.tls,
		BaseContext:       func(net.Listener) context.Context { return requests },
		ReadHeaderTimeout: readHeaderTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          s.cfg.Logger.StandardLogger(nil),
	}
	s.api.RunPostStartHooks(ctx)
	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() error {
		var err error
		if s.tls != nil {
			err = web.ServeTLS(s.cfg.Listener, "", "")
		} else {
			err = web.Serve(s.cfg.Listener)
		}
		if errors.Is(err, http.ErrServerClosed) {
			return nil
		}
		return fmt.Errorf("server: %s: %w", s.cfg.Listener.Addr(), err)
	})
	group.Go(func() error {
		<-groupCtx.Done()
		drain, stop := context.WithTimeout(requests, drainTimeout)
		defer stop()
		if err := web.Shutdown(drain); err != nil {
			s.cfg.Logger.Warn("requests did not end in time", "limit", drainTimeout)
			return web.Close()
		}
		return nil
	})
	s.cfg.Logger.Info("serving", "address", s.cfg.Listener.Addr().String(), "tls", s.tls != nil)
	err := group.Wait()
	s.api.Destroy()
	return err
}

// Addr is where the server listens.
func (s *Server) Addr() net.Addr { return s.cfg.Listener.Addr() }
