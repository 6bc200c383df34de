package agent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"
)

// manifest reads one document of deploy/agent by its kind, unknown fields refused.
func manifest[T any](t *testing.T, file, kind string) T {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "deploy", "agent", file))
	require.NoError(t, err)
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		if strings.Contains(document, "kind: "+kind+"\n") {
			var object T
			require.NoError(t, yaml.UnmarshalStrict([]byte(document), &object))
			return object
		}
	}
	require.Fail(t, "not found", "%s in %s", kind, file)
	panic("unreachable")
}

func TestTheManifestsGrantWhatTheAgentReadsAndNothingElse(t *testing.T) {
	t.Parallel()
	role := manifest[rbacv1.ClusterRole](t, "rbac.yaml", "ClusterRole")
	require.Equal(t, []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"nodes", "pods"}, Verbs: []string{"get", "list", "watch"}},
		{APIGroups: []string{""}, Resources: []string{"namespaces"}, ResourceNames: []string{"kube-system"}, Verbs: []string{"get"}},
	}, role.Rules)
	binding := manifest[rbacv1.ClusterRoleBinding](t, "rbac.yaml", "ClusterRoleBinding")
	account := manifest[corev1.ServiceAccount](t, "rbac.yaml", "ServiceAccount")
	require.Equal(t, role.Name, binding.RoleRef.Name)
	require.Equal(t, []rbacv1.Subject{{Kind: "ServiceAccount", Name: account.Name, Namespace: account.Namespace}}, binding.Subjects)
	require.Equal(t, account.Name, manifest[appsv1.Deployment](t, "deployment.yaml", "Deployment").Spec.Template.Spec.ServiceAccountName)
}

func TestRightsForBlueprintsAreExtraAndForDeploymentsOnly(t *testing.T) {
	t.Parallel()
	rules := []rbacv1.PolicyRule{{
		APIGroups: []string{"apps"}, Resources: []string{"deployments"}, Verbs: []string{"get", "list", "watch", "create", "update", "delete"},
	}}
	account := manifest[corev1.ServiceAccount](t, "rbac.yaml", "ServiceAccount")
	subjects := []rbacv1.Subject{{Kind: "ServiceAccount", Name: account.Name, Namespace: account.Namespace}}
	role := manifest[rbacv1.Role](t, "blueprints/namespace-rights.yaml", "Role")
	binding := manifest[rbacv1.RoleBinding](t, "blueprints/namespace-rights.yaml", "RoleBinding")
	require.Equal(t, rules, role.Rules)
	require.Empty(t, role.Namespace+binding.Namespace, "kubectl apply -n says which")
	require.Equal(t, rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "Role", Name: role.Name}, binding.RoleRef)
	require.Equal(t, subjects, binding.Subjects)
	everywhere := manifest[rbacv1.ClusterRole](t, "blueprints/cluster-rights.yaml", "ClusterRole")
	all := manifest[rbacv1.ClusterRoleBinding](t, "blueprints/cluster-rights.yaml", "ClusterRoleBinding")
	require.Equal(t, rules, everywhere.Rules)
	require.Equal(t, rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "ClusterRole", Name: everywhere.Name}, all.RoleRef)
	require.Equal(t, subjects, all.Subjects)
}

func TestTheDeploymentPassesRestrictedPodSecurity(t *testing.T) {
	t.Parallel()
	namespace := manifest[corev1.Namespace](t, "namespace.yaml", "Namespace")
	require.Equal(t, "restricted", namespace.Labels["pod-security.kubernetes.io/enforce"])
	deployment := manifest[appsv1.Deployment](t, "deployment.yaml", "Deployment")
	require.Equal(t, namespace.Name, deployment.Namespace)
	require.Equal(t, int32(1), *deployment.Spec.Replicas)
	require.Equal(t, deployment.Spec.Selector.MatchLabels, deployment.Spec.Template.Labels)
	pod := deployment.Spec.Template.Spec
	require.True(t, *pod.SecurityContext.RunAsNonRoot)
	require.Equal(t, corev1.SeccompProfileTypeRuntimeDefault, pod.SecurityContext.SeccompProfile.Type)
	require.Len(t, pod.Containers, 1)
	c := pod.Containers[0]
	require.False(t, *c.SecurityContext.AllowPrivilegeEscalation)
	require.True(t, *c.SecurityContext.ReadOnlyRootFilesystem)
	require.Equal(t, []corev1.Capability{"ALL"}, c.SecurityContext.Capabilities.Drop)
	require.NotNil(t, c.Resources.Limits.Memory())
	for _, probe := range []*corev1.Probe{c.StartupProbe, c.LivenessProbe, c.ReadinessProbe} {
		require.Equal(t, c.Ports[0].Name, probe.HTTPGet.Port.StrVal)
	}
	for _, v := range pod.Volumes {
		require.Nil(t, v.HostPath)
	}
}

func TestTheKustomizationNamesEveryManifest(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("..", "deploy", "agent", "kustomization.yaml"))
	require.NoError(t, err)
	var kustomization struct {
		APIVersion, Kind string
		Resources        []string
	}
	require.NoError(t, yaml.UnmarshalStrict(text, &kustomization))
	files, err := filepath.Glob(filepath.Join("..", "deploy", "agent", "*.yaml"))
	require.NoError(t, err)
	require.Len(t, kustomization.Resources, len(files)-1)
	for _, file := range kustomization.Resources {
		require.FileExists(t, filepath.Join("..", "deploy", "agent", file))
	}
}
