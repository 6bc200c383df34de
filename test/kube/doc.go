// Package kube starts real Kubernetes control planes on one machine for tests: etcd, kube-apiserver,
// kube-controller-manager and kube-scheduler as they are shipped, and kwok in the place of the kubelets.
// Everything but the containers is real: admission, RBAC, scheduling, garbage collection, disruption budgets,
// tokens, resize. Several clusters live side by side in one process.
//
// The programs come from build.sh; the package never builds them. It knows nothing of Bourse: agents, brokers and
// what is asserted about them belong to the tests that use it. It runs on Linux only.
package kube
