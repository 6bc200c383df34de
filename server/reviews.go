package server

import (
	"context"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
)

// review is one of the Self* kinds: a question about oneself, answered and never stored.
type review struct {
	kind, singular string
	empty          func() runtime.Object
	answer         func(ctx context.Context, u user.Info, question runtime.Object) error
}

func (r review) New() runtime.Object     { return r.empty() }
func (review) Destroy()                  {}
func (review) NamespaceScoped() bool     { return false }
func (r review) GetSingularName() string { return r.singular }

func (r review) Create(ctx context.Context, obj runtime.Object, validate rest.ValidateObjectFunc, _ *metav1.CreateOptions) (runtime.Object, error) {
	u, ok := request.UserFrom(ctx)
	if !ok {
		return nil, apierrors.NewBadRequest("no user is known of this request")
	}
	if validate != nil {
		if err := validate(ctx, obj.DeepCopyObject()); err != nil {
			return nil, err
		}
	}
	return obj, r.answer(ctx, u, obj)
}

func newAuthenticationReviews() map[string]rest.Storage {
	return map[string]rest.Storage{"selfsubjectreviews": review{
		"SelfSubjectReview", "selfsubjectreview",
		func() runtime.Object { return &authenticationv1.SelfSubjectReview{} },
		func(_ context.Context, u user.Info, q runtime.Object) error {
			extra := map[string]authenticationv1.ExtraValue{}
			for key, values := range u.GetExtra() {
				extra[key] = values
			}
			q.(*authenticationv1.SelfSubjectReview).Status = authenticationv1.SelfSubjectReviewStatus{
				UserInfo: authenticationv1.UserInfo{Username: u.GetName(), UID: u.GetUID(), Groups: u.GetGroups(), Extra: extra},
			}
			return nil
		},
	}}
}

func newAuthorizationReviews() map[string]rest.Storage {
	return map[string]rest.Storage{
		"selfsubjectaccessreviews": review{
			"SelfSubjectAccessReview", "selfsubjectaccessreview",
			func() runtime.Object { return &authorizationv1.SelfSubjectAccessReview{} }, answerAccess,
		},
		"selfsubjectrulesreviews": review{
			"SelfSubjectRulesReview", "selfsubjectrulesreview",
			func() runtime.Object { return &authorizationv1.SelfSubjectRulesReview{} }, answerRules,
		},
	}
}

func answerAccess(ctx context.Context, u user.Info, q runtime.Object) error {
	question := q.(*authorizationv1.SelfSubjectAccessReview)
	attributes := authorizer.AttributesRecord{User: u}
	switch spec := question.Spec; {
	case spec.ResourceAttributes != nil && spec.NonResourceAttributes == nil:
		of := spec.ResourceAttributes
		attributes.ResourceRequest = true
		attributes.Verb, attributes.Namespace, attributes.Name = of.Verb, of.Namespace, of.Name
		attributes.APIGroup, attributes.APIVersion = of.Group, of.Version
		attributes.Resource, attributes.Subresource = of.Resource, of.Subresource
		attributes.FieldSelectorRequirements, attributes.FieldSelectorParsingErr = fieldRequirements(of.FieldSelector)
	case spec.NonResourceAttributes != nil && spec.ResourceAttributes == nil:
		attributes.Verb, attributes.Path = spec.NonResourceAttributes.Verb, spec.NonResourceAttributes.Path
	default:
		return apierrors.NewBadRequest("spec: exactly one of resourceAttributes and nonResourceAttributes is needed")
	}
	decided, reason, err := roles{}.Authorize(ctx, attributes)
	question.Status = authorizationv1.SubjectAccessReviewStatus{
		Allowed: decided == authorizer.DecisionAllow, Denied: decided == authorizer.DecisionDeny, Reason: reason,
	}
	return err
}

// fieldRequirements: only what can be a single value narrows a question; the rest is left out, as
// the API asks (a wider question is the safe one).
func fieldRequirements(of *authorizationv1.FieldSelectorAttributes) (fields.Requirements, error) {
	if of == nil {
		return nil, nil
	}
	if of.RawSelector != "" {
		if len(of.Requirements) > 0 {
			return nil, fmt.Errorf("rawSelector and requirements exclude each other")
		}
		selector, err := fields.ParseSelector(of.RawSelector)
		if err != nil {
			return nil, fmt.Errorf("rawSelector %q: %w", of.RawSelector, err)
		}
		return selector.Requirements(), nil
	}
	var requirements fields.Requirements
	for _, q := range of.Requirements {
		if q.Operator == metav1.FieldSelectorOpIn && len(q.Values) == 1 {
			requirements = append(requirements, fields.Requirement{Operator: selection.Equals, Field: q.Key, Value: q.Values[0]})
		}
	}
	return requirements, nil
}

func answerRules(ctx context.Context, u user.Info, q runtime.Object) error {
	question := q.(*authorizationv1.SelfSubjectRulesReview)
	if question.Spec.Namespace == "" {
		return apierrors.NewBadRequest("spec.namespace: a namespace is needed")
	}
	resources, paths, incomplete, err := roles{}.RulesFor(ctx, u, question.Spec.Namespace)
	if err != nil {
		return err
	}
	status := authorizationv1.SubjectRulesReviewStatus{
		Incomplete: incomplete, ResourceRules: []authorizationv1.ResourceRule{}, NonResourceRules: []authorizationv1.NonResourceRule{},
	}
	if incomplete {
		status.EvaluationError = "lists and watches with a field selector on one's own cluster are not shown"
	}
	for _, r := range resources {
		status.ResourceRules = append(status.ResourceRules, authorizationv1.ResourceRule{
			Verbs: r.GetVerbs(), APIGroups: r.GetAPIGroups(), Resources: r.GetResources(), ResourceNames: r.GetResourceNames(),
		})
	}
	for _, p := range paths {
		status.NonResourceRules = append(status.NonResourceRules, authorizationv1.NonResourceRule{Verbs: p.GetVerbs(), NonResourceURLs: p.GetNonResourceURLs()})
	}
	question.Status = status
	return nil
}
