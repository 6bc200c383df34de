package agent

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
)

// What marks a Deployment and its pods as a slice's.
const (
	// BlueprintLabel, SliceLabel and ClusterLabel are on a slice's Deployment and on its pods. The slice's
	// is the name of the Slice object, cut to a label's length.
	BlueprintLabel = "broker.fluidos.eu/blueprint"
	SliceLabel     = "broker.fluidos.eu/slice"
	ClusterLabel   = "broker.fluidos.eu/cluster"
	// OwnerAnnotation on a Deployment is <namespace>/<name>/<uid> of its Slice. A Deployment without it is not ours.
	OwnerAnnotation = "broker.fluidos.eu/slice"

	// attemptAnnotation is the newest spec.attempt that the Deployment was written for.
	attemptAnnotation = "broker.fluidos.eu/attempt"
	// writtenAnnotation names what was last written, so that a change of it is seen at once.
	writtenAnnotation = "broker.fluidos.eu/written"
	// templateAnnotation on pods names the template that they were made from.
	templateAnnotation = "broker.fluidos.eu/template"
	// triesAnnotation counts how often the pods were made anew.
	triesAnnotation = "broker.fluidos.eu/tries"

	containerName = "instance"
)

// owner is the slice that a Deployment belongs to.
type owner struct {
	namespace, name string
	uid             types.UID
}

func ownerOf(s *broker.Slice) owner { return owner{s.Namespace, s.Name, s.UID} }

func (o owner) String() string { return o.namespace + "/" + o.name + "/" + string(o.uid) }

// readOwner reads OwnerAnnotation; false where the Deployment is not one of this cluster's slices.
func readOwner(d *appsv1.Deployment, clusterID string) (owner, bool) {
	parts := strings.Split(d.Annotations[OwnerAnnotation], "/")
	if len(parts) != 3 || parts[2] == "" {
		return owner{}, false
	}
	o := owner{parts[0], parts[1], types.UID(parts[2])}
	ours := o.namespace == d.Namespace && workloadName(o.name) == d.Name && d.Labels[ClusterLabel] == clusterID
	return o, ours
}

// workloadName is the Deployment of a slice of that name: the same, cut so that its ReplicaSets can be named too.
func workloadName(slice string) string { return cutName(slice, maxWorkloadName) }

// cutName keeps the end, which tells the names of slices apart.
func cutName(name string, longest int) string {
	const end = 9 // -hash8
	if len(name) <= longest {
		return name
	}
	return strings.TrimRight(name[:longest-end], "-._") + name[len(name)-end:]
}

func workloadKey(namespace, workload string) string { return namespace + "/" + workload }

func keyOf(s *broker.Slice) string { return workloadKey(s.Namespace, workloadName(s.Name)) }

// workload is what is known of a Deployment.
type workload struct {
	name       types.NamespacedName
	uid        types.UID
	owner      owner
	ours       bool
	leaving    bool  // it is being deleted
	generation int64 // of its spec
	replicas   int32
	image      string
	attempt    int32
	tries      int
	written    string
	failure    string // why its controller can't make pods
}

func (w *workload) key() string { return workloadKey(w.name.Namespace, w.name.Name) }

func readWorkload(d *appsv1.Deployment, clusterID string) *workload {
	w := &workload{
		name: types.NamespacedName{Namespace: d.Namespace, Name: d.Name}, uid: d.UID,
		leaving: d.DeletionTimestamp != nil, generation: d.Generation, written: d.Annotations[writtenAnnotation],
	}
	w.owner, w.ours = readOwner(d, clusterID)
	if d.Spec.Replicas != nil {
		w.replicas = *d.Spec.Replicas
	}
	if containers := d.Spec.Template.Spec.Containers; len(containers) > 0 {
		w.image = containers[0].Image
	}
	attempt, _ := strconv.ParseInt(d.Annotations[attemptAnnotation], 10, 32) // absent or by hand: 0, and written anew
	w.attempt = int32(attempt)
	w.tries, _ = strconv.Atoi(d.Spec.Template.Annotations[triesAnnotation])
	for i := range d.Status.Conditions {
		if c := &d.Status.Conditions[i]; c.Type == appsv1.DeploymentReplicaFailure && c.Status == corev1.ConditionTrue {
			w.failure = c.Message
		}
	}
	return w
}

// wanted is what a slice's Deployment should be.
type wanted struct {
	Owner       string
	Attempt     int32
	Replicas    int32
	Unavailable intstr.IntOrString
	Surge       intstr.IntOrString
	Template    wantedTemplate
}

// wantedTemplate is what pods are made from: where it changes, the pods are replaced.
type wantedTemplate struct {
	Image     string
	Resources []string // sorted, name=quantity
	Token     bool
	Tries     int
}

// want says what the Deployment of a slice should be. A rising attempt makes the pods anew; have is what there is, nil
// for nothing.
func (c *Consent) want(s *broker.Slice, have *workload) wanted {
	w := wanted{
		Owner:       ownerOf(s).String(),
		Attempt:     s.Spec.Attempt,
		Unavailable: ptr.Deref(s.Spec.Rollout.MaxUnavailable, defaultRollout),
		Surge:       ptr.Deref(s.Spec.Rollout.MaxSurge, defaultRollout),
		Template:    wantedTemplate{Image: inFull(s.Spec.Image), Token: c.ServiceAccountToken},
	}
	switch {
	case s.Spec.Command == broker.SliceActivate:
		w.Replicas = s.Spec.Instances
	case s.Spec.Command == broker.SliceLoad && have != nil:
		w.Replicas = have.replicas // what runs of a slice that was made again is adopted, not stopped
	}
	for _, name := range slices.Sorted(maps.Keys(s.Spec.Resources)) {
		if name == corev1.ResourcePods {
			continue // no container asks for it: it is counted with the pod
		}
		q := s.Spec.Resources[name]
		w.Template.Resources = append(w.Template.Resources, string(name)+"="+q.String())
	}
	if have != nil {
		w.Template.Tries = have.tries
		if s.Spec.Attempt > have.attempt {
			w.Template.Tries++
		}
	}
	return w
}

// fingerprint names a value in a few letters. It must stay the same from release to release: pods are replaced where
// their template's differs.
func fingerprint(of any) string {
	text, err := json.Marshal(of)
	if err != nil {
		panic(fmt.Sprintf("agent: a plain struct can't be encoded: %v", err))
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}

// deployment is the Deployment of a slice. It passes the restricted pod security standard.
func (w wanted) deployment(s *broker.Slice) *appsv1.Deployment {
	labels := map[string]string{
		BlueprintLabel: cutName(s.Spec.Blueprint, maxLabelValue),
		SliceLabel:     cutName(s.Name, maxLabelValue),
		ClusterLabel:   s.Spec.ClusterID,
	}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.Namespace, Name: workloadName(s.Name), Labels: labels,
			Annotations: map[string]string{
				OwnerAnnotation:   w.Owner,
				attemptAnnotation: strconv.Itoa(int(w.Attempt)),
				writtenAnnotation: fingerprint(w),
			},
		},
		Spec: appsv1.DeploymentSpec{
			Replicas:             &w.Replicas,
			Selector:             &metav1.LabelSelector{MatchLabels: labels},
			RevisionHistoryLimit: ptr.To[int32](2), // the blueprint keeps the history
			Strategy: appsv1.DeploymentStrategy{
				Type:          appsv1.RollingUpdateDeploymentStrategyType,
				RollingUpdate: &appsv1.RollingUpdateDeployment{MaxUnavailable: &w.Unavailable, MaxSurge: &w.Surge},
			},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{
					Labels: labels,
					Annotations: map[string]string{
						templateAnnotation: fingerprint(w.Template),
						triesAnnotation:    strconv.Itoa(w.Template.Tries),
					},
				},
				Spec: w.Template.pod(s.Spec.Resources),
			},
		},
	}
}

func (w wantedTemplate) pod(resources corev1.ResourceList) corev1.PodSpec {
	requests, limits := corev1.ResourceList{}, corev1.ResourceList{}
	for name, quantity := range resources {
		if name == corev1.ResourcePods {
			continue
		}
		requests[name] = quantity
		if name != corev1.ResourceCPU {
			limits[name] = quantity // what can't be squeezed must not outgrow the hold
		}
	}
	return corev1.PodSpec{
		AutomountServiceAccountToken:  &w.Token,
		EnableServiceLinks:            ptr.To(false),
		TerminationGracePeriodSeconds: ptr.To(stopGraceSeconds),
		SecurityContext: &corev1.PodSecurityContext{
			RunAsNonRoot:   ptr.To(true),
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
		Containers: []corev1.Container{{
			Name:      containerName,
			Image:     w.Image,
			Resources: corev1.ResourceRequirements{Requests: requests, Limits: limits},
			SecurityContext: &corev1.SecurityContext{
				AllowPrivilegeEscalation: ptr.To(false),
				Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			},
		}},
	}
}

// workloadRecord is a Deployment as a reflector carries it; its ObjectMeta has only the names.
type workloadRecord struct {
	metav1.ObjectMeta
	workload *workload
}

func namesOf(m *metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: m.Namespace, Name: m.Name}
}
