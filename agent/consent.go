package agent

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/distribution/reference"
	"k8s.io/apimachinery/pkg/util/validation"

	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
)

// anything allows all namespaces or all registries.
const anything = "*"

// systemPrefix begins the namespaces that Kubernetes keeps for itself. They are never meant by anything.
const systemPrefix = "kube-"

// Consent says which blueprints may run in the member cluster. The zero Consent allows none.
type Consent struct {
	// Namespaces in which slices may run, or "*" for all but Kubernetes' own. They must exist.
	Namespaces []string
	// Registries that images may come from, each with or without a path, as
	// registry.example.com/team or docker.io; "*" for all.
	Registries []string
	// ServiceAccountToken gives pods the token of their namespace's default service account.
	ServiceAccountToken bool
}

// given says whether anything is allowed at all.
func (c *Consent) given() bool { return len(c.Namespaces) > 0 && len(c.Registries) > 0 }

func (c *Consent) faults() []error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	for _, namespace := range c.Namespaces {
		if namespace != anything && len(validation.IsDNS1123Label(namespace)) > 0 {
			fault("blueprint namespace %q: must be a namespace's name, or *", namespace)
		}
	}
	for _, registry := range c.Registries {
		if _, err := registryPrefix(registry); registry != anything && err != nil {
			fault("blueprint registry %q: must be a host, with or without a path, as registry.example.com/team, or *", registry)
		}
	}
	if slices.Contains(c.Namespaces, anything) && len(c.Namespaces) > 1 {
		fault("blueprint namespaces %s: * allows all, nothing can stand beside it", strings.Join(c.Namespaces, ","))
	}
	if len(c.Namespaces) > MaxBlueprintNamespaces {
		fault("blueprint namespaces: %d, at most %d; or * for all", len(c.Namespaces), MaxBlueprintNamespaces)
	}
	if len(c.Registries) > MaxBlueprintRegistries {
		fault("blueprint registries: %d, at most %d", len(c.Registries), MaxBlueprintRegistries)
	}
	if len(c.Namespaces) > 0 && len(c.Registries) == 0 {
		fault("blueprint registries: missing; without them no image may run in namespaces %s", strings.Join(c.Namespaces, ","))
	}
	if len(c.Namespaces) == 0 && len(c.Registries) > 0 {
		fault("blueprint namespaces: missing; without them nothing may run, whatever its registry")
	}
	return faults
}

var errNoRegistry = errors.New("no host")

// registryPrefix is a registry as the names of images begin with it.
func registryPrefix(registry string) (string, error) {
	host, _, _ := strings.Cut(registry, "/")
	if !strings.ContainsAny(host, ".:") && host != "localhost" {
		return "", errNoRegistry // a bare word would be taken for a path at docker.io
	}
	const below = "/x/x" // two words: of one alone docker.io makes library/x
	named, err := reference.ParseNormalizedNamed(registry + below)
	if err != nil {
		return "", err
	}
	return strings.TrimSuffix(named.Name(), below), nil
}

// allowsNamespace says whether slices may run in a namespace.
func (c *Consent) allowsNamespace(namespace string) bool {
	return slices.Contains(c.Namespaces, namespace) ||
		slices.Contains(c.Namespaces, anything) && !strings.HasPrefix(namespace, systemPrefix)
}

// scopes are the namespaces whose Deployments are watched; "" for all.
func (c *Consent) scopes() []string {
	if slices.Contains(c.Namespaces, anything) {
		return []string{""}
	}
	return slices.Compact(slices.Sorted(slices.Values(c.Namespaces)))
}

// refusal says why a slice may not run here, and by which flag; empty where it may.
func (c *Consent) refusal(namespace, image string) string {
	if !c.given() {
		return "this cluster runs no blueprints: its agent was started without --blueprint-namespaces"
	}
	if !c.allowsNamespace(namespace) {
		return fmt.Sprintf("namespace %q is not among --blueprint-namespaces %s of this cluster's agent", namespace, strings.Join(c.Namespaces, ","))
	}
	named, err := reference.ParseDockerRef(image)
	if err != nil {
		return fmt.Sprintf("image %q is no image reference", image)
	}
	allowed := slices.ContainsFunc(c.Registries, func(registry string) bool {
		prefix, err := registryPrefix(registry)
		return registry == anything || err == nil && (named.Name() == prefix || strings.HasPrefix(named.Name(), prefix+"/"))
	})
	if !allowed {
		return fmt.Sprintf("image %s is not of --blueprint-registries %s of this cluster's agent", named.Name(), strings.Join(c.Registries, ","))
	}
	return ""
}

// inFull is an image as it is judged and as pods get it: docker.io/library/nginx:1.29 for nginx:1.29. Nodes may take
// a short one for another. What is no reference stays as it is: it is refused.
func inFull(image string) string {
	named, err := reference.ParseDockerRef(image)
	if err != nil {
		return image
	}
	return named.String()
}

// words is the message of the condition BlueprintsAllowed.
func (c *Consent) words() string {
	if !c.given() {
		return "no blueprints: the agent was started without --blueprint-namespaces"
	}
	text := "namespaces " + strings.Join(c.Namespaces, ", ") + "; registries " + strings.Join(c.Registries, ", ")
	if c.ServiceAccountToken {
		text += "; with service account tokens"
	}
	return broker.Clip(text, broker.MaxConditionMessageBytes)
}
