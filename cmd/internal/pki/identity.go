package pki

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// OrgServer marks the certificate of a broker node.
const OrgServer = "bourse:server"

const (
	orgPrefix          = "bourse:"
	orgNamespacePrefix = "bourse:namespace:"
)

// Identity is who a client certificate speaks for.
type Identity struct {
	Name       string   // common name, as the API shows it
	Roles      []string // "admin", "viewer", "requester:rome", "provider:paris", "agent:rome"
	Namespaces []string // a requester's or agent's; the first is the context's default
}

// ParseRole reads what `--for` takes: one role, or several separated by commas.
// Namespaces default to the ids of the roles.
func ParseRole(roles string, namespaces []string) (Identity, error) {
	identity := Identity{Name: strings.ReplaceAll(roles, ",", "+"), Namespaces: slices.Clone(namespaces)}
	for role := range strings.SplitSeq(roles, ",") {
		kind, id, hasID := strings.Cut(role, ":")
		switch kind {
		case "admin", "viewer":
			if hasID {
				return Identity{}, fmt.Errorf("role %q: %s takes no id", role, kind)
			}
		case "requester", "provider", "agent":
			if problems := validation.IsDNS1123Label(id); len(problems) > 0 {
				return Identity{}, fmt.Errorf("role %q: the id %q must be a DNS label: %s", role, id, problems[0])
			}
			if len(namespaces) == 0 && kind != "provider" && !slices.Contains(identity.Namespaces, id) {
				identity.Namespaces = append(identity.Namespaces, id)
			}
		default:
			return Identity{}, fmt.Errorf("role %q: must be admin, viewer, requester:<id>, provider:<id> or agent:<id>", role)
		}
		identity.Roles = append(identity.Roles, role)
	}
	for _, namespace := range namespaces {
		if problems := validation.IsDNS1123Label(namespace); len(problems) > 0 {
			return Identity{}, fmt.Errorf("namespace %q: %s", namespace, problems[0])
		}
	}
	return identity, nil
}

func (i Identity) organizations() []string {
	var orgs []string
	for _, role := range i.Roles {
		orgs = append(orgs, orgPrefix+role)
	}
	for _, namespace := range i.Namespaces {
		orgs = append(orgs, orgNamespacePrefix+namespace)
	}
	return orgs
}
