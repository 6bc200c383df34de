package agent

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
)

func TestAMemberThatHasNotConsentedRunsNothingAndSaysSo(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		consent Consent
		says    string
		allowed metav1.ConditionStatus
		words   string
	}{
		"no flags":          {Consent{}, "started without --blueprint-namespaces", "False", "no blueprints: the agent was started without --blueprint-namespaces"},
		"another namespace": {Consent{Namespaces: []string{"lab"}, Registries: []string{"*"}}, `namespace "shop" is not among --blueprint-namespaces lab`, "True", "namespaces lab; registries *"},
		"another registry":  {Consent{Namespaces: []string{"shop"}, Registries: []string{"quay.io"}}, "is not of --blueprint-registries quay.io", "True", "namespaces shop; registries quay.io"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newSliceRig(t)
			r.config.Blueprints = c.consent
			r.start()
			r.order(broker.SliceLoad)
			s := r.untilState(broker.SliceFailed, 0)
			require.Contains(t, s.Status.Message, c.says)
			refused := meta.FindStatusCondition(s.Status.Conditions, broker.ConditionRefused)
			require.Equal(t, s.Status.Message, refused.Message)
			require.Equal(t, metav1.ConditionTrue, refused.Status)
			r.pass(time.Minute)
			require.Nil(t, r.deployment())
			r.exchange.mu.Lock()
			allowed := meta.FindStatusCondition(r.exchange.adverts["rome-adv"].Status.Conditions, broker.ConditionBlueprints)
			r.exchange.mu.Unlock()
			require.Equal(t, c.allowed, allowed.Status)
			require.Equal(t, c.words, allowed.Message)

			r.order(broker.SliceUnload)
			s = r.untilState(broker.SliceUnloading, 0)
			require.True(t, meta.IsStatusConditionTrue(s.Status.Conditions, broker.ConditionUnloaded))
			require.Nil(t, meta.FindStatusCondition(s.Status.Conditions, broker.ConditionRefused))
		})
	}
}

func TestConsentTakenBackRemovesWhatRuns(t *testing.T) {
	t.Parallel()
	r := newSliceRig(t).start()
	r.order(broker.SliceActivate)
	r.untilState(broker.SliceActive, 3)
	r.stop()
	r.config.Blueprints = Consent{}
	r.start()
	s := r.untilState(broker.SliceFailed, 0)
	require.True(t, meta.IsStatusConditionTrue(s.Status.Conditions, broker.ConditionRefused))
	r.until("its end", func() bool { return r.deployment() == nil && len(r.pods()) == 0 })
}

func TestAVersionThatIsRefusedLeavesTheOneBefore(t *testing.T) {
	t.Parallel()
	r := newSliceRig(t)
	r.config.Blueprints.Registries = []string{"docker.io"}
	r.start()
	r.order(broker.SliceActivate)
	r.untilState(broker.SliceActive, 3)
	before := r.deployment()
	strange := func(s *broker.Slice) { s.Spec.Image = "quay.io/team/web:2" }
	r.order(broker.SliceActivate, strange)
	s := r.untilState(broker.SliceFailed, 3)
	require.True(t, meta.IsStatusConditionTrue(s.Status.Conditions, broker.ConditionRefused))
	r.pass(time.Minute)
	require.True(t, equality.Semantic.DeepEqual(before, r.deployment()))
	r.order(broker.SliceActivate)
	r.untilState(broker.SliceActive, 3)
	require.True(t, equality.Semantic.DeepEqual(before.Spec, r.deployment().Spec), "it went on all the time")

	r.order(broker.SliceLoad, strange) // nothing is to run
	r.until("its end", func() bool { return r.deployment() == nil && len(r.pods()) == 0 })
}

func TestWhatIsJudgedOfAnImageIsWhatRuns(t *testing.T) {
	t.Parallel()
	r := newSliceRig(t).start()
	digest := "@sha256:" + strings.Repeat("a", 64)
	for image, runs := range map[string]string{
		"nginx:1.27":                 "docker.io/library/nginx:1.27",
		"nginx":                      "docker.io/library/nginx:latest",
		"index.docker.io/acme/api:2": "docker.io/acme/api:2",
		"nginx:1.27" + digest:        "docker.io/library/nginx" + digest,
	} {
		r.order(broker.SliceActivate, func(s *broker.Slice) { s.Spec.Image = image })
		r.until(image+" active", func() bool {
			d, s := r.deployment(), r.exchange.slice(webKey)
			return d != nil && d.Spec.Template.Spec.Containers[0].Image == runs && s.Status.State == broker.SliceActive &&
				s.Status.ObservedGeneration == s.Generation
		})
		names, acts := r.podNames(), r.metric("bourse_agent_slice_writes_total")
		r.pass(10 * time.Second)
		require.InDelta(t, acts, r.metric("bourse_agent_slice_writes_total"), 0, "it is as it should be")

		r.order(broker.SliceActivate, func(s *broker.Slice) { s.Spec.Image = runs })
		r.untilState(broker.SliceActive, 3)
		r.pass(10 * time.Second)
		require.Equal(t, names, r.podNames(), "the same image in other words is no new version")
	}
}

func TestAShortImageThatSomebodyWroteIsNotCoveredByConsent(t *testing.T) {
	t.Parallel()
	r := newSliceRig(t).start()
	r.order(broker.SliceActivate)
	r.untilState(broker.SliceActive, 3)
	r.stop()
	d := r.deployment()
	d.Spec.Template.Spec.Containers[0].Image = "nginx:1"
	_, err := r.member.AppsV1().Deployments("shop").Update(t.Context(), d, metav1.UpdateOptions{})
	require.NoError(t, err)
	r.order(broker.SliceActivate, func(s *broker.Slice) { s.Spec.Image = "quay.io/team/web:2" })
	r.start()
	r.until("its end", func() bool { return r.deployment() == nil && len(r.pods()) == 0 })
}

func TestAMissingRightIsNamedAndHealsOnceItIsThere(t *testing.T) {
	t.Parallel()
	r := newSliceRig(t)
	var allowed atomic.Bool
	r.member.PrependReactor("create", "deployments", func(clienttesting.Action) (bool, runtime.Object, error) {
		if allowed.Load() {
			return false, nil, nil
		}
		return true, nil, apierrors.NewForbidden(appsv1.Resource("deployments"), "x", fmt.Errorf("the agent cannot create it in shop"))
	})
	r.start()
	r.order(broker.SliceActivate)
	s := r.untilState(broker.SliceFailed, 0)
	require.Contains(t, s.Status.Message, "the agent has no right to it")
	require.Nil(t, meta.FindStatusCondition(s.Status.Conditions, broker.ConditionRefused), "consent was given, rights were not")
	allowed.Store(true)
	r.untilState(broker.SliceActive, 3)
}

// rights takes them at the member cluster's Deployments and gives them back.
type rights struct{ none atomic.Bool }

func (r *rig) rights(verbs ...string) *rights {
	all := &rights{}
	for _, verb := range verbs {
		r.member.PrependReactor(verb, "deployments", func(action clienttesting.Action) (bool, runtime.Object, error) {
			if !all.none.Load() || action.GetNamespace() != "shop" { // the simulated cluster itself looks at all
				return false, nil, nil
			}
			return true, nil, apierrors.NewForbidden(appsv1.Resource("deployments"), "x", fmt.Errorf("the agent cannot %s it in shop", verb))
		})
	}
	return all
}

// there says whether the Deployment is, whatever rights there are.
func (r *rig) there() bool {
	_, err := r.member.Tracker().Get(appsv1.SchemeGroupVersion.WithResource("deployments"), "shop", "store-web-rome-1a2b3c4d")
	require.True(r.t, err == nil || apierrors.IsNotFound(err), "%v", err)
	return err == nil
}

func TestWhatIsLeftForWantOfRightsIsNotCalledUnloaded(t *testing.T) {
	t.Parallel()
	some, none := Consent{Namespaces: []string{"shop"}, Registries: []string{"docker.io"}}, Consent{}
	for name, c := range map[string]struct {
		verbs   []string
		consent Consent
	}{
		"it may not look":                         {[]string{"list", "get", "delete"}, some},
		"it may look and not delete":              {[]string{"delete"}, some},
		"it may neither list nor delete":          {[]string{"list", "delete"}, some},
		"consent was taken with the rights":       {[]string{"list", "get", "delete"}, none},
		"consent was taken, and the right to end": {[]string{"delete"}, none},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newSliceRig(t)
			held := r.rights(c.verbs...)
			r.start()
			r.order(broker.SliceLoad)
			r.untilState(broker.SliceLoaded, 0)
			r.stop()
			held.none.Store(true)
			r.config.Blueprints = c.consent
			r.start()
			r.order(broker.SliceLoad, func(s *broker.Slice) { s.Spec.Attempt = 1 })
			r.until("its answer", func() bool {
				s := r.exchange.slice(webKey)
				return s.Status.ObservedGeneration == s.Generation
			})
			r.stop()
			r.start() // what it knew is in the slice's status
			r.order(broker.SliceUnload)
			unloaded := func() bool {
				return meta.IsStatusConditionTrue(r.exchange.slice(webKey).Status.Conditions, broker.ConditionUnloaded)
			}
			r.until("the reason", func() bool {
				s := r.exchange.slice(webKey)
				return unloaded() || s.Status.State == broker.SliceFailed && s.Status.ObservedGeneration == s.Generation
			})
			require.Contains(t, r.exchange.slice(webKey).Status.Message, "the agent has no right to it")
			r.pass(time.Minute)
			require.False(t, unloaded())
			require.True(t, r.there())
			held.none.Store(false)
			r.until("its end", unloaded)
			require.False(t, r.there())
		})
	}
}

func TestWhereNothingEverRanNoRightIsNeededToUnload(t *testing.T) {
	t.Parallel()
	r := newSliceRig(t)
	r.config.Blueprints.Namespaces = []string{"lab"}
	r.rights("list", "get", "delete").none.Store(true)
	r.start()
	r.order(broker.SliceLoad)
	r.untilState(broker.SliceFailed, 0)
	r.pass(time.Minute)
	r.order(broker.SliceUnload)
	s := r.untilState(broker.SliceUnloading, 0)
	require.True(t, meta.IsStatusConditionTrue(s.Status.Conditions, broker.ConditionUnloaded))
	r.pass(time.Minute)
	require.Equal(t, broker.SliceUnloading, r.exchange.slice(webKey).Status.State)
}
