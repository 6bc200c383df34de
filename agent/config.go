package agent

import (
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/clock"
)

// Config is all that an agent needs to know. Start from Default.
type Config struct {
	// ClusterID names the member cluster: a DNS label. Empty: the UID of its kube-system namespace.
	ClusterID string

	// Member reaches the member cluster. nil: made from MemberKubeconfig, and where that is
	// empty too, from the pod's service account.
	Member kubernetes.Interface
	// MemberKubeconfig is a file's path.
	MemberKubeconfig string

	// Broker reaches the exchange. nil: made from BrokerKubeconfig.
	Broker *rest.Config
	// BrokerKubeconfig is a file's path.
	BrokerKubeconfig string

	// Endpoint, Region, Provider, Labels and Costs are written into the advertisement when the
	// agent creates it. From then on kubectl owns them; a differing value here is only logged.
	Endpoint string
	Region   string
	Provider string
	Labels   map[string]string
	Costs    map[string]string // as spec.cost: cpu, memory, ..., or perHour, and currency

	// Blueprints says which blueprints may run in the member cluster: none unless it says so.
	Blueprints Consent

	// HeartbeatEvery is the longest silence of a healthy agent.
	HeartbeatEvery time.Duration
	// PublishWithin is how long changes are gathered before they are reported.
	PublishWithin time.Duration

	// Listen is the address of /livez, /readyz and /metrics. Empty: none.
	Listen string

	// Logger of the agent.
	Logger hclog.Logger
	// Metrics takes the agent's metrics, each labelled with the cluster, so that several agents
	// can share one. nil: a registry of its own.
	Metrics *prometheus.Registry
	// Clock is replaced by tests.
	Clock clock.Clock
}

// Default returns a Config with everything that has a default.
func Default() Config {
	return Config{
		HeartbeatEvery: DefaultHeartbeatEvery,
		PublishWithin:  DefaultPublishWithin,
		Logger:         hclog.Default().Named("agent"),
		Clock:          clock.RealClock{},
	}
}

// Validate reports all faults at once. It opens nothing.
func (c *Config) Validate() error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }

	if c.ClusterID != "" {
		if err := validateClusterID(c.ClusterID); err != nil {
			faults = append(faults, err)
		}
	}
	if c.Broker == nil && c.BrokerKubeconfig == "" {
		fault("broker kubeconfig: missing; make one with: bourse pki kubeconfig --for agent:<cluster-id>")
	}
	if c.HeartbeatEvery < MinHeartbeatEvery || c.HeartbeatEvery > MaxHeartbeatEvery {
		fault("heartbeat interval %s: must be within %s and %s", c.HeartbeatEvery, MinHeartbeatEvery, MaxHeartbeatEvery)
	}
	if c.PublishWithin < 0 || c.PublishWithin > MaxPublishWithin {
		fault("publish delay %s: must be within 0 and %s", c.PublishWithin, MaxPublishWithin)
	}
	faults = append(faults, c.Blueprints.faults()...)
	faults = append(faults, c.advertisementFaults()...)
	if c.Logger == nil {
		fault("logger: missing")
	}
	if c.Clock == nil {
		fault("clock: missing")
	}
	return errors.Join(faults...)
}

func validateClusterID(id string) error {
	if msgs := validation.IsDNS1123Label(id); len(msgs) > 0 {
		return fmt.Errorf("cluster id %q: %s", id, msgs[0])
	}
	return nil
}

// memberClient returns the client of the member cluster, and what ends its idle connections.
func (c *Config) memberClient() (client kubernetes.Interface, closeIdle func(), err error) {
	if c.Member != nil {
		return c.Member, func() {}, nil
	}
	config, err := c.memberConfig()
	if err != nil {
		return nil, nil, err
	}
	config.UserAgent = userAgent
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	transport, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, nil, fmt.Errorf("client of the member cluster: %w", err)
	}
	client, err = kubernetes.NewForConfigAndClient(config, transport)
	if err != nil {
		return nil, nil, fmt.Errorf("client of the member cluster: %w", err)
	}
	return client, func() { utilnet.CloseIdleConnectionsFor(transport.Transport) }, nil
}

func (c *Config) memberConfig() (*rest.Config, error) {
	if c.MemberKubeconfig == "" {
		config, err := rest.InClusterConfig()
		if err != nil {
			return nil, fmt.Errorf("member cluster: no kubeconfig given, and not in a pod: %w", err)
		}
		return config, nil
	}
	config, err := clientcmd.BuildConfigFromFlags("", c.MemberKubeconfig)
	if err != nil {
		return nil, fmt.Errorf("member cluster's kubeconfig %s: %w", c.MemberKubeconfig, err)
	}
	return config, nil
}

// brokerConfig returns the way to the exchange.
func (c *Config) brokerConfig() (*rest.Config, error) {
	if c.Broker != nil {
		return rest.CopyConfig(c.Broker), nil
	}
	config, err := clientcmd.BuildConfigFromFlags("", c.BrokerKubeconfig)
	if err != nil {
		return nil, fmt.Errorf("broker kubeconfig %s: %w", c.BrokerKubeconfig, err)
	}
	return config, nil
}
