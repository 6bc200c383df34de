// Package e2e tests Bourse from outside, as its users meet it: real Kubernetes control planes rome, paris and berlin
// (package kube), three `bourse server` processes, three `bourse agent` processes with the rights of deploy/agent and
// no others, and kubectl. It knows the product only by its command line and its API: it imports no code of it.
//
// test/e2e.sh builds what is needed and runs it.
package e2e
