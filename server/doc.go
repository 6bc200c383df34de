// Package server is the HTTP side of a broker node: the Kubernetes-style API on the k8s.io/apiserver
// library, who may do what, the admin endpoints, health and metrics. Every node serves all of it.
//
// It decides nothing about capacity and keeps no state of its own: objects come from and go to
// store's storage.Interface, decisions are the reservation room's, leadership is cluster's.
package server
