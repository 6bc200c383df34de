package exchange

import (
	"context"
	"encoding/json"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
)

// watchSeconds is how long one watch lasts: it ends before requestTimeout would cut it off.
const watchSeconds = int64(10)

// Namespace that requests are about.
func (c *Client) Namespace() string { return c.namespace }

// Blueprint reads one blueprint.
func (c *Client) Blueprint(ctx context.Context, name string) (*broker.Blueprint, error) {
	out := &broker.Blueprint{}
	err := c.api.Get().Resource("blueprints").Namespace(c.namespace).Name(name).Do(ctx).Into(out)
	return out, err
}

// PlanBlueprint asks what would become of a blueprint, given as the fields of its manifest, if it were
// stored: made, or put in the place of the one that there is. warn gets the exchange's warnings.
func (c *Client) PlanBlueprint(ctx context.Context, name string, manifest map[string]any, warn func(string)) (*broker.Blueprint, error) {
	stored, err := c.Blueprint(ctx, name)
	exists := err == nil
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, err
	}
	request := c.api.Post()
	if exists {
		request = c.api.Put().Name(name)
		metadata, _ := manifest["metadata"].(map[string]any)
		metadata["resourceVersion"] = stored.ResourceVersion
	}
	// As it was written: the exchange names field and value of what is wrong with it.
	body, err := json.Marshal(manifest)
	if err != nil {
		return nil, err
	}
	out := &broker.Blueprint{}
	err = request.Resource("blueprints").Namespace(c.namespace).
		Param("dryRun", metav1.DryRunAll).Param("fieldValidation", metav1.FieldValidationStrict).
		SetHeader("Content-Type", "application/json").WarningHandler(warnings(warn)).
		Body(body).Do(ctx).Into(out)
	return out, err
}

// warnings is a rest.WarningHandler.
type warnings func(string)

func (w warnings) HandleWarningHeader(_ int, _, text string) { w(text) }

// WatchBlueprint calls see with the blueprint as it is, and again after each change, until see says
// that it is done, ctx ends, or the blueprint is gone.
func (c *Client) WatchBlueprint(ctx context.Context, name string, see func(*broker.Blueprint) (done bool, err error)) error {
	for {
		b, err := c.Blueprint(ctx, name)
		if err != nil {
			return err
		}
		for err == nil {
			var done bool
			if done, err = see(b); done || err != nil {
				return err
			}
			b, err = c.nextBlueprint(ctx, b)
		}
		if !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
			return err
		}
	}
}

// nextBlueprint waits for the next change.
func (c *Client) nextBlueprint(ctx context.Context, b *broker.Blueprint) (*broker.Blueprint, error) {
	seconds := watchSeconds
	options := &metav1.ListOptions{
		Watch: true, TimeoutSeconds: &seconds, ResourceVersion: b.ResourceVersion,
		FieldSelector: fields.OneTermEqualSelector("metadata.name", b.Name).String(),
	}
	for {
		next, err := c.watchOnce(ctx, options)
		if next != nil || err != nil {
			return next, err
		}
	}
}

// watchOnce returns nil where nothing happened while the watch lasted.
func (c *Client) watchOnce(ctx context.Context, options *metav1.ListOptions) (*broker.Blueprint, error) {
	w, err := c.api.Get().Resource("blueprints").Namespace(c.namespace).VersionedParams(options, c.params).Watch(ctx)
	if err != nil {
		return nil, err
	}
	defer w.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case event, open := <-w.ResultChan():
			if !open {
				return nil, context.Cause(ctx)
			}
			b, ok := event.Object.(*broker.Blueprint)
			switch {
			case event.Type == watch.Error:
				return nil, apierrors.FromObject(event.Object)
			case !ok || event.Type == watch.Bookmark:
			case event.Type == watch.Deleted:
				return nil, fmt.Errorf("blueprint %s was deleted", b.Name)
			default:
				return b, nil
			}
		}
	}
}

// operation of a JSON patch.
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// SetArtifacts gives slices of a blueprint, by their index, other artifacts. It fails where the spec is
// not the one that was read any more; that its status changes meanwhile does not matter.
func (c *Client) SetArtifacts(ctx context.Context, b *broker.Blueprint, artifacts map[int]string) (*broker.Blueprint, error) {
	patch := []operation{{"test", "/metadata/generation", b.Generation}}
	for i := range b.Spec.Slices {
		if artifact, ok := artifacts[i]; ok {
			patch = append(patch, operation{"replace", fmt.Sprintf("/spec/slices/%d/artifact", i), artifact})
		}
	}
	body, err := json.Marshal(patch)
	if err != nil {
		return nil, err
	}
	out := &broker.Blueprint{}
	err = c.api.Patch(types.JSONPatchType).Resource("blueprints").Namespace(c.namespace).Name(b.Name).Body(body).Do(ctx).Into(out)
	if !apierrors.IsInvalid(err) {
		return out, err
	}
	if now, readErr := c.Blueprint(ctx, b.Name); readErr == nil && now.Generation != b.Generation {
		return nil, apierrors.NewConflict(broker.Resource("blueprints"), b.Name,
			fmt.Errorf("its spec was changed meanwhile (generation %d is now %d): look at it and try again", b.Generation, now.Generation))
	}
	return nil, err
}
