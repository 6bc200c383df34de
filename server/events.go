package server

import (
	"context"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta/table"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
)

// eventFields is what kubectl describe and kubectl events select by.
var eventFields = []string{
	"involvedObject.kind", "involvedObject.namespace", "involvedObject.name", "involvedObject.uid",
	"involvedObject.apiVersion", "involvedObject.resourceVersion", "involvedObject.fieldPath",
	"reason", "reportingComponent", "source", "type",
}

// maxEventMessageBytes is Kubernetes' own bound.
const maxEventMessageBytes = 1024

// eventREST serves core/v1 Events. Leader rooms write them, with the change that they tell of.
type eventREST struct {
	objectStore
}

func (eventREST) ShortNames() []string { return []string{"ev"} }

func newEvents(s *Server, options generic.RESTOptionsGetter) (map[string]rest.Storage, error) {
	main, err := newStore(kind{
		plural: "events", singular: "event", group: corev1.GroupName,
		newObject: func() runtime.Object { return &corev1.Event{} },
		newList:   func() runtime.Object { return &corev1.EventList{} },
		strategy:  eventStrategy{newStrategy(s.words.scheme, true, nil)},
		table:     eventTable,
		fields:    eventFieldSet,
	}, options)
	return map[string]rest.Storage{"events": eventREST{objectStore{Store: main}}}, err
}

func eventFieldSet(obj runtime.Object) fields.Set {
	e := obj.(*corev1.Event)
	source := e.Source.Component
	if source == "" {
		source = e.ReportingController
	}
	return fields.Set{
		"involvedObject.kind":            e.InvolvedObject.Kind,
		"involvedObject.namespace":       e.InvolvedObject.Namespace,
		"involvedObject.name":            e.InvolvedObject.Name,
		"involvedObject.uid":             string(e.InvolvedObject.UID),
		"involvedObject.apiVersion":      e.InvolvedObject.APIVersion,
		"involvedObject.resourceVersion": e.InvolvedObject.ResourceVersion,
		"involvedObject.fieldPath":       e.InvolvedObject.FieldPath,
		"reason":                         e.Reason,
		"reportingComponent":             e.ReportingController,
		"source":                         source,
		"type":                           e.Type,
	}
}

type eventStrategy struct{ strategy }

func (eventStrategy) PrepareForCreate(context.Context, runtime.Object)        {}
func (eventStrategy) PrepareForUpdate(_ context.Context, _, _ runtime.Object) {}

func (eventStrategy) Validate(_ context.Context, obj runtime.Object) field.ErrorList {
	e := obj.(*corev1.Event)
	var errs field.ErrorList
	// Events of objects without a namespace live in "default".
	if ns := e.InvolvedObject.Namespace; ns != e.Namespace && (ns != "" || e.Namespace != metav1.NamespaceDefault) {
		errs = append(errs, field.Invalid(field.NewPath("involvedObject", "namespace"), ns, "must be the event's own"))
	}
	if len(e.Message) > maxEventMessageBytes {
		errs = append(errs, field.TooLong(field.NewPath("message"), "", maxEventMessageBytes))
	}
	return errs
}

func (s eventStrategy) ValidateUpdate(ctx context.Context, obj, _ runtime.Object) field.ErrorList {
	return s.Validate(ctx, obj)
}

var eventTable = columns{
	{name: "Last Seen", about: "How long ago it happened last.", cell: of(lastSeen)},
	{name: "Type", about: "Normal or Warning.", cell: of(func(e *corev1.Event) string { return e.Type })},
	{name: "Reason", about: "What happened, in one word.", cell: of(func(e *corev1.Event) string { return e.Reason })},
	{name: "Object", about: "What it happened to.", cell: of(func(e *corev1.Event) string {
		return strings.ToLower(e.InvolvedObject.Kind) + "/" + e.InvolvedObject.Name
	})},
	{name: "Source", about: "Who tells.", wide: true, cell: of(func(e *corev1.Event) string {
		if e.Source.Component != "" {
			return e.Source.Component
		}
		return e.ReportingController
	})},
	{name: "Message", about: "What happened, in words.", cell: of(func(e *corev1.Event) string { return strings.TrimSpace(e.Message) })},
	{name: "Count", about: "How often.", wide: true, cell: of(func(e *corev1.Event) string { return strconv.Itoa(int(max(1, e.Count))) })},
	{name: "Name", about: "The event's name.", wide: true, cell: nameColumn.cell},
}

func lastSeen(e *corev1.Event) string {
	switch {
	case !e.LastTimestamp.IsZero():
		return table.ConvertToHumanReadableDateType(e.LastTimestamp)
	case !e.EventTime.IsZero():
		return table.ConvertToHumanReadableDateType(metav1.NewTime(e.EventTime.Time))
	}
	return table.ConvertToHumanReadableDateType(e.FirstTimestamp)
}
