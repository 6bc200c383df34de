// Package exchange is the command line's way to the exchange: the same
// kubeconfig, API and admin endpoints that any other client uses.
package exchange

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	adminv1 "github.com/bourse-dev/bourse/api/admin/v1"
	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
)

// requestTimeout bounds one request: the exchange works on one for 30 s at most, on a large batch for
// seconds. A command that needs longer says so itself.
const requestTimeout = 35 * time.Second

// Client talks to any node of an exchange.
type Client struct {
	api       *rest.RESTClient
	params    runtime.ParameterCodec
	namespace string
}

// Connect finds the exchange as kubectl does: an explicit path, KUBECONFIG, or the
// home directory's kubeconfig; namespace overrides the context's.
func Connect(kubeconfig, namespace string) (*Client, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = kubeconfig
	overrides := &clientcmd.ConfigOverrides{}
	overrides.Context.Namespace = namespace
	loaded := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides)
	config, err := loaded.ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("find the exchange (set --kubeconfig or KUBECONFIG): %w", err)
	}
	namespace, _, err = loaded.Namespace()
	if err != nil {
		return nil, fmt.Errorf("read the context's namespace: %w", err)
	}
	scheme := runtime.NewScheme()
	if err := broker.AddToScheme(scheme); err != nil {
		return nil, err
	}
	config.GroupVersion = &broker.SchemeGroupVersion
	config.APIPath = "/apis"
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	config.Timeout = requestTimeout
	config.WarningHandler = rest.NoWarnings{}
	api, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("make a client of the exchange: %w", err)
	}
	return &Client{api: api, params: runtime.NewParameterCodec(scheme), namespace: namespace}, nil
}

// typeOf an object, which decoding takes from it: who prints it needs it again.
func typeOf(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: broker.SchemeGroupVersion.String(), Kind: kind}
}

// Advertisements lists the offers of all member clusters.
func (c *Client) Advertisements(ctx context.Context) (*broker.ClusterAdvertisementList, error) {
	list := &broker.ClusterAdvertisementList{}
	err := c.api.Get().Resource("clusteradvertisements").Do(ctx).Into(list)
	return list, err
}

// CreateReservation creates a reservation, or with dryRun only asks what would become of it.
func (c *Client) CreateReservation(ctx context.Context, rsv *broker.Reservation, dryRun bool) (*broker.Reservation, error) {
	options := &metav1.CreateOptions{}
	if dryRun {
		options.DryRun = []string{metav1.DryRunAll}
	}
	out := &broker.Reservation{}
	err := c.api.Post().Resource("reservations").Namespace(c.namespace).
		VersionedParams(options, c.params).Body(rsv).Do(ctx).Into(out)
	out.TypeMeta = typeOf("Reservation")
	return out, err
}

// Reservation reads one reservation.
func (c *Client) Reservation(ctx context.Context, name string) (*broker.Reservation, error) {
	out := &broker.Reservation{}
	err := c.api.Get().Resource("reservations").Namespace(c.namespace).Name(name).Do(ctx).Into(out)
	out.TypeMeta = typeOf("Reservation")
	return out, err
}

// CreateBatch creates a batch and waits until it is decided, or with dryRun only asks what would become of it.
func (c *Client) CreateBatch(ctx context.Context, batch *broker.ReservationBatch, dryRun bool) (*broker.ReservationBatch, error) {
	options := &metav1.CreateOptions{}
	if dryRun {
		options.DryRun = []string{metav1.DryRunAll}
	}
	out := &broker.ReservationBatch{}
	err := c.api.Post().Resource("reservationbatches").Namespace(c.namespace).
		VersionedParams(options, c.params).Body(batch).Do(ctx).Into(out)
	out.TypeMeta = typeOf(broker.KindReservationBatch)
	return out, err
}

// Batch reads one batch.
func (c *Client) Batch(ctx context.Context, name string) (*broker.ReservationBatch, error) {
	out := &broker.ReservationBatch{}
	err := c.api.Get().Resource("reservationbatches").Namespace(c.namespace).Name(name).Do(ctx).Into(out)
	out.TypeMeta = typeOf(broker.KindReservationBatch)
	return out, err
}

// Explain decides a reservation anew on the present state, with every candidate.
func (c *Client) Explain(ctx context.Context, name string) (*broker.ReservationExplanation, error) {
	out := &broker.ReservationExplanation{}
	err := c.api.Get().Resource("reservations").Namespace(c.namespace).Name(name).SubResource("explain").Do(ctx).Into(out)
	return out, err
}

// Configuration is the Raft group as its leader sees it.
func (c *Client) Configuration(ctx context.Context) (*adminv1.RaftConfiguration, error) {
	out := &adminv1.RaftConfiguration{}
	return out, c.admin(ctx, c.api.Get().AbsPath(adminv1.PathConfiguration), out)
}

// TransferLeader hands leadership to a member; an empty id lets the leader choose.
func (c *Client) TransferLeader(ctx context.Context, to string) (*adminv1.RaftConfiguration, error) {
	body, err := json.Marshal(adminv1.TransferRequest{To: to})
	if err != nil {
		return nil, err
	}
	out := &adminv1.RaftConfiguration{}
	return out, c.admin(ctx, c.api.Post().AbsPath(adminv1.PathTransfer).Body(body), out)
}

// RemovePeer removes a member from the group.
func (c *Client) RemovePeer(ctx context.Context, id string) (*adminv1.RaftConfiguration, error) {
	out := &adminv1.RaftConfiguration{}
	return out, c.admin(ctx, c.api.Delete().AbsPath(adminv1.PathPeers+id), out)
}

func (c *Client) admin(ctx context.Context, request *rest.Request, out any) error {
	result := request.SetHeader("Accept", "application/json").SetHeader("Content-Type", "application/json").Do(ctx)
	// Error says what the exchange answered; Raw's error only that it refused.
	if err := result.Error(); err != nil {
		return err
	}
	data, err := result.Raw()
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, out); err != nil {
		return fmt.Errorf("read the answer of the exchange: %w", err)
	}
	return nil
}

// Snapshot streams a snapshot of the exchange's state into w.
func (c *Client) Snapshot(ctx context.Context, w io.Writer) (written int64, err error) {
	// The REST client's own timeout covers the whole body: a large state needs longer.
	transport := c.api.Client.Transport
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.api.Get().AbsPath(adminv1.PathSnapshot).URL().String(), nil)
	if err != nil {
		return 0, err
	}
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return 0, fmt.Errorf("ask for a snapshot: %w", err)
	}
	defer response.Body.Close() //nolint:errcheck // only read
	if response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(response.Body, 4096))
		return 0, fmt.Errorf("ask for a snapshot: %s: %s", response.Status, text)
	}
	return io.Copy(w, response.Body)
}
