package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse/advertisement"
	"github.com/bourse-dev/bourse/blueprint"
	"github.com/bourse-dev/bourse/cluster"
	"github.com/bourse-dev/bourse/cmd/internal/settings"
	"github.com/bourse-dev/bourse/reservation"
	"github.com/bourse-dev/bourse/server"
)

func newServerCommand() *cobra.Command {
	var path string
	command := &cobra.Command{
		Use:   "server",
		Short: "Run a broker node",
		Long: "Runs one broker node of an exchange. Every flag can also be set in the --config file under the same\n" +
			"name, or in the environment (" + settings.Env("node-id") + " and so on). It refuses to run without TLS,\n" +
			"but for --insecure-dev on loopback.",
		Example: "  bourse server --config server.yaml\n" +
			"  bourse server --insecure-dev --node-id n1 --data-dir ./n1 --bootstrap-expect 1 --gossip-listen ''",
	}
	s := newServerSettings(command.Flags())
	command.Flags().StringVar(&path, "config", "", "YAML file with these settings")
	command.RunE = func(command *cobra.Command, _ []string) error {
		if err := errors.Join(settings.Load(command.Flags(), path, os.LookupEnv), s.complete()); err != nil {
			return usageError{err}
		}
		logger, err := s.logs.logger(command.ErrOrStderr())
		if err != nil {
			return usageError{err}
		}
		return runServer(command.Context(), s, logger)
	}
	return command
}

// runServer runs a broker node until ctx ends or the node says that it must not go on.
func runServer(ctx context.Context, s *serverSettings, logger hclog.Logger) (err error) {
	server.RedirectKlog(logger.Named("kubernetes"))
	listener, err := net.Listen("tcp", s.listen)
	if err != nil {
		return fmt.Errorf("listen for the API: %w", err)
	}
	defer listener.Close() //nolint:errcheck // the server closes it in good time
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	raiseProcessors()
	go limitMemory(ctx)

	config := s.cluster
	config.Logger = logger
	config.Clock = newClock()
	config.Fatal = func(code int, err error) { cancel(exitError{err, code}) }
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	decisions := newDecisionMetrics(registry)
	if err := exportRaftMetrics(registry, config.NodeID); err != nil {
		return err
	}
	blueprints := s.blueprints
	blueprints.Logger, blueprints.Clock = logger.Named("blueprint"), time.Now
	blueprints.Observe = newBlueprintMetrics(registry).observe
	node, err := cluster.NewNode(config,
		reservation.New(reservation.Config{Logger: logger.Named("reservation"), Observe: decisions.observe}),
		advertisement.New(advertisement.Config{StaleAfter: s.staleAfter, Logger: logger.Named("advertisement")}),
		blueprint.New(blueprints),
	)
	if err != nil {
		return exitError{err, cluster.ExitCodeOf(err)}
	}
	defer func() { err = errors.Join(err, node.Shutdown()) }()
	registry.MustRegister(newHaltedMetric(node))

	api, err := server.New(server.Config{
		Listener:   listener,
		TLS:        s.apiTLS(),
		DB:         node.DB(),
		Writer:     node,
		Admin:      admin{node},
		Ready:      readiness(node),
		Blueprints: blueprints.Policy,
		Logger:     logger.Named("server"),
		Registry:   registry,
	})
	if err != nil {
		return err
	}
	if err := api.Run(ctx); err != nil {
		return err
	}
	var fatal exitError
	if errors.As(context.Cause(ctx), &fatal) {
		return fatal
	}
	return nil
}

func (s *serverSettings) apiTLS() *server.TLS {
	if s.cluster.Insecure {
		return nil
	}
	files := s.cluster.TLS
	return &server.TLS{CertFile: files.CertFile, KeyFile: files.KeyFile, ClientCAFile: files.CAFile}
}

// readiness says why a node can't serve yet.
func readiness(node *cluster.Node) func() error {
	return func() error {
		select {
		case <-node.Ready():
			return nil
		default:
			return errors.New("this broker node has not caught up with its group yet")
		}
	}
}
