#!/usr/bin/env bash
# Generates what Go can't derive from the API types: deep copies, model names, and the OpenAPI
# schemas (trimmed to what the exchange serves). `make generate` runs it. With --check, as lint
# runs it, it changes nothing and fails where something would change. Needs Go only: both
# generators are tool directives in go.mod.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

generated=(api/broker/v1alpha1/zz_generated.deepcopy.go api/broker/v1alpha1/zz_generated.model_name.go api/openapi/zz_generated.openapi.go)
if [[ "${1:-}" == --check ]]; then
  before=$(mktemp -d)
  tar cf "$before/files.tar" "${generated[@]}"
  # Whatever happens, what was there is there again.
  trap 'tar xf "$before/files.tar" && rm -r "$before"' EXIT
fi

module=github.com/bourse-dev/bourse
types=$module/api/broker/v1alpha1
upstream=(
  k8s.io/api/core/v1
  k8s.io/api/authentication/v1
  k8s.io/api/authorization/v1
  k8s.io/apimachinery/pkg/apis/meta/v1
  k8s.io/apimachinery/pkg/api/resource
  k8s.io/apimachinery/pkg/runtime
  k8s.io/apimachinery/pkg/util/intstr
  k8s.io/apimachinery/pkg/version
)

go tool deepcopy-gen --go-header-file /dev/null --output-file zz_generated.deepcopy.go "$types"

readonly_packages=()
for package in "${upstream[@]}"; do readonly_packages+=(--readonly-pkg "$package"); done
go tool openapi-gen --go-header-file /dev/null --report-filename /dev/null \
  --output-dir api/openapi --output-pkg "$module/api/openapi" --output-file zz_generated.openapi.go \
  --output-model-name-file zz_generated.model_name.go "${readonly_packages[@]}" \
  "$types" "${upstream[@]}"

go run ./api/openapi/trim api/openapi/zz_generated.openapi.go \
  core/v1.Namespace core/v1.NamespaceList core/v1.Event core/v1.EventList \
  authentication/v1.SelfSubjectReview authorization/v1.SelfSubjectAccessReview authorization/v1.SelfSubjectRulesReview

if [[ "${1:-}" == --check ]]; then
  for file in "${generated[@]}"; do
    if ! tar xfO "$before/files.tar" "$file" | cmp -s - "$file"; then
      echo "$file is not up to date: run make generate" >&2
      stale=yes
    fi
  done
  [[ -z "${stale:-}" ]] || exit 1
fi
