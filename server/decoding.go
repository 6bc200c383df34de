package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"sigs.k8s.io/yaml"

	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
)

// withoutProtobuf leaves JSON and YAML: our kinds have no protobuf, and a client that asks for it
// must be told so and not be failed half-way.
type withoutProtobuf struct{ runtime.NegotiatedSerializer }

func (w withoutProtobuf) SupportedMediaTypes() []runtime.SerializerInfo {
	var kept []runtime.SerializerInfo
	for _, info := range w.NegotiatedSerializer.SupportedMediaTypes() {
		if info.MediaType != runtime.ContentTypeProtobuf {
			kept = append(kept, info)
		}
	}
	return kept
}

// explainingCodecs name field and value where a value is of another type, or a quantity does not parse: the decoder's
// own error does not know them ("quantities must match the regular expression ...").
type explainingCodecs struct{ runtime.NegotiatedSerializer }

func (e explainingCodecs) DecoderToVersion(d runtime.Decoder, gv runtime.GroupVersioner) runtime.Decoder {
	return explainingDecoder{e.NegotiatedSerializer.DecoderToVersion(d, gv)}
}

type explainingDecoder struct{ runtime.Decoder }

func (e explainingDecoder) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	if faults := hugeExponents(data); len(faults) > 0 {
		return nil, nil, faults.ToAggregate()
	}
	obj, gvk, err := e.Decoder.Decode(data, defaults, into)
	if err != nil && !runtime.IsStrictDecodingError(err) {
		err = explained(data, err)
	}
	return obj, gvk, err
}

func explained(data []byte, err error) error {
	if faults := badQuantities("", data); len(faults) > 0 {
		return faults.ToAggregate()
	}
	asJSON, notYAML := yaml.YAMLToJSON(data)
	if json.Valid(data) {
		asJSON, notYAML = data, nil // as the decoder saw it: it counts bytes
	}
	if fault := mistyped(asJSON, err); notYAML == nil && fault != nil {
		return fault
	}
	return err
}

// DecodeFromReader keeps streaming decoders working as before.
func (e explainingDecoder) DecodeFromReader(r io.Reader, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	data, err := io.ReadAll(r)
	if err != nil {
		return nil, nil, err
	}
	return e.Decode(data, defaults, into)
}

// withPatchFaults looks into patches of our kinds before the library does: merging them, it
// reports a bad quantity as an internal error (apply) or with the whole object (merge).
func (s *Server) withPatchFaults(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		info, ok := request.RequestInfoFrom(r.Context())
		if !ok || info.Verb != "patch" || info.APIGroup != broker.GroupName {
			next.ServeHTTP(w, r)
			return
		}
		body, err := io.ReadAll(io.LimitReader(r.Body, maxBodyBytes+1))
		if err != nil {
			s.fail(w, r, err)
			return
		}
		faults, kind := hugeExponents(body), kindNames[info.Resource]
		if len(faults) == 0 {
			faults = append(badQuantities(kind, body), badPatchedQuantities(kind, body)...)
		}
		if len(faults) == 0 {
			faults = s.mistypedPatch(kind, r.Header.Get("Content-Type"), body)
		}
		if len(faults) > 0 {
			s.fail(w, r, apierrors.NewInvalid(schema.GroupKind{Group: info.APIGroup, Kind: kind}, info.Name, faults))
			return
		}
		// One byte over the limit stays over the limit for the handler, which refuses it.
		r.Body = io.NopCloser(bytes.NewReader(body))
		next.ServeHTTP(w, r)
	})
}

// clientFaults: what keeps a patch from being merged into the object is the client's fault. The library
// leaves some of it (unknown or mistyped fields of an apply) without a status, which would be a 500.
type clientFaults struct{ rest.UpdatedObjectInfo }

func (c clientFaults) UpdatedObject(ctx context.Context, old runtime.Object) (runtime.Object, error) {
	obj, err := c.UpdatedObjectInfo.UpdatedObject(ctx, old)
	var status apierrors.APIStatus
	if err != nil && !errors.As(err, &status) {
		err = apierrors.NewBadRequest(err.Error())
	}
	return obj, err
}

var kindNames = map[string]string{
	"reservations": "Reservation", "reservationbatches": "ReservationBatch", "clusteradvertisements": "ClusterAdvertisement",
	"blueprints": "Blueprint", "slices": kindSlice,
}

// eachItem in quantityLists stands for every item of a list.
const eachItem = "*"

// quantityLists is where our kinds hold lists of quantities.
var quantityLists = []string{
	"spec.requestedResources", "spec.chunk", "spec.split.minPiece",
	"spec.resources.allocatable", "spec.resources.allocated", "spec.resources.reserved", "spec.resources.available",
	"spec.largestFree", "spec.lending.keepBack",
	"spec.slices." + eachItem + ".resources",
	"spec.items." + eachItem + ".spec.requestedResources", "spec.items." + eachItem + ".spec.chunk",
	"allocatable", "allocated", "largestFree",
}

const kindSlice = "Slice"

// quantityListsOf a kind. What holds lists in an advertisement is one in a slice.
func quantityListsOf(kind string) []string {
	if kind == kindSlice {
		return []string{"spec.resources"}
	}
	return quantityLists
}

// hugeExponent is a number no quantity needs: to parse 1e99999999 takes a core for minutes.
var hugeExponent = regexp.MustCompile(`^[+-]?[0-9]*[.]?[0-9]*[eE][+-]?[0-9]{4,}$`)

// maybeHuge is looked for first: hardly any body has it. YAML can also write an e as \x65, or break a line in a number.
var maybeHuge = regexp.MustCompile(`[0-9.][eE][+-]?[0-9]{4}|\\[xuU\r\n]`)

// hugeExponents finds them anywhere but in metadata, before anything else parses them.
func hugeExponents(data []byte) field.ErrorList {
	if !maybeHuge.Match(data) {
		return nil
	}
	var object map[string]any
	var operations []any // of a JSON patch
	if unmarshalExactly(data, &object) != nil && unmarshalExactly(data, &operations) != nil {
		// As JSON first: YAML makes infinity of a number like that.
		var err error
		if data, err = yaml.YAMLToJSON(data); err != nil || unmarshalExactly(data, &object) != nil {
			return nil
		}
	}
	metadata := len(hugeExponentsAt(object["metadata"], nil))
	delete(object, "metadata")
	faults := append(hugeExponentsAt(object, nil), hugeExponentsAt(operations, nil)...)
	if len(faults) == 0 && hugeTokens(data) > metadata {
		return field.ErrorList{field.Forbidden(field.NewPath("body"), "a field stands there twice, once with an exponent of more than three digits")}
	}
	return faults
}

func hugeExponentsAt(value any, at *field.Path) (faults field.ErrorList) {
	switch v := value.(type) {
	case map[string]any:
		for _, name := range sortedKeys(v) {
			faults = append(faults, hugeExponentsAt(v[name], at.Child(name))...)
		}
	case []any:
		for i, item := range v {
			faults = append(faults, hugeExponentsAt(item, at.Index(i))...)
		}
	case string, json.Number:
		if text := fmt.Sprint(v); hugeExponent.MatchString(text) {
			faults = append(faults, field.Invalid(at, text, "the exponent has more than three digits"))
		}
	}
	return faults
}

// hugeTokens counts them in the text, where a field that stands there twice hides none.
func hugeTokens(data []byte) (count int) {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	for {
		token, err := decoder.Token()
		if err != nil {
			return count
		}
		if hugeExponent.MatchString(fmt.Sprint(token)) {
			count++
		}
	}
}

// badQuantities finds what does not parse in a JSON or YAML object of a kind; empty: of the one that it names.
func badQuantities(kind string, data []byte) field.ErrorList {
	asJSON, err := yaml.YAMLToJSON(data)
	if err != nil {
		return nil
	}
	var object map[string]any
	if unmarshalExactly(asJSON, &object) != nil {
		return nil
	}
	if kind == "" {
		kind, _ = object["kind"].(string)
	}
	var faults field.ErrorList
	for _, where := range quantityListsOf(kind) {
		faults = append(faults, badQuantitiesAt(strings.Split(where, "."), object, nil)...)
	}
	return faults
}

// badQuantitiesAt follows the names from value, which is at that path, to a list of quantities.
func badQuantitiesAt(names []string, value any, at *field.Path) (faults field.ErrorList) {
	inner, _ := value.(map[string]any)
	if len(names) == 0 {
		for _, name := range sortedKeys(inner) {
			faults = append(faults, badQuantity(at.Child(name), inner[name])...)
		}
		return faults
	}
	name, rest := names[0], names[1:]
	if name == eachItem {
		items, _ := value.([]any)
		for i, item := range items {
			faults = append(faults, badQuantitiesAt(rest, item, at.Index(i))...)
		}
		return faults
	}
	return badQuantitiesAt(rest, inner[name], at.Child(name))
}

// unmarshalExactly keeps numbers as they are written.
func unmarshalExactly(data []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	return decoder.Decode(into)
}

// badPatchedQuantities looks into a JSON patch: [{"op": "replace", "path": "/spec/chunk/cpu", "value": "four"}].
func badPatchedQuantities(kind string, data []byte) field.ErrorList {
	var operations []struct {
		Path  string
		Value any
	}
	if unmarshalExactly(data, &operations) != nil {
		return nil
	}
	var faults field.ErrorList
	for _, operation := range operations {
		list, name := path.Split(strings.TrimPrefix(operation.Path, "/"))
		pattern, at := patchedPath(strings.TrimSuffix(list, "/"))
		if operation.Value != nil && slices.Contains(quantityListsOf(kind), pattern) {
			// A resource's own slash is written ~1 there.
			name = strings.NewReplacer("~1", "/", "~0", "~").Replace(name)
			faults = append(faults, badQuantity(at.Child(name), operation.Value)...)
		}
	}
	return faults
}

// patchedPath of a JSON pointer, as quantityLists writes it and as a fault names it.
func patchedPath(pointer string) (pattern string, at *field.Path) {
	names := strings.Split(pointer, "/")
	for i, name := range names {
		if index, err := strconv.Atoi(name); err == nil {
			names[i], at = eachItem, at.Index(index)
		} else {
			at = at.Child(name)
		}
	}
	return strings.Join(names, "."), at
}

func badQuantity(at *field.Path, value any) field.ErrorList {
	if value == nil { // a merge patch removes the entry
		return nil
	}
	text := fmt.Sprint(value)
	switch value.(type) {
	case string, json.Number:
		if _, err := resource.ParseQuantity(text); err == nil {
			return nil
		}
	}
	return field.ErrorList{field.Invalid(at, text, `must be a quantity, as "4", "500m" or "8Gi"`)}
}
