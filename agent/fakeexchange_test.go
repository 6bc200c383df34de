package agent

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
)

// fakeExchange answers the few requests that an agent makes, as the exchange does: epochs,
// selectors, streaming lists, 410. It can be away, forget, and be asked what it was told.
type fakeExchange struct {
	server *httptest.Server

	mu           sync.Mutex
	away         bool
	adverts      map[string]*broker.ClusterAdvertisement
	sessions     map[string]string // advertisement -> session of the newest epoch
	reports      []broker.FactsReport
	created      int
	reservations map[string]*broker.Reservation
	slices       map[string]*broker.Slice
	told         []broker.SliceStatus // every write of a slice's status
	refuseStatus bool
	revision     int64
	compacted    int64 // watches from before end with 410
	events       []fakeEvent
	watches      []string      // selectors and revisions of watches opened
	news         chan struct{} // closed and replaced at each change
	cut          chan struct{} // closed and replaced to end all watches
}

type fakeEvent struct {
	kind     watch.EventType
	object   runtime.Object
	revision int64
}

const fakeRoot = "/apis/broker.fluidos.eu/v1alpha1"

func newFakeExchange(t *testing.T) *fakeExchange {
	t.Helper()
	e := &fakeExchange{
		adverts:      map[string]*broker.ClusterAdvertisement{},
		sessions:     map[string]string{},
		reservations: map[string]*broker.Reservation{},
		slices:       map[string]*broker.Slice{},
		revision:     1,
		news:         make(chan struct{}),
		cut:          make(chan struct{}),
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+fakeRoot+"/clusteradvertisements/{name}", e.getAdvertisement)
	mux.HandleFunc("POST "+fakeRoot+"/clusteradvertisements", e.createAdvertisement)
	mux.HandleFunc("POST "+fakeRoot+"/clusteradvertisements/{name}/facts", e.takeFacts)
	mux.HandleFunc("PATCH "+fakeRoot+"/clusteradvertisements/{name}/status", e.takeCondition)
	mux.HandleFunc("GET "+fakeRoot+"/reservations", e.readReservations)
	mux.HandleFunc("GET "+fakeRoot+"/slices", e.readSlices)
	mux.HandleFunc("PATCH "+fakeRoot+"/namespaces/{namespace}/slices/{name}/status", e.takeSliceStatus)
	e.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		e.mu.Lock()
		away := e.away
		e.mu.Unlock()
		if away {
			panic(http.ErrAbortHandler) // the connection breaks, as with a killed process
		}
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		e.endWatches()
		e.server.Close()
	})
	return e
}

func (e *fakeExchange) config() *rest.Config { return &rest.Config{Host: e.server.URL} }

// with runs f under the lock and tells all watches.
func (e *fakeExchange) with(f func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	f()
	close(e.news)
	e.news = make(chan struct{})
}

func (e *fakeExchange) endWatches() {
	e.with(func() {
		close(e.cut)
		e.cut = make(chan struct{})
	})
}

func (e *fakeExchange) setAway(away bool) {
	e.with(func() { e.away = away })
	if away {
		e.endWatches()
		e.server.CloseClientConnections()
	}
}

// put stores a reservation and tells the watches.
func (e *fakeExchange) put(r *broker.Reservation) {
	e.with(func() {
		e.revision++
		r = r.DeepCopy()
		r.ResourceVersion = strconv.FormatInt(e.revision, 10)
		key := r.Namespace + "/" + r.Name
		kind := watch.Added
		if e.reservations[key] != nil {
			kind = watch.Modified
		}
		e.reservations[key] = r
		e.events = append(e.events, fakeEvent{kind, r, e.revision})
	})
}

func (e *fakeExchange) remove(key string) {
	e.with(func() {
		e.revision++
		r := e.reservations[key].DeepCopy()
		r.ResourceVersion = strconv.FormatInt(e.revision, 10)
		delete(e.reservations, key)
		e.events = append(e.events, fakeEvent{watch.Deleted, r, e.revision})
	})
}

// last is the newest accepted report.
func (e *fakeExchange) last() (broker.FactsReport, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, r := range slices.Backward(e.reports) {
		if r.Status.Outcome == broker.FactsAccepted {
			return r, true
		}
	}
	return broker.FactsReport{}, false
}

func (e *fakeExchange) heard() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.reports)
}

func (e *fakeExchange) getAdvertisement(w http.ResponseWriter, r *http.Request) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if a := e.adverts[r.PathValue("name")]; a != nil {
		reply(w, http.StatusOK, a)
		return
	}
	refuse(w, http.StatusNotFound, metav1.StatusReasonNotFound)
}

func (e *fakeExchange) createAdvertisement(w http.ResponseWriter, r *http.Request) {
	a := &broker.ClusterAdvertisement{}
	if json.NewDecoder(r.Body).Decode(a) != nil || len(broker.ValidateClusterAdvertisement(a)) > 0 {
		refuse(w, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid)
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.adverts[a.Name] != nil {
		refuse(w, http.StatusConflict, metav1.StatusReasonAlreadyExists)
		return
	}
	a.Status.Phase = broker.AdvertisementStale
	e.adverts[a.Name] = a
	e.created++
	reply(w, http.StatusCreated, a)
}

func (e *fakeExchange) takeFacts(w http.ResponseWriter, r *http.Request) {
	report := broker.FactsReport{}
	if json.NewDecoder(r.Body).Decode(&report) != nil || len(broker.ValidateFactsReport(&report)) > 0 {
		refuse(w, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid)
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	name := r.PathValue("name")
	a := e.adverts[name]
	if a == nil {
		refuse(w, http.StatusNotFound, metav1.StatusReasonNotFound)
		return
	}
	switch {
	case report.Epoch == 0:
		a.Status.Epoch++
		e.sessions[name] = report.Session
		report.Status.Outcome = broker.FactsAccepted
	case report.Epoch > a.Status.Epoch:
		report.Status.Outcome = broker.FactsUnknownSession
	case report.Epoch < a.Status.Epoch || report.Session != e.sessions[name]:
		report.Status.Outcome = broker.FactsSuperseded
	default:
		report.Status.Outcome = broker.FactsAccepted
	}
	if report.Status.Outcome == broker.FactsAccepted {
		a.Status.Phase = broker.AdvertisementActive
	}
	report.Status.Epoch = a.Status.Epoch
	e.reports = append(e.reports, report)
	reply(w, http.StatusOK, &report)
}

// readReservations lists and watches by the two selectors that agents may use.
func (e *fakeExchange) readReservations(w http.ResponseWriter, r *http.Request) {
	field, value, _ := strings.Cut(r.URL.Query().Get("fieldSelector"), "=")
	if field != requester.field && field != provider.field {
		refuse(w, http.StatusForbidden, metav1.StatusReasonForbidden)
		return
	}
	e.read(w, r, &broker.Reservation{}, func(object runtime.Object) bool {
		v, ok := object.(*broker.Reservation)
		return ok && (field == requester.field && v.Spec.RequesterID == value || field == provider.field && v.Status.TargetClusterID == value)
	})
}

func (e *fakeExchange) readSlices(w http.ResponseWriter, r *http.Request) {
	field, value, _ := strings.Cut(r.URL.Query().Get("fieldSelector"), "=")
	if field != "spec.clusterID" {
		refuse(w, http.StatusForbidden, metav1.StatusReasonForbidden)
		return
	}
	e.read(w, r, &broker.Slice{}, func(object runtime.Object) bool {
		v, ok := object.(*broker.Slice)
		return ok && v.Spec.ClusterID == value
	})
}

func (e *fakeExchange) read(w http.ResponseWriter, r *http.Request, example runtime.Object, matches func(runtime.Object) bool) {
	if r.URL.Query().Get("watch") == "" {
		e.list(w, example, matches)
		return
	}
	from, _ := strconv.ParseInt(r.URL.Query().Get("resourceVersion"), 10, 64)
	e.watch(w, r, example, matches, from)
}

// all is every object; the lock is held.
func (e *fakeExchange) all() (all []runtime.Object) {
	for _, v := range e.reservations {
		all = append(all, v)
	}
	for _, v := range e.slices {
		all = append(all, v)
	}
	return all
}

func (e *fakeExchange) list(w http.ResponseWriter, example runtime.Object, matches func(runtime.Object) bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	meta := metav1.ListMeta{ResourceVersion: strconv.FormatInt(e.revision, 10)}
	reservations, slices := &broker.ReservationList{ListMeta: meta}, &broker.SliceList{ListMeta: meta}
	for _, object := range e.all() {
		if !matches(object) {
			continue
		}
		switch v := object.(type) {
		case *broker.Reservation:
			reservations.Items = append(reservations.Items, *v)
		case *broker.Slice:
			slices.Items = append(slices.Items, *v)
		}
	}
	if _, ok := example.(*broker.Slice); ok {
		reply(w, http.StatusOK, slices)
		return
	}
	reply(w, http.StatusOK, reservations)
}

func (e *fakeExchange) watch(w http.ResponseWriter, r *http.Request, example runtime.Object, matches func(runtime.Object) bool, from int64) {
	stream := json.NewEncoder(w)
	send := func(kind watch.EventType, object any) {
		_ = stream.Encode(map[string]any{"type": kind, "object": object})
	}
	e.mu.Lock()
	initial := r.URL.Query().Get("sendInitialEvents") == "true"
	e.watches = append(e.watches, r.URL.Query().Get("fieldSelector")+"@"+r.URL.Query().Get("resourceVersion"))
	if !initial && from < e.compacted {
		e.mu.Unlock()
		send(watch.Error, failure(http.StatusGone, metav1.StatusReasonExpired))
		return
	}
	cut := e.cut
	if initial {
		from = e.revision
		for _, v := range e.all() {
			if matches(v) {
				send(watch.Added, typed(v))
			}
		}
		end := example.DeepCopyObject().(metav1.Object)
		end.SetResourceVersion(strconv.FormatInt(e.revision, 10))
		end.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
		send(watch.Bookmark, typed(end.(runtime.Object)))
	}
	e.mu.Unlock()
	for {
		e.mu.Lock()
		news := e.news
		for _, event := range e.events {
			if event.revision > from && matches(event.object) {
				send(event.kind, typed(event.object))
			}
		}
		from = e.revision
		e.mu.Unlock()
		w.(http.Flusher).Flush()
		select {
		case <-news:
		case <-cut:
			return
		case <-r.Context().Done():
			return
		}
	}
}

// putSlice stores a slice as the leader writes it: what the agent said of it stays.
func (e *fakeExchange) putSlice(s *broker.Slice) {
	e.with(func() {
		s = s.DeepCopy()
		key := s.Namespace + "/" + s.Name
		kind := watch.Added
		if old := e.slices[key]; old != nil {
			kind = watch.Modified
			s.UID, s.Generation, s.Status = old.UID, old.Generation+1, old.Status
		}
		e.keep(kind, key, s)
	})
}

// keep stores a slice and tells the watches; the lock is held.
func (e *fakeExchange) keep(kind watch.EventType, key string, s *broker.Slice) {
	e.revision++
	s.ResourceVersion = strconv.FormatInt(e.revision, 10)
	if kind == watch.Deleted {
		delete(e.slices, key)
	} else {
		e.slices[key] = s
	}
	e.events = append(e.events, fakeEvent{kind, s, e.revision})
}

func (e *fakeExchange) removeSlice(key string) {
	e.with(func() { e.keep(watch.Deleted, key, e.slices[key].DeepCopy()) })
}

func (e *fakeExchange) slice(key string) *broker.Slice {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.slices[key].DeepCopy()
}

func (e *fakeExchange) takeSliceStatus(w http.ResponseWriter, r *http.Request) {
	patch := struct{ Status broker.SliceStatus }{}
	if json.NewDecoder(r.Body).Decode(&patch) != nil || r.Header.Get("Content-Type") != string(types.MergePatchType) {
		refuse(w, http.StatusUnsupportedMediaType, metav1.StatusReasonUnsupportedMediaType)
		return
	}
	var stored *broker.Slice
	e.with(func() {
		key := r.PathValue("namespace") + "/" + r.PathValue("name")
		if e.slices[key] == nil || e.refuseStatus {
			return
		}
		stored = e.slices[key].DeepCopy()
		fence := stored.Status.Fence
		stored.Status = patch.Status
		stored.Status.Fence = fence // the ledger's
		e.told = append(e.told, patch.Status)
		e.keep(watch.Modified, key, stored)
	})
	if stored == nil {
		refuse(w, http.StatusNotFound, metav1.StatusReasonNotFound)
		return
	}
	reply(w, http.StatusOK, typed(stored))
}

func (e *fakeExchange) takeCondition(w http.ResponseWriter, r *http.Request) {
	patch := struct {
		Status broker.ClusterAdvertisementStatus
	}{}
	err := json.NewDecoder(r.Body).Decode(&patch)
	e.mu.Lock()
	defer e.mu.Unlock()
	a := e.adverts[r.PathValue("name")]
	if a == nil || err != nil {
		refuse(w, http.StatusNotFound, metav1.StatusReasonNotFound)
		return
	}
	a.Status.Conditions = patch.Status.Conditions
	reply(w, http.StatusOK, a)
}

func typed(object runtime.Object) runtime.Object {
	object = object.DeepCopyObject()
	kind := "Reservation"
	if _, ok := object.(*broker.Slice); ok {
		kind = "Slice"
	}
	object.GetObjectKind().SetGroupVersionKind(broker.SchemeGroupVersion.WithKind(kind))
	return object
}

func reply(w http.ResponseWriter, status int, object any) {
	switch o := object.(type) {
	case *broker.ClusterAdvertisement:
		o.APIVersion, o.Kind = broker.SchemeGroupVersion.String(), "ClusterAdvertisement"
	case *broker.FactsReport:
		o.APIVersion, o.Kind = broker.SchemeGroupVersion.String(), "FactsReport"
	case *broker.SliceList:
		o.APIVersion, o.Kind = broker.SchemeGroupVersion.String(), "SliceList"
	case *broker.ReservationList:
		o.APIVersion, o.Kind = broker.SchemeGroupVersion.String(), "ReservationList"
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(object)
}

func refuse(w http.ResponseWriter, code int32, reason metav1.StatusReason) {
	reply(w, int(code), failure(code, reason))
}

func failure(code int32, reason metav1.StatusReason) *metav1.Status {
	return &metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   metav1.StatusFailure, Code: code, Reason: reason, Message: string(reason),
	}
}
