// Package v1alpha1 holds the words of broker.fluidos.eu/v1alpha1: the objects
// that users apply and read, their defaults and their validation. It decides
// nothing and stores nothing.
//
// +k8s:deepcopy-gen=package
// +k8s:openapi-gen=true
// +k8s:openapi-model-package=eu.fluidos.broker.v1alpha1
// +groupName=broker.fluidos.eu
package v1alpha1
