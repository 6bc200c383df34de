package main

import (
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/bourse-dev/bourse/agent"
	"github.com/bourse-dev/bourse/cmd/internal/settings"
)

func newAgentCommand() *cobra.Command {
	config := agent.Default()
	var logs logFlags
	var path string
	command := &cobra.Command{
		Use:   "agent",
		Short: "Speak for one member cluster",
		Long: "The agent tells the exchange what its member cluster has to offer, and its member cluster what\n" +
			"others were granted. It only ever dials out. Every flag can also be set in the --config file\n" +
			"under the same name, or in the environment (" + settings.Env("cluster-id") + "; CLUSTER_ID works too).",
		Example: "  bourse agent --cluster-id rome --broker-kubeconfig rome.kubeconfig --kubeconfig ~/.kube/config \\\n" +
			"    --endpoint https://rome.example.com:6443 --region eu-south --provider acme --cost cpu=0.50",
		RunE: func(command *cobra.Command, _ []string) error {
			if err := settings.Load(command.Flags(), path, agentEnv); err != nil {
				return usageError{err}
			}
			logger, err := logs.logger(command.ErrOrStderr())
			if err != nil {
				return usageError{err}
			}
			config.Logger = logger.Named("agent")
			if err := config.Validate(); err != nil {
				return usageError{err}
			}
			return agent.Run(command.Context(), config)
		},
	}
	agentFlags(command.Flags(), &config)
	logs.flags(command.Flags())
	command.Flags().StringVar(&path, "config", "", "YAML file with these settings")
	return command
}

func agentFlags(flags *pflag.FlagSet, c *agent.Config) {
	flags.StringVar(&c.ClusterID, "cluster-id", "", "id of the member cluster (default: the UID of its kube-system namespace)")
	flags.StringVar(&c.BrokerKubeconfig, "broker-kubeconfig", "", "kubeconfig of the exchange, from `bourse pki kubeconfig --for agent:<id>`")
	flags.StringVar(&c.MemberKubeconfig, "kubeconfig", "", "kubeconfig of the member cluster (default: the pod's service account)")
	flags.StringVar(&c.Endpoint, "endpoint", "", "URL under which peers reach the member cluster's API server")
	flags.StringVar(&c.Region, "region", "", "where the member cluster runs")
	flags.StringVar(&c.Provider, "provider", "", "who runs its machines")
	flags.StringToStringVar(&c.Labels, "label", nil, "labels of the advertisement, as tier=gold")
	flags.StringToStringVar(&c.Costs, "cost", nil, "prices per unit and hour, as cpu=0.50,memory=0.05,currency=EUR, or perHour=0.70")
	flags.StringSliceVar(&c.Blueprints.Namespaces, "blueprint-namespaces", nil,
		"namespaces of the member cluster in which blueprints may run, or * for all but kube-* (default: none, the cluster runs no blueprints)")
	flags.StringSliceVar(&c.Blueprints.Registries, "blueprint-registries", nil,
		"registries, with or without a path, of which blueprints may run images, as docker.io,registry.example.com/team, or *; needed with blueprint-namespaces")
	flags.BoolVar(&c.Blueprints.ServiceAccountToken, "blueprint-service-account-token", false,
		"give blueprints' pods the token of their namespace's default service account")
	flags.DurationVar(&c.HeartbeatEvery, "heartbeat-every", c.HeartbeatEvery, "longest silence of a healthy agent")
	flags.DurationVar(&c.PublishWithin, "publish-within", c.PublishWithin, "how long changes are gathered before they are reported")
	flags.StringVar(&c.Listen, "metrics-listen", "", "address of /metrics, /livez and /readyz (default: none)")
}

// agentEnv also knows CLUSTER_ID, which users of Liqo and FLUIDOS set.
func agentEnv(name string) (string, bool) {
	if value, ok := os.LookupEnv(name); ok {
		return value, true
	}
	if name == settings.Env("cluster-id") {
		return os.LookupEnv("CLUSTER_ID")
	}
	return "", false
}
