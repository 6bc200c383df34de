package v1alpha1

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/distribution/reference"
)

// ErrUnmapped says that no registry is configured for the group of an artifact's coordinates.
var ErrUnmapped = errors.New("no registry is mapped")

// coordinates are an artifact as group:name:version. A group is lower case, as are the paths of
// registries; a version is a tag.
//
// +k8s:deepcopy-gen=false
// +k8s:openapi-gen=false
type coordinates struct {
	group, name, version string
}

// AnyGroup maps the groups that no other entry of ArtifactRegistries does.
const AnyGroup = "*"

// ArtifactRegistries says where artifacts with coordinates lie: a group, or the first words of one
// ("com.example" is also that of com.example.web), to a registry with or without a path. Part of
// the servers' configuration, no word of the API.
//
// +k8s:deepcopy-gen=false
// +k8s:openapi-gen=false
type ArtifactRegistries map[string]string

var (
	groupPattern   = regexp.MustCompile(`^[a-z0-9]+([._-][a-z0-9]+)*$`)
	versionPattern = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$`)
)

// coordinatesOf splits group:name:version; false where the artifact is an image reference. A
// reference with two colons has a slash or a digest.
func coordinatesOf(artifact string) (coordinates, bool) {
	parts := strings.Split(artifact, ":")
	if len(parts) != 3 || strings.ContainsAny(artifact, "/@") {
		return coordinates{}, false
	}
	return coordinates{group: parts[0], name: parts[1], version: parts[2]}, true
}

func (c coordinates) fault() error {
	switch {
	case !groupPattern.MatchString(c.group):
		return fmt.Errorf("group %q %w: want lower case words, as com.example", clip(c.group), ErrMalformed)
	case !groupPattern.MatchString(c.name):
		return fmt.Errorf("name %q %w: want lower case words, as web-front", clip(c.name), ErrMalformed)
	case !versionPattern.MatchString(c.version):
		return fmt.Errorf("version %q %w: want letters, digits, dots and dashes, as 1.4.2", clip(c.version), ErrMalformed)
	}
	return nil
}

// CheckArtifact says what is wrong with an artifact, be it a reference or coordinates.
func CheckArtifact(artifact string) error {
	if c, ok := coordinatesOf(artifact); ok {
		return c.fault()
	}
	_, err := imageReference(artifact)
	return err
}

// Image is the image that an artifact stands for, in full: docker.io/library/nginx:1.29 for
// nginx:1.29. ErrUnmapped where the artifact is coordinates of a group that has no registry.
func (m ArtifactRegistries) Image(artifact string) (string, error) {
	c, ok := coordinatesOf(artifact)
	if !ok {
		return imageReference(artifact)
	}
	if err := c.fault(); err != nil {
		return "", err
	}
	registry, ok := m.registryOf(c.group)
	if !ok {
		return "", fmt.Errorf("%w for group %q (blueprint-registries)", ErrUnmapped, c.group)
	}
	return imageReference(registry + "/" + c.group + "/" + c.name + ":" + c.version)
}

// registryOf the longest entry that is the group or the first words of it.
func (m ArtifactRegistries) registryOf(group string) (string, bool) {
	for prefix := group; ; {
		if registry, ok := m[prefix]; ok {
			return registry, true
		}
		end := strings.LastIndexByte(prefix, '.')
		if end < 0 {
			registry, ok := m[AnyGroup]
			return registry, ok
		}
		prefix = prefix[:end]
	}
}

// Check says what is wrong with the mapping.
func (m ArtifactRegistries) Check() error {
	for _, group := range sortedNames(m) {
		if group != AnyGroup && !groupPattern.MatchString(group) {
			return fmt.Errorf("group %q %w: want lower case words, as com.example, or *", clip(group), ErrMalformed)
		}
		registry := m[group]
		if named, err := reference.ParseNamed(registry + "/x"); err != nil || !reference.IsNameOnly(named) {
			return fmt.Errorf("registry %q of %s %w: want a host and maybe a path, as registry.example.com/team", clip(registry), group, ErrMalformed)
		}
	}
	return nil
}

// imageReference in full, with the tag latest where it names neither tag nor digest.
func imageReference(artifact string) (string, error) {
	named, err := reference.ParseDockerRef(artifact)
	if err != nil {
		return "", fmt.Errorf("%q %w: want an image, as registry.example.com/team/web:1.4.2, or group:name:version (%w)", clip(artifact), ErrMalformed, err)
	}
	return named.String(), nil
}
