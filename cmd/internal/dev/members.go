package dev

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/bourse-dev/bourse/agent"
	"github.com/bourse-dev/bourse/agent/simulated"
	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
)

// place is what a simulated member cluster says of itself when it first advertises.
type place struct{ region, cpu, memory string }

// places of the well-known clusters; others get the last one.
var places = map[string]place{
	"rome":   {"eu-south", "0.048", "0.0051"},
	"paris":  {"eu-west", "0.052", "0.0056"},
	"berlin": {"eu-central", "0.041", "0.0047"},
	"tokyo":  {"ap-northeast", "0.059", "0.0065"},
}

var elsewhere = place{"simulated", "0.050", "0.0050"}

// advertisedWithin bounds the wait for the agents' first reports.
const advertisedWithin = 30 * time.Second

// runMembers runs the simulated clusters and their agents until ctx ends, and says when all have advertised.
func (c *Config) runMembers(ctx context.Context, files *kubeconfigs) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, id := range c.Clusters {
		member, err := simulated.New(simulated.Default(id))
		if err != nil {
			return err
		}
		config := agent.Default()
		config.ClusterID = id
		config.Member = member.Client()
		config.BrokerKubeconfig = files.agents[id]
		config.Endpoint = "https://" + id + ".simulated.invalid:6443"
		config.Labels = map[string]string{"bourse.dev/simulated": "true"}
		config.Blueprints = agent.Consent{Namespaces: []string{"*"}, Registries: []string{"*"}} // nothing is pulled, nothing runs
		config.Logger = c.Log.Named("agent")
		where, known := places[id]
		if !known {
			where = elsewhere
		}
		config.Region, config.Provider = where.region, "simulated"
		config.Costs = map[string]string{"currency": "EUR", "cpu": where.cpu, "memory": where.memory}
		group.Go(func() error { return member.Run(ctx) })
		group.Go(func() error { return agent.Run(ctx, config) })
	}
	group.Go(func() error {
		if err := c.waitAdvertised(ctx, files.admin); err != nil {
			return err
		}
		return c.sayReady(files.admin)
	})
	return group.Wait()
}

func (c *Config) waitAdvertised(ctx context.Context, kubeconfig string) error {
	ctx, cancel := context.WithTimeout(ctx, advertisedWithin)
	defer cancel()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	advertisements := client.Resource(broker.SchemeGroupVersion.WithResource("clusteradvertisements"))
	ticker := time.NewTicker(probeEvery)
	defer ticker.Stop()
	for {
		active := map[string]bool{}
		list, err := advertisements.List(ctx, metav1.ListOptions{})
		if err == nil {
			for i := range list.Items {
				status, _ := list.Items[i].Object["status"].(map[string]any)
				active[list.Items[i].GetName()] = status["phase"] == string(broker.AdvertisementActive)
			}
		}
		missing := 0
		for _, id := range c.Clusters {
			if !active[broker.AdvertisementName(id)] {
				missing++
			}
		}
		if missing == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d of %d member clusters did not advertise within %s (last answer: %w)",
				missing, len(c.Clusters), advertisedWithin, err)
		case <-ticker.C:
		}
	}
}

func (c *Config) sayReady(kubeconfig string) error {
	_, err := fmt.Fprintf(c.Out, `bourse dev ready: %d broker nodes, %d simulated member clusters

  export KUBECONFIG=%s
  kubectl get clusteradvertisements

Broker nodes are processes of their own: kill -9 $(cat %s) shows failover. Ctrl-C stops everything.
`, c.Servers, len(c.Clusters), kubeconfig, filepath.Join(c.DataDir, "n1", "pid"))
	return err
}
