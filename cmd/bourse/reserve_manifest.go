package main

import (
	"bytes"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
)

// byteOrderMark is what some editors put before a text.
var byteOrderMark = []byte("\ufeff")

// batchManifest is what a file may say of a batch that is no bare list.
type batchManifest struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        metav1.ObjectMeta            `json:"metadata"`
	Spec            *broker.ReservationBatchSpec `json:"spec"`
	Items           []broker.BatchItem           `json:"items"`
	// Status is in what was read from the exchange, and is its own: it is not sent.
	Status any `json:"status"`
}

// parseBatch reads a ReservationBatch, as it was written or as the exchange gives it, or only its items
// ("items: [{name, spec}]", or the bare list).
func parseBatch(data []byte) (*broker.ReservationBatch, error) {
	document, content, err := soleDocument(bytes.TrimPrefix(data, byteOrderMark))
	if err != nil {
		return nil, err
	}
	batch := &broker.ReservationBatch{}
	switch object := content.(type) {
	case []any:
		err = yaml.UnmarshalStrict(document, &batch.Spec.Items)
		return batch, err
	case map[string]any:
		if err := checkBatchKind(object); err != nil {
			return nil, err
		}
	default:
		return nil, errors.New("it is neither a ReservationBatch nor a list of items {name, spec}")
	}
	var file batchManifest
	if err := yaml.UnmarshalStrict(document, &file); err != nil {
		return nil, err
	}
	if file.Spec != nil && file.Items != nil {
		return nil, errors.New("it has both spec and items at its top: all items stand under spec.items")
	}
	batch.ObjectMeta, batch.Spec.Items = givenMetadata(file.Metadata), file.Items
	if file.Spec != nil {
		batch.Spec = *file.Spec
	}
	return batch, nil
}

// checkBatchKind: where kind or version are given they are a batch's.
func checkBatchKind(object map[string]any) error {
	kind, named := object["kind"]
	version, versioned := object["apiVersion"]
	switch want := broker.SchemeGroupVersion.String(); {
	case kind == "Reservation":
		return errors.New("it is one Reservation, which `kubectl apply -f` takes: in a batch its spec is that of an item, - {name: a, spec: {...}}")
	case named && kind != broker.KindReservationBatch:
		return fmt.Errorf("kind is %q: must be %s, or the file only a list of items {name, spec}", fmt.Sprint(kind), broker.KindReservationBatch)
	case versioned && version != want:
		return fmt.Errorf("apiVersion is %q: must be %s", fmt.Sprint(version), want)
	}
	return nil
}

// givenMetadata is without what the exchange, or kubectl, has put there.
func givenMetadata(m metav1.ObjectMeta) metav1.ObjectMeta {
	m.UID, m.ResourceVersion, m.Generation, m.ManagedFields = "", "", 0, nil
	m.CreationTimestamp, m.DeletionTimestamp, m.DeletionGracePeriodSeconds = metav1.Time{}, nil, nil
	delete(m.Annotations, corev1.LastAppliedConfigAnnotation)
	return m
}

// agrees says what the command line and the file say differently.
func (f *reserveFlags) agrees(batch *broker.ReservationBatch) error {
	if f.namespace != "" && batch.Namespace != "" && f.namespace != batch.Namespace {
		return fmt.Errorf("metadata.namespace is %q and --namespace is %q: leave one of them out", batch.Namespace, f.namespace)
	}
	for i := range batch.Spec.Items {
		item := &batch.Spec.Items[i]
		if id := item.Spec.RequesterID; f.from != "" && id != "" && id != f.from {
			return fmt.Errorf("spec.items[%d] (%q): requesterID is %q and --from is %q: leave one of them out", i, item.Name, id, f.from)
		}
	}
	return nil
}

// checkFlags says what is wrong with a flag that is put into every item, before it is a fault of each.
func (f *reserveFlags) checkFlags() error {
	for _, span := range []struct{ flag, value string }{{"--for", f.duration}, {"--wait", f.waitFor}} {
		if span.value == "" {
			continue
		}
		if _, err := broker.ParseSpan(span.value); err != nil {
			return fmt.Errorf("%s: %w", span.flag, err)
		}
	}
	if f.priority < broker.MinPriority || f.priority > broker.MaxPriority {
		return fmt.Errorf("--priority %d: must be from %d to %d", f.priority, broker.MinPriority, broker.MaxPriority)
	}
	return nil
}
