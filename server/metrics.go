package server

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/endpoints/responsewriter"

	"github.com/bourse-dev/bourse/store"
)

// metrics of the HTTP side. Those of the exchange itself are read from the state at each scrape: see
// exchangeCollector.
type metrics struct {
	requests *prometheus.CounterVec
	latency  *prometheus.HistogramVec
	inFlight *prometheus.GaugeVec
	watches  *prometheus.GaugeVec
	plans    prometheus.Histogram
}

func newMetrics(registry *prometheus.Registry, db *store.DB, admin Admin) (*metrics, error) {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "bourse_http_requests_total", Help: "Requests answered, watches when they end.",
		}, []string{"verb", "resource", "code"}),
		latency: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "bourse_http_request_duration_seconds", Help: "From the request's header to the end of the answer, without watches.",
			// A create is one Raft round, two fsyncs: from a third of a millisecond to the request's limit.
			Buckets: []float64{.0003, .001, .003, .01, .03, .1, .3, 1, 3, 10, 30},
		}, []string{"verb", "resource"}),
		inFlight: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "bourse_http_requests_in_flight", Help: "Requests being worked on, without watches.",
		}, []string{"verb"}),
		watches: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "bourse_http_watches", Help: "Watches open now.",
		}, []string{"resource"}),
		plans: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "bourse_blueprint_plan_seconds", Help: "How long a plan takes, one for each new blueprint, changed spec or dry run.",
			// One of 1 slice over 10 clusters to one of 32 over a thousand.
			Buckets: []float64{.0001, .0003, .001, .003, .01, .03, .1, .3, 1, 3},
		}),
	}
	for _, c := range []prometheus.Collector{m.requests, m.latency, m.inFlight, m.watches, m.plans, exchangeCollector{db, admin}} {
		if err := registry.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// knownResources and knownVerbs bound the labels: a client can't make series by asking for nonsense.
var (
	knownResources = map[string]bool{
		"reservations": true, "reservations/status": true, "reservations/explain": true,
		"clusteradvertisements": true, "clusteradvertisements/status": true, "clusteradvertisements/facts": true,
		"blueprints": true, "blueprints/status": true, "slices": true, "slices/status": true,
		"namespaces": true, "events": true,
		"selfsubjectreviews": true, "selfsubjectaccessreviews": true, "selfsubjectrulesreviews": true,
	}
	knownVerbs = map[string]bool{
		"get": true, "list": true, "watch": true, "create": true, "update": true, "patch": true,
		"delete": true, "deletecollection": true, "post": true, "head": true, "put": true,
	}
)

func labelsOf(r *http.Request) (verb, resource string) {
	info, ok := request.RequestInfoFrom(r.Context())
	if !ok {
		return "other", "other"
	}
	verb, resource = info.Verb, info.Resource
	if info.Subresource != "" {
		resource += "/" + info.Subresource
	}
	if !info.IsResourceRequest {
		resource = "none"
	} else if !knownResources[resource] {
		resource = "other"
	}
	if !knownVerbs[verb] {
		verb = "other"
	}
	return verb, resource
}

// measured counts and times every request.
func (m *metrics) measured(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		verb, resource := labelsOf(r)
		out := &statusWriter{ResponseWriter: w}
		// Gives out the interfaces of w that watches need.
		w = responsewriter.WrapForHTTP1Or2(out)
		if verb == "watch" {
			gauge := m.watches.WithLabelValues(resource)
			gauge.Inc()
			defer gauge.Dec()
			defer func() { m.requests.WithLabelValues(verb, resource, out.text()).Inc() }()
			next.ServeHTTP(w, r)
			return
		}
		gauge := m.inFlight.WithLabelValues(verb)
		gauge.Inc()
		began := time.Now()
		defer func() {
			gauge.Dec()
			m.latency.WithLabelValues(verb, resource).Observe(time.Since(began).Seconds())
			m.requests.WithLabelValues(verb, resource, out.text()).Inc()
		}()
		next.ServeHTTP(w, r)
	})
}

// statusWriter remembers the status.
type statusWriter struct {
	http.ResponseWriter
	code int
}

func (s *statusWriter) text() string {
	if s.code == 0 {
		return "200"
	}
	return strconv.Itoa(s.code)
}

func (s *statusWriter) WriteHeader(code int) {
	if s.code == 0 {
		s.code = code
	}
	s.ResponseWriter.WriteHeader(code)
}

// Unwrap is what responsewriter and http.ResponseController ask for.
func (s *statusWriter) Unwrap() http.ResponseWriter { return s.ResponseWriter }
