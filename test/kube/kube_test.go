package kube_test

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bourse-dev/bourse/test/kube"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// start starts a cluster with two nodes, one of them with GPUs, and stops it when the test ends.
func start(t *testing.T, ctx context.Context, bin, name string) (*kube.Cluster, error) {
	began := time.Now()
	c, err := kube.Start(ctx, kube.Options{
		Name: name, Dir: t.TempDir(), BinDir: bin, Log: t.Output(),
		Nodes: []kube.Node{
			{Name: name + "-1", CPU: "8", Memory: "32Gi"},
			{Name: name + "-2", CPU: "4", Memory: "16Gi", Resources: map[string]string{"nvidia.com/gpu": "2"}},
		},
	})
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	t.Logf("%s: ready with 2 nodes after %.1f s", name, time.Since(began).Seconds())
	return c, nil
}

func binDir(t *testing.T) string {
	t.Helper()
	dir, err := kube.BinDir(t.Context())
	if errors.Is(err, kube.ErrNotBuilt) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func timeout(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func TestClusterComesUp(t *testing.T) {
	ctx := timeout(t)
	c, err := start(t, ctx, binDir(t), "rome")
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	pods, err := c.RunPods(ctx, 3, "1", "1Gi")
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("3 pods run after %.1f s", time.Since(began).Seconds())

	t.Run("a deleted pod is gone", func(t *testing.T) {
		if err := c.DeletePod(ctx, pods[0]); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("a pod that fits nowhere is explained", func(t *testing.T) {
		short, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		_, err := c.RunPods(short, 1, "100", "1Gi")
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "Insufficient cpu") {
			t.Fatalf("got error %v, want a deadline that names Insufficient cpu", err)
		}
	})
	t.Run("nodes come, change and go", func(t *testing.T) { changeNodes(t, ctx, c) })
	t.Run("a service account has its own rights and no others", func(t *testing.T) { useServiceAccount(t, ctx, c) })
	t.Run("a pod is resized in place", func(t *testing.T) { resizePod(t, ctx, c, pods[1]) })
}

func TestThreeClustersComeUpTogether(t *testing.T) {
	ctx, bin := timeout(t), binDir(t)
	var starting sync.WaitGroup
	clusters := make(chan *kube.Cluster, 3)
	for _, name := range []string{"rome", "paris", "berlin"} {
		starting.Go(func() {
			c, err := start(t, ctx, bin, name)
			if err != nil {
				t.Error(err)
				return
			}
			clusters <- c
		})
	}
	starting.Wait()
	close(clusters)
	for c := range clusters {
		if _, err := c.RunPods(ctx, 3, "1", "1Gi"); err != nil {
			t.Error(err)
		}
	}
}

func TestStartNamesTheProgramThatFailedAndItsLog(t *testing.T) {
	bin := t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "etcd"), []byte("#!/bin/sh\nexit 7\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	_, err := kube.Start(timeout(t), kube.Options{Name: "rome", Dir: dir, BinDir: bin, Log: io.Discard})
	log := filepath.Join(dir, "rome", "logs", "etcd.log")
	if err == nil || !strings.Contains(err.Error(), "exit status 7") || !strings.Contains(err.Error(), log) {
		t.Fatalf("got error %v, want one with exit status 7 and %s", err, log)
	}
}

func changeNodes(t *testing.T, ctx context.Context, c *kube.Cluster) {
	taint := corev1.Taint{Key: "maintenance", Value: "soon", Effect: corev1.TaintEffectNoSchedule}
	for _, step := range []struct {
		name string
		do   func() error
	}{
		{"add", func() error { return c.AddNode(ctx, kube.Node{Name: "extra", CPU: "2", Memory: "4Gi"}) }},
		{"taint", func() error { return c.TaintNode(ctx, "extra", taint) }},
		{"cordon", func() error { return c.SetNodeUnschedulable(ctx, "extra", true) }},
		{"not ready", func() error { return c.SetNodeReady(ctx, "extra", false) }},
		{"ready", func() error { return c.SetNodeReady(ctx, "extra", true) }},
		{"uncordon", func() error { return c.SetNodeUnschedulable(ctx, "extra", false) }},
		{"untaint", func() error { return c.UntaintNode(ctx, "extra", "maintenance") }},
	} {
		began := time.Now()
		if err := step.do(); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		node, err := c.Client().CoreV1().Nodes().Get(ctx, "extra", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s after %.2f s: unschedulable %t, taints %v",
			step.name, time.Since(began).Seconds(), node.Spec.Unschedulable, node.Spec.Taints)
	}
	if err := c.DeleteNode(ctx, "extra"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Client().CoreV1().Nodes().Get(ctx, "extra", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Fatalf("after deletion got %v, want not found", err)
	}
}

const reader = `
apiVersion: v1
kind: ServiceAccount
metadata: {name: reader, namespace: default}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: reader}
rules:
- {apiGroups: [""], resources: [nodes], verbs: [get, list, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: reader}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: reader}
subjects:
- {kind: ServiceAccount, name: reader, namespace: default}
`

func useServiceAccount(t *testing.T, ctx context.Context, c *kube.Cluster) {
	manifest := filepath.Join(t.TempDir(), "reader.yaml")
	if err := os.WriteFile(manifest, []byte(reader), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := c.Apply(ctx, manifest); err != nil {
		t.Fatal(err)
	}
	path, err := c.ServiceAccountKubeconfig(ctx, "default", "reader")
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil || len(nodes.Items) != 2 {
		t.Fatalf("got %d nodes and error %v, want 2", len(nodes.Items), err)
	}
	if _, err := client.CoreV1().Pods("").List(ctx, metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Fatalf("listing pods: got %v, want forbidden", err)
	}
}

func resizePod(t *testing.T, ctx context.Context, c *kube.Cluster, name string) {
	pods := c.Client().CoreV1().Pods("default")
	patch := []byte(`{"spec":{"containers":[{"name":"pause","resources":{"requests":{"cpu":"1500m"}}}]}}`)
	if _, err := pods.Patch(ctx, name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "resize"); err != nil {
		t.Fatal(err)
	}
	watch, err := pods.Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Stop()
	for event := range watch.ResultChan() {
		pod, ok := event.Object.(*corev1.Pod)
		if !ok {
			t.Fatalf("watch ended with %v", event.Object)
		}
		status := pod.Status.ContainerStatuses[0]
		if status.Resources.Requests.Cpu().MilliValue() == 1500 && status.AllocatedResources.Cpu().MilliValue() == 1500 {
			return
		}
	}
	t.Fatalf("the watch ended before the resize was done: %v", ctx.Err())
}
