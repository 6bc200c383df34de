package server

import (
	"context"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
)

// roles is the authorizer: deny by default. It sees the request and never the object, so it lets
// through what a role may do to *some* object of that name or selector; whose object it is, is
// checked with the object in hand by ownership and by Get.
//
// "Its own" in a list or watch means: the request carries a field selector on the role's own ID.
type roles struct{}

func (roles) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	r := roleOf(a.GetUser())
	if !a.IsResourceRequest() {
		return decision(mayPath(r, a.GetVerb(), a.GetPath())), "", nil
	}
	switch {
	case a.GetSubresource() == "explain" && !r.seesDecisions():
		return authorizer.DecisionDeny, "a certificate of an agent does not show how it was decided", nil
	case r.admin, isSelfReview(a), r.viewer && a.IsReadOnly():
		return authorizer.DecisionAllow, "", nil
	case a.GetAPIGroup() == "" && (a.GetResource() == "events" || a.GetResource() == "namespaces"):
		return decision(r.mayCore(a)), "", nil
	case a.GetAPIGroup() != broker.GroupName:
		return authorizer.DecisionDeny, "", nil
	case a.GetResource() == "reservations":
		allowed, reason := r.mayReservations(a)
		return decision(allowed), reason, nil
	case a.GetResource() == "reservationbatches":
		return decision(r.mayBatches(a)), "", nil
	case a.GetResource() == "clusteradvertisements":
		allowed, reason := r.mayAdvertisements(a)
		return decision(allowed), reason, nil
	case a.GetResource() == "blueprints":
		return decision(r.mayBlueprints(a)), "", nil
	case a.GetResource() == "slices":
		allowed, reason := r.maySlices(a)
		return decision(allowed), reason, nil
	}
	return authorizer.DecisionDeny, "", nil
}

func decision(allowed bool) authorizer.Decision {
	if allowed {
		return authorizer.DecisionAllow
	}
	return authorizer.DecisionDeny
}

// readablePaths are discovery and what it needs: whoever has a certificate may look.
var readablePaths = []string{"/api", "/apis", "/openapi", "/version", "/livez", "/readyz", "/healthz", "/leaderz"}

func mayPath(r role, verb, path string) bool {
	if r.admin {
		return true
	}
	if verb != "get" && verb != "head" {
		return false
	}
	for _, readable := range readablePaths {
		if path == readable || strings.HasPrefix(path, readable+"/") {
			return true
		}
	}
	switch {
	case path == "/":
		return true
	case path == "/metrics":
		return r.viewer || r.server
	case path == pathSnapshot: // all objects of everybody
		return false
	case strings.HasPrefix(path, pathAdmin):
		return r.viewer
	}
	return false
}

func isSelfReview(a authorizer.Attributes) bool {
	if a.GetVerb() != "create" {
		return false
	}
	switch a.GetAPIGroup() {
	case authenticationv1.GroupName:
		return a.GetResource() == "selfsubjectreviews"
	case authorizationv1.GroupName:
		return a.GetResource() == "selfsubjectaccessreviews" || a.GetResource() == "selfsubjectrulesreviews"
	}
	return false
}

// mayCore: a requester sees its own namespaces and what happened in them.
func (r role) mayCore(a authorizer.Attributes) bool {
	if !a.IsReadOnly() {
		return false
	}
	if a.GetResource() == "namespaces" {
		return a.GetVerb() == "get" && r.namespaces[a.GetName()]
	}
	return r.namespaces[a.GetNamespace()] && len(r.requesters) > 0
}

func (r role) mayReservations(a authorizer.Attributes) (bool, string) {
	verb, sub, ours := a.GetVerb(), a.GetSubresource(), r.namespaces[a.GetNamespace()] && len(r.requesters) > 0
	switch {
	case sub == "explain":
		return verb == "get" && ours, ""
	case sub == "status":
		// An agent's get and its conditions: whose, is checked with the object.
		return verb == "get" && (ours || len(r.agents) > 0) || (verb == "update" || verb == "patch") && len(r.agents) > 0, ""
	case sub != "":
		return false, ""
	}
	switch verb {
	case "list", "watch":
		if ours || selects(a, fieldRequesterID, r.requesters) ||
			selects(a, fieldRequesterID, r.agents) || selects(a, fieldTargetClusterID, r.agents) {
			return true, ""
		}
		return false, "a list or watch of what is not yours alone needs --field-selector " +
			fieldRequesterID + "=<your cluster> (agents also " + fieldTargetClusterID + "=<your cluster>)"
	case "get":
		return ours || len(r.agents) > 0, ""
	case "create", "update", "patch", "delete":
		return ours, ""
	case "deletecollection":
		if ours && selects(a, fieldRequesterID, r.requesters) {
			return true, ""
		}
		return false, "deleting many needs --field-selector " + fieldRequesterID + "=<your cluster>"
	}
	return false, ""
}

// mayBatches: a requester has the batches of its own namespaces; their items are checked with the object.
func (r role) mayBatches(a authorizer.Attributes) bool {
	if a.GetSubresource() != "" || !r.namespaces[a.GetNamespace()] || len(r.requesters) == 0 {
		return false
	}
	switch a.GetVerb() {
	case "get", "list", "watch", "create", "update", "patch", "delete":
		return true
	}
	return false
}

func (r role) mayAdvertisements(a authorizer.Attributes) (bool, string) {
	id, _ := broker.ClusterIDOf(a.GetName())
	agent, provider := r.agents[id], r.providers[id]
	switch a.GetSubresource() {
	case "":
	case "facts":
		return a.GetVerb() == "create" && agent, ""
	case "status":
		return a.GetVerb() == "get" && (agent || provider) || (a.GetVerb() == "update" || a.GetVerb() == "patch") && agent, ""
	default:
		return false, ""
	}
	switch a.GetVerb() {
	case "get":
		return agent || provider, ""
	case "create":
		// The name is in the body: ownership looks.
		return len(r.agents) > 0, ""
	case "update", "patch":
		return provider, ""
	case "list", "watch":
		if agent || provider || selects(a, fieldClusterID, r.agents) || selects(a, fieldClusterID, r.providers) {
			return true, ""
		}
		return false, "a list or watch needs --field-selector " + fieldClusterID + "=<your cluster>"
	}
	return false, ""
}

// mayBlueprints: a blueprint is its namespace's. Agents have no business with one: they see slices.
func (r role) mayBlueprints(a authorizer.Attributes) bool {
	if !r.namespaces[a.GetNamespace()] || len(r.requesters) == 0 {
		return false
	}
	if a.GetSubresource() != "" {
		return a.GetSubresource() == "status" && a.GetVerb() == "get"
	}
	switch a.GetVerb() {
	case "get", "list", "watch", "create", "update", "patch", "delete", "deletecollection":
		return true
	}
	return false
}

// maySlices: who may see a namespace's blueprints sees what became of them; an agent sees and reports
// on its own cluster's.
func (r role) maySlices(a authorizer.Attributes) (bool, string) {
	verb, sub, ours := a.GetVerb(), a.GetSubresource(), r.namespaces[a.GetNamespace()] && len(r.requesters) > 0
	switch {
	case sub == "status" && (verb == "update" || verb == "patch"):
		return len(r.agents) > 0, ""
	case verb == "get" && (sub == "" || sub == "status"):
		return ours || len(r.agents) > 0, ""
	case sub == "" && (verb == "list" || verb == "watch"):
		if ours || selects(a, fieldClusterID, r.agents) {
			return true, ""
		}
		return false, "a list or watch of what is not yours alone needs --field-selector " + fieldClusterID + "=<your cluster>"
	}
	return false, ""
}

// selects says whether the request can only see objects whose field is one of the ids.
func selects(a authorizer.Attributes, name string, ids set) bool {
	requirements, err := a.GetFieldSelector()
	if err != nil {
		return false
	}
	for _, q := range requirements {
		if q.Field == name && isEquality(q) && ids[q.Value] {
			return true
		}
	}
	return false
}

func isEquality(q fields.Requirement) bool {
	return q.Operator == selection.Equals || q.Operator == selection.DoubleEquals
}

func (a roles) ConditionsAwareAuthorize(ctx context.Context, attributes authorizer.Attributes) authorizer.ConditionsAwareDecision {
	return authorizer.ConditionsAwareDecisionFromParts(a.Authorize(ctx, attributes))
}

func (roles) EvaluateConditions(context.Context, authorizer.ConditionsAwareDecision, authorizer.ConditionsData) (authorizer.Decision, string, error) {
	return authorizer.DecisionDeny, "", authorizer.ErrorConditionEvaluationNotSupported
}

var (
	_ authorizer.Authorizer   = roles{}
	_ authorizer.RuleResolver = roles{}
)

// RulesFor lists what a user may do in a namespace, for kubectl auth can-i --list. Selectors can't be
// expressed there, so rules that need one are left out and the list says that it is incomplete.
func (roles) RulesFor(_ context.Context, u user.Info, namespace string) ([]authorizer.ResourceRuleInfo, []authorizer.NonResourceRuleInfo, bool, error) {
	r := roleOf(u)
	paths := []authorizer.NonResourceRuleInfo{&authorizer.DefaultNonResourceRuleInfo{Verbs: []string{"get"}, NonResourceURLs: readablePaths}}
	rules := []authorizer.ResourceRuleInfo{
		rule(authenticationv1.GroupName, []string{"create"}, "selfsubjectreviews"),
		rule(authorizationv1.GroupName, []string{"create"}, "selfsubjectaccessreviews", "selfsubjectrulesreviews"),
	}
	switch {
	case r.admin:
		rules = append(rules, rule("*", []string{"*"}, "*"))
		paths = append(paths, &authorizer.DefaultNonResourceRuleInfo{Verbs: []string{"*"}, NonResourceURLs: []string{"*"}})
		return rules, paths, false, nil
	case r.viewer:
		rules = append(rules, rule("*", []string{"get", "list", "watch"}, "*"))
		paths = append(paths, &authorizer.DefaultNonResourceRuleInfo{Verbs: []string{"get"}, NonResourceURLs: []string{"/metrics", pathAdmin + "*"}})
	}
	if len(r.requesters) > 0 && r.namespaces[namespace] {
		rules = append(rules,
			rule(broker.GroupName, []string{"get", "list", "watch", "create", "update", "patch", "delete"}, "reservations", "reservationbatches"),
			rule(broker.GroupName, []string{"get"}, "reservations/status"),
			rule(broker.GroupName, []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"}, "blueprints"),
			rule(broker.GroupName, []string{"get"}, "blueprints/status", "slices/status"),
			rule(broker.GroupName, []string{"get", "list", "watch"}, "slices"),
			rule("", []string{"get", "list", "watch"}, "events"),
			named(rule("", []string{"get"}, "namespaces"), namespace))
		if r.seesDecisions() {
			rules = append(rules, rule(broker.GroupName, []string{"get"}, "reservations/explain"))
		}
	}
	for id := range r.providers {
		rules = append(rules, named(rule(broker.GroupName, []string{"get", "update", "patch"}, "clusteradvertisements"), broker.AdvertisementName(id)))
	}
	for id := range r.agents {
		rules = append(rules,
			rule(broker.GroupName, []string{"create"}, "clusteradvertisements"),
			rule(broker.GroupName, []string{"get"}, "reservations", "slices"),
			rule(broker.GroupName, []string{"get", "update", "patch"}, "reservations/status", "slices/status"),
			named(rule(broker.GroupName, []string{"get"}, "clusteradvertisements"), broker.AdvertisementName(id)),
			named(rule(broker.GroupName, []string{"create"}, "clusteradvertisements/facts"), broker.AdvertisementName(id)),
			named(rule(broker.GroupName, []string{"get", "update", "patch"}, "clusteradvertisements/status"), broker.AdvertisementName(id)))
	}
	incomplete := len(r.requesters)+len(r.providers)+len(r.agents) > 0
	return rules, paths, incomplete, nil
}

func rule(group string, verbs []string, resources ...string) *authorizer.DefaultResourceRuleInfo {
	return &authorizer.DefaultResourceRuleInfo{APIGroups: []string{group}, Verbs: verbs, Resources: resources}
}

func named(r *authorizer.DefaultResourceRuleInfo, names ...string) *authorizer.DefaultResourceRuleInfo {
	r.ResourceNames = names
	return r
}
