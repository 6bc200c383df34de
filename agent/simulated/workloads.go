package simulated

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/testing"
	"k8s.io/utils/ptr"
)

var deployments = appsv1.SchemeGroupVersion.WithResource("deployments")

// instance is a pod of a Deployment.
type instance struct {
	simPod
	namespace string
	workload  string // its key
	hash      string // of the template that it was made from
	broken    bool
	node      *simNode // nil: none has room
	readyAt   time.Time
	ready     bool
}

// createDeployment does what an API server does to a new one.
func (c *Cluster) createDeployment(action testing.Action) (bool, runtime.Object, error) {
	d := action.(testing.CreateAction).GetObject().(*appsv1.Deployment)
	d.UID, d.Generation = types.UID(uuid.NewString()), 1
	if d.Labels == nil {
		d.Labels = map[string]string{}
	}
	d.Labels[Label] = "true"
	if err := c.feed.Create(deployments, d, action.GetNamespace()); err != nil {
		return true, nil, err
	}
	return true, d, nil
}

// updateDeployment raises the generation where the spec changed, and keeps spec and status apart.
func (c *Cluster) updateDeployment(action testing.Action) (bool, runtime.Object, error) {
	d := action.(testing.UpdateAction).GetObject().(*appsv1.Deployment)
	stored, err := c.feed.Get(deployments, d.Namespace, d.Name)
	if err != nil {
		return true, nil, err
	}
	old := stored.(*appsv1.Deployment).DeepCopy()
	if action.GetSubresource() == "status" {
		old.Status = d.Status
		d = old
	} else {
		d.UID, d.Generation, d.Status = old.UID, old.Generation, old.Status
		if !equality.Semantic.DeepEqual(d.Spec, old.Spec) {
			d.Generation++
		}
	}
	return true, d, c.feed.Update(deployments, d, d.Namespace)
}

// tend brings every Deployment's pods nearer to what it says, as its controller, the scheduler and kubelets do.
func (c *Cluster) tend(ctx context.Context) error {
	list, err := c.client.AppsV1().Deployments(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list deployments: %w", err)
	}
	there := map[string]bool{}
	for i := range list.Items {
		d := &list.Items[i]
		there[d.Namespace+"/"+d.Name] = true
		if err := c.tendTo(ctx, d); err != nil {
			return err
		}
	}
	for key, pods := range c.workloads {
		for !there[key] && len(pods) > 0 {
			if err := c.stop(ctx, pods[len(pods)-1]); err != nil {
				return err
			}
			pods = c.workloads[key]
		}
	}
	return nil
}

func (c *Cluster) tendTo(ctx context.Context, d *appsv1.Deployment) error {
	key, hash, now := d.Namespace+"/"+d.Name, templateHash(d), c.config.Clock.Now()
	for _, p := range slices.Clone(c.workloads[key]) {
		if err := c.advance(ctx, d, p, now); err != nil {
			return err
		}
	}
	if err := c.shrink(ctx, d, key, hash); err != nil {
		return err
	}
	want := int(ptr.Deref(d.Spec.Replicas, 1))
	surge, _ := rollout(d, want)
	for current := count(c.workloads[key], func(p *instance) bool { return p.hash == hash }); current < want && len(c.workloads[key]) < want+surge; current++ {
		if err := c.launch(ctx, d, key, hash, now); err != nil {
			return err
		}
	}
	return c.show(ctx, d, key, hash)
}

// shrink stops what is too many: of old templates only so many as others are ready in their place.
func (c *Cluster) shrink(ctx context.Context, d *appsv1.Deployment, key, hash string) error {
	want := int(ptr.Deref(d.Spec.Replicas, 1))
	_, unavailable := rollout(d, want)
	byUse := slices.Clone(c.workloads[key])
	slices.SortStableFunc(byUse, func(a, b *instance) int { // the least useful first
		rank := func(p *instance) int {
			switch {
			case p.hash != hash && !p.ready:
				return 0
			case p.hash != hash:
				return 1
			case !p.ready:
				return 2
			}
			return 3
		}
		return cmp.Compare(rank(a), rank(b))
	})
	for _, p := range byUse {
		all := c.workloads[key]
		ready := count(all, func(p *instance) bool { return p.ready })
		old := p.hash != hash && (!p.ready || ready > want-unavailable)
		current := count(all, func(p *instance) bool { return p.hash == hash })
		if old || p.hash == hash && current > want {
			if err := c.stop(ctx, p); err != nil {
				return err
			}
		}
	}
	return nil
}

// launch makes a pod, on a node where one has room.
func (c *Cluster) launch(ctx context.Context, d *appsv1.Deployment, key, hash string, now time.Time) error {
	c.lastID++
	p := &instance{
		simPod:    simPod{name: fmt.Sprintf("%s-%s-%05d", d.Name, hash, c.lastID)},
		namespace: d.Namespace, workload: key, hash: hash,
		readyAt: now.Add(readyAfter + time.Duration(c.luck.Int64N(int64(readyWithin)))),
	}
	for i := range d.Spec.Template.Spec.Containers {
		container := &d.Spec.Template.Spec.Containers[i]
		p.cpuMilli += container.Resources.Requests.Cpu().MilliValue()
		p.memoryBytes += container.Resources.Requests.Memory().Value()
		p.broken = p.broken || strings.HasSuffix(container.Image, ":"+brokenTag)
	}
	c.place(p)
	c.workloads[key] = append(c.workloads[key], p)
	if _, err := c.client.CoreV1().Pods(p.namespace).Create(ctx, c.instanceObject(d, p), metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create pod %s: %w", p.name, err)
	}
	return nil
}

// place books the pod on the emptiest node that has room for it.
func (c *Cluster) place(p *instance) {
	var best *simNode
	for _, n := range c.all() {
		if n.fits(p.cpuMilli, p.memoryBytes) && (best == nil || n.cpuMilli-n.usedMilli > best.cpuMilli-best.usedMilli) {
			best = n
		}
	}
	if best == nil {
		return
	}
	p.node = best
	best.instances = append(best.instances, p)
	best.usedMilli += p.cpuMilli
	best.usedBytes += p.memoryBytes
}

// advance lets a pod find its node and get ready.
func (c *Cluster) advance(ctx context.Context, d *appsv1.Deployment, p *instance, now time.Time) error {
	placed, ready := p.node != nil, p.ready
	if !placed {
		if c.place(p); p.node != nil {
			p.readyAt = now.Add(readyAfter + time.Duration(c.luck.Int64N(int64(readyWithin))))
		}
	}
	p.ready = p.node != nil && !p.broken && !now.Before(p.readyAt)
	if placed == (p.node != nil) && ready == p.ready {
		return nil
	}
	stored, err := c.client.CoreV1().Pods(p.namespace).Get(ctx, p.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		c.forget(p) // deleted by hand: another one is made
		return nil
	}
	if err != nil {
		return fmt.Errorf("get pod %s: %w", p.name, err)
	}
	shown := c.instanceObject(d, p)
	stored.Spec.NodeName, stored.Status = shown.Spec.NodeName, shown.Status
	if _, err := c.client.CoreV1().Pods(p.namespace).Update(ctx, stored, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("update pod %s: %w", p.name, err)
	}
	return nil
}

// stop removes a pod from the books and from the cluster.
func (c *Cluster) stop(ctx context.Context, p *instance) error {
	c.forget(p)
	err := c.client.CoreV1().Pods(p.namespace).Delete(ctx, p.name, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete pod %s: %w", p.name, err)
	}
	return nil
}

func (c *Cluster) forget(p *instance) {
	same := func(other *instance) bool { return other == p }
	c.workloads[p.workload] = slices.DeleteFunc(c.workloads[p.workload], same)
	if len(c.workloads[p.workload]) == 0 {
		delete(c.workloads, p.workload)
	}
	if p.node != nil {
		p.node.instances = slices.DeleteFunc(p.node.instances, same)
		p.node.usedMilli -= p.cpuMilli
		p.node.usedBytes -= p.memoryBytes
	}
}

// show writes the Deployment's status where it changed.
func (c *Cluster) show(ctx context.Context, d *appsv1.Deployment, key, hash string) error {
	all := c.workloads[key]
	ready := int32(count(all, func(p *instance) bool { return p.ready }))
	status := appsv1.DeploymentStatus{
		ObservedGeneration: d.Generation, Replicas: int32(len(all)), ReadyReplicas: ready, AvailableReplicas: ready,
		UpdatedReplicas: int32(count(all, func(p *instance) bool { return p.hash == hash })),
	}
	if equality.Semantic.DeepEqual(status, d.Status) {
		return nil
	}
	d.Status = status
	_, err := c.client.AppsV1().Deployments(d.Namespace).UpdateStatus(ctx, d, metav1.UpdateOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("update status of deployment %s: %w", key, err)
	}
	return nil
}

// instanceObject is the pod as the API shows it.
func (c *Cluster) instanceObject(d *appsv1.Deployment, p *instance) *corev1.Pod {
	template := d.Spec.Template.DeepCopy()
	labels := template.Labels
	if labels == nil {
		labels = map[string]string{}
	}
	labels[appsv1.DefaultDeploymentUniqueLabelKey] = p.hash
	pod := &corev1.Pod{ObjectMeta: c.meta(p.namespace, p.name, labels), Spec: template.Spec}
	for k, v := range template.Annotations {
		pod.Annotations[k] = v
	}
	pod.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: appsv1.SchemeGroupVersion.String(), Kind: "ReplicaSet", Name: d.Name + "-" + p.hash, UID: d.UID, Controller: ptr.To(true),
	}}
	condition := func(of corev1.PodConditionType, is bool, reason, message string) {
		status := corev1.ConditionFalse
		if is {
			status = corev1.ConditionTrue
		}
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: of, Status: status, Reason: reason, Message: message})
	}
	pod.Status.Phase = corev1.PodPending
	condition(corev1.PodReady, p.ready, "", "")
	switch {
	case p.node == nil:
		condition(corev1.PodScheduled, false, corev1.PodReasonUnschedulable, fmt.Sprintf("none of %d simulated nodes has room", len(c.all())))
		return pod
	case p.broken:
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
			Name: pod.Spec.Containers[0].Name, Image: pod.Spec.Containers[0].Image,
			State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "simulated: tag " + brokenTag}},
		}}
	case p.ready:
		pod.Status.Phase = corev1.PodRunning
	}
	pod.Spec.NodeName = p.node.name
	condition(corev1.PodScheduled, true, "", "")
	return pod
}

// rollout is how many pods may be too many, and how many may be missing, while templates change.
func rollout(d *appsv1.Deployment, want int) (surge, unavailable int) {
	quarter := intstr.FromString("25%")
	surges, missing := &quarter, &quarter
	if u := d.Spec.Strategy.RollingUpdate; u != nil {
		surges, missing = cmp.Or(u.MaxSurge, surges), cmp.Or(u.MaxUnavailable, missing)
	}
	surge, _ = intstr.GetScaledValueFromIntOrPercent(surges, want, true) // malformed: 0, as an API server would not have taken it
	unavailable, _ = intstr.GetScaledValueFromIntOrPercent(missing, want, false)
	if surge == 0 && unavailable == 0 {
		unavailable = 1
	}
	return surge, unavailable
}

func templateHash(d *appsv1.Deployment) string {
	h := fnv.New32a()
	text, err := d.Spec.Template.Marshal()
	if err != nil {
		panic(fmt.Sprintf("simulated: a pod template can't be encoded: %v", err))
	}
	h.Write(text) // a hash's Write never fails
	return fmt.Sprintf("%08x", h.Sum32())
}

func count(pods []*instance, is func(*instance) bool) (n int) {
	for _, p := range pods {
		if is(p) {
			n++
		}
	}
	return n
}
