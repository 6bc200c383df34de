// Package openapi holds the generated OpenAPI schemas of everything the exchange serves: its own
// kinds, and what it borrows of Kubernetes (Namespace, Event, the Self* reviews, meta/v1).
// api/generate.sh writes it; nothing here is written by hand but this comment.
package openapi
