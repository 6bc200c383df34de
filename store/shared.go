package store

import (
	"bytes"
	"io"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// shared is an object that many watchers are sent: immutable, and encoded once for each encoder.
// It hands out copies only, because encoders and tables set fields of what they are given.
type shared struct {
	object runtime.Object // never handed out, but to readers within this package

	mu      sync.Mutex
	encoded map[runtime.Identifier]*encoding
}

type encoding struct {
	once sync.Once
	data []byte
	err  error
}

var (
	_ runtime.CacheableObject   = (*shared)(nil)
	_ metav1.ObjectMetaAccessor = (*shared)(nil)
)

// CacheEncode writes the object in the encoder's form, encoding it the first time.
func (s *shared) CacheEncode(id runtime.Identifier, encode func(runtime.Object, io.Writer) error, w io.Writer) error {
	e := s.encodingFor(id)
	e.once.Do(func() {
		var buffer bytes.Buffer
		e.err = encode(s.GetObject(), &buffer)
		e.data = buffer.Bytes()
	})
	if e.err != nil {
		return e.err
	}
	_, err := w.Write(e.data)
	return err
}

func (s *shared) encodingFor(id runtime.Identifier) *encoding {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.encoded[id]
	if e == nil {
		if s.encoded == nil {
			s.encoded = make(map[runtime.Identifier]*encoding, 1)
		}
		e = &encoding{}
		s.encoded[id] = e
	}
	return e
}

// GetObject returns a copy.
func (s *shared) GetObject() runtime.Object { return s.object.DeepCopyObject() }

// DeepCopyObject returns a copy of the object itself.
func (s *shared) DeepCopyObject() runtime.Object { return s.object.DeepCopyObject() }

// GetObjectKind: an object of the state carries no kind; encoders set it on their copy.
func (s *shared) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// GetObjectMeta returns a copy of the metadata, with maps and slices shared.
func (s *shared) GetObjectMeta() metav1.Object {
	m := *s.object.(metav1.ObjectMetaAccessor).GetObjectMeta().(*metav1.ObjectMeta)
	return &m
}
