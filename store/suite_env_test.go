package store_test

import (
	"bytes"
	"context"
	"io"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apiserver/pkg/apis/example"
	examplev1 "k8s.io/apiserver/pkg/apis/example/v1"
	"k8s.io/apiserver/pkg/storage"
	storagetesting "k8s.io/apiserver/pkg/storage/testing"
	"k8s.io/apiserver/pkg/storage/value"

	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/store"
	"github.com/bourse-dev/bourse/store/storetest"
)

// followerDelay is how late entries reach the follower.
const followerDelay = 2 * time.Millisecond

var exampleCodec = func() runtime.Codec {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, metav1.SchemeGroupVersion)
	utilruntime.Must(example.AddToScheme(scheme))
	utilruntime.Must(examplev1.AddToScheme(scheme))
	return serializer.NewCodecFactory(scheme).LegacyCodec(examplev1.SchemeGroupVersion)
}()

// env is what one test of upstream's suite runs against.
type env struct {
	*store.Storage
	db     *store.DB
	writer store.Writer
	codec  *transformingCodec
}

// environments: the same suite on the node that leads and on one that lags behind it.
var environments = map[string]func(t *testing.T) *env{
	"leader": func(t *testing.T) *env {
		db, leader := storetest.NewDB()
		return newEnv(t, db, leader)
	},
	"follower": func(t *testing.T) *env {
		_, leader := storetest.NewDB()
		db, follower := storetest.NewFollower(leader, followerDelay)
		t.Cleanup(follower.Close)
		return newEnv(t, db, follower)
	},
}

// newEnv starts at revision 1, as every exchange that serves: 0 is no resourceVersion of a list.
func newEnv(t *testing.T, db *store.DB, writer store.Writer) *env {
	codec := &transformingCodec{Codec: exampleCodec}
	kind := store.CodecKind(schema.GroupResource{Resource: "pods"}, codec, func() runtime.Object { return &example.Pod{} })
	e := &env{Storage: store.NewStorage(db, writer, kind), db: db, writer: writer, codec: codec}
	e.increase(t.Context(), t)
	return e
}

func (e *env) increase(_ context.Context, t *testing.T) int64 {
	result, err := e.writer.Write(t.Context(), fsm.Txn{Writes: []fsm.Write{{Key: "others/x", Body: []byte("{}")}}})
	require.NoError(t, err)
	require.Nil(t, result.Refusal)
	return int64(result.Revision)
}

// compact also writes, as etcd's compaction does and upstream counts on.
func (e *env) compact(ctx context.Context, t *testing.T, resourceVersion string) {
	defer e.increase(ctx, t)
	revision, err := strconv.ParseUint(resourceVersion, 10, 64)
	require.NoError(t, err)
	_, err = e.db.WaitFor(t.Context(), fsm.Revision(revision))
	require.NoError(t, err)
	e.db.Compact(fsm.Revision(revision))
}

// validate checks what upstream demands of stored bytes.
func (e *env) validate(_ context.Context, t *testing.T, key string) {
	row := e.db.State().Row(key[1:])
	require.NotNil(t, row, key)
	object, err := runtime.Decode(e.codec, row.Body)
	require.NoError(t, err)
	pod := object.(*example.Pod)
	require.Empty(t, pod.ResourceVersion)
	require.Empty(t, pod.GetSelfLink())
}

// UpdatePrefixTransformer is how upstream's suite changes what stored bytes look like.
func (e *env) UpdatePrefixTransformer(modify storagetesting.PrefixTransformerModifier) func() {
	e.codec.set(modify(storagetesting.NewPrefixTransformer(nil, false)))
	return func() { e.codec.set(nil) }
}

// untransformed runs a test for which the transformer is only a hook into reads.
type untransformed struct{ *env }

func (untransformed) UpdatePrefixTransformer(modify storagetesting.PrefixTransformerModifier) func() {
	modify(storagetesting.NewPrefixTransformer(nil, false))
	return func() {}
}

// transformingCodec applies upstream's transformer to stored bytes. Bytes that it calls stale are
// stored with a trailing space from then on: what is stored is then not what would be.
type transformingCodec struct {
	runtime.Codec

	mu          sync.Mutex
	transformer value.Transformer
}

func (c *transformingCodec) set(transformer value.Transformer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.transformer = transformer
}

func (c *transformingCodec) Encode(object runtime.Object, w io.Writer) error {
	var encoded bytes.Buffer
	if err := c.Codec.Encode(object, &encoded); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	data := encoded.Bytes()
	if c.transformer != nil {
		ctx, where := context.Background(), value.DefaultContext("")
		transformed, err := c.transformer.TransformToStorage(ctx, data, where)
		if err != nil {
			return err
		}
		if _, stale, err := c.transformer.TransformFromStorage(ctx, transformed, where); err == nil && stale {
			transformed = append(transformed, ' ')
		}
		data = transformed
	}
	_, err := w.Write(data)
	return err
}

var _ storage.Interface = (*env)(nil)
