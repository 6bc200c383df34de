package agent

import (
	"context"
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
)

const (
	userAgent      = "bourse-agent"
	advertisements = "clusteradvertisements"
	reservations   = "reservations"
	slicesResource = "slices"
)

// exchange is the agent's client: the few requests an agent makes, each bounded by
// requestTimeout and made once. Who retries is the session, which knows why.
type exchange struct {
	rest *rest.RESTClient
}

func newExchange(config *rest.Config) (*exchange, error) {
	scheme := runtime.NewScheme()
	if err := broker.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("scheme: %w", err)
	}
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"}) // errors come as v1 Status

	config = rest.CopyConfig(config)
	config.APIPath = "/apis"
	config.GroupVersion = &broker.SchemeGroupVersion
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	config.UserAgent = userAgent
	config.QPS = -1    // the session paces itself
	config.Timeout = 0 // it would end watches too
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("client of the exchange: %w", err)
	}
	return &exchange{rest: client}, nil
}

func (e *exchange) advertisement(ctx context.Context, name string) (*broker.ClusterAdvertisement, error) {
	found := &broker.ClusterAdvertisement{}
	return found, once(ctx, e.rest.Get().Resource(advertisements).Name(name), found)
}

func (e *exchange) createAdvertisement(ctx context.Context, wanted *broker.ClusterAdvertisement) error {
	return once(ctx, e.rest.Post().Resource(advertisements).Body(wanted), &broker.ClusterAdvertisement{})
}

func (e *exchange) report(ctx context.Context, name string, report *broker.FactsReport) (broker.FactsReportStatus, error) {
	answer := &broker.FactsReport{}
	request := e.rest.Post().Resource(advertisements).Name(name).SubResource("facts").Body(report)
	err := once(ctx, request, answer)
	return answer.Status, err
}

// close ends idle connections; open requests end with their contexts.
func (e *exchange) close() { utilnet.CloseIdleConnectionsFor(e.rest.Client.Transport) }

func once(ctx context.Context, request *rest.Request, into runtime.Object) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return request.MaxRetries(0).Do(ctx).Into(into)
}

// reservationsWhere lists and watches the reservations of all namespaces whose field has the
// value: what an agent is allowed to see is decided by these selectors.
func (e *exchange) reservationsWhere(field, value string) *cache.ListWatch {
	return cache.NewListWatchFromClient(e.rest, reservations, metav1.NamespaceAll, fields.OneTermEqualSelector(field, value))
}

// slicesOf lists and watches the slices of a cluster, in all namespaces.
func (e *exchange) slicesOf(clusterID string) *cache.ListWatch {
	return cache.NewListWatchFromClient(e.rest, slicesResource, metav1.NamespaceAll, fields.OneTermEqualSelector("spec.clusterID", clusterID))
}

// patchStatus changes some fields of an object's status, whatever the others are.
func (e *exchange) patchStatus(ctx context.Context, resource, namespace, name string, fields any, into runtime.Object) error {
	body, err := json.Marshal(map[string]any{"status": fields})
	if err != nil {
		return fmt.Errorf("encode status: %w", err)
	}
	request := e.rest.Patch(types.MergePatchType).Resource(resource).Name(name).SubResource("status").Body(body)
	if namespace != "" {
		request = request.Namespace(namespace)
	}
	return once(ctx, request, into)
}
