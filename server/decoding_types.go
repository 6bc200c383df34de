package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"regexp"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
)

// indexes in a path as faults name it.
var indexes = regexp.MustCompile(`\[\d+\]`)

// mistyped says where in a JSON object, and with which value, the decoder found a value of another type than it
// wants: its own error knows which field, and not of which item of a list. Nil where err is another one.
func mistyped(data []byte, err error) *field.Error {
	var wrong *json.UnmarshalTypeError
	if !errors.As(err, &wrong) {
		return nil
	}
	search := valueSearch{Decoder: json.NewDecoder(bytes.NewReader(data)), end: wrong.Offset}
	search.UseNumber()
	// A type that decodes itself counts from where it began: what is found there is something else.
	must := "must be " + wordFor(wrong.Type)
	if search.in(nil) && search.at != nil && indexes.ReplaceAllString(search.at.String(), "") == wrong.Field {
		return field.Invalid(search.at, search.value, must)
	}
	if wrong.Field == "" {
		return nil
	}
	return field.Invalid(field.NewPath(wrong.Field), wrong.Value, must)
}

// mistypedPatch finds in a merge patch what does not fit its kind. The library reports it with the whole object.
func (s *Server) mistypedPatch(kind, contentType string, body []byte) field.ErrorList {
	if contentType != string(types.MergePatchType) && contentType != string(types.StrategicMergePatchType) {
		return nil
	}
	object, err := s.words.scheme.New(broker.SchemeGroupVersion.WithKind(kind))
	if err != nil {
		return nil // not of ours
	}
	if fault := mistyped(body, json.Unmarshal(body, object)); fault != nil {
		return field.ErrorList{fault}
	}
	return nil
}

// valueSearch looks for the value, or the opening bracket, that ends at an offset.
type valueSearch struct {
	*json.Decoder
	end   int64
	at    *field.Path
	value any
}

// in searches the next value, which is at that path.
func (s *valueSearch) in(at *field.Path) (found bool) {
	token, err := s.Token()
	if err != nil {
		return false
	}
	opens, _ := token.(json.Delim)
	if s.InputOffset() >= s.end {
		s.at, s.value = at, token
		if opens != 0 {
			s.value = map[json.Delim]string{'{': "{...}", '[': "[...]"}[opens]
		}
		return true
	}
	if opens == 0 {
		return false
	}
	for i := 0; s.More(); i++ {
		inner := at.Index(i)
		if opens == '{' {
			name, err := s.Token()
			if err != nil {
				return false
			}
			inner = at.Child(fmt.Sprint(name))
		}
		if s.in(inner) {
			return true
		}
	}
	s.Token() //nolint:errcheck // the closing bracket, which the decoder has read before
	return false
}

func wordFor(t reflect.Type) string {
	switch t.Kind() {
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice:
		return "a list"
	case reflect.Struct, reflect.Map:
		return "an object"
	case reflect.Int32, reflect.Int64:
		return "a whole number, of " + t.String()
	default:
		return "of type " + t.String()
	}
}
