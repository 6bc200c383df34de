package agent

import (
	"errors"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

var systemNamespace = corev1.Namespace{
	ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem, UID: "7d1b0a3e-5c0e-4c58-9d2e-1f5a4be3a111"},
}

func v1Name(name string) corev1.ResourceName { return corev1.ResourceName(name) }

// breakable makes the member cluster one that can be taken out of reach: open watches end, and
// nothing gets through any more.
func breakable(member *fake.Clientset) (takeAway func()) {
	var mu sync.Mutex
	var away bool
	var open []watch.Interface
	refused := errors.New("out of reach")
	member.PrependReactor("*", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
		mu.Lock()
		defer mu.Unlock()
		return away, nil, refused
	})
	member.PrependWatchReactor("*", func(action clienttesting.Action) (bool, watch.Interface, error) {
		mu.Lock()
		defer mu.Unlock()
		if away {
			return true, nil, refused
		}
		var options metav1.ListOptions
		if w, ok := action.(clienttesting.WatchActionImpl); ok {
			options = w.ListOptions
		}
		stream, err := member.Tracker().Watch(action.GetResource(), action.GetNamespace(), options)
		open = append(open, stream)
		return true, stream, err
	})
	return func() {
		mu.Lock()
		defer mu.Unlock()
		away = true
		for _, stream := range open {
			stream.Stop()
		}
	}
}
