package v1alpha1

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const digest = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

func TestAnArtifactStandsForOneImage(t *testing.T) {
	t.Parallel()
	registries := ArtifactRegistries{
		"com.example":     "registry.example.com/team",
		"com.example.web": "web.example.com:5000",
		AnyGroup:          "rest.example.com",
	}
	require.NoError(t, registries.Check())
	for artifact, image := range map[string]string{
		"nginx":                                  "docker.io/library/nginx:latest",
		"nginx:1.29":                             "docker.io/library/nginx:1.29",
		"team/web:2":                             "docker.io/team/web:2",
		"localhost:5000/web:2":                   "localhost:5000/web:2",
		"registry.example.com/a/b@" + digest:     "registry.example.com/a/b@" + digest,
		"registry.example.com/a/b:1.2@" + digest: "registry.example.com/a/b@" + digest,
		"com.example:front:1.2":                  "registry.example.com/team/com.example/front:1.2",
		"com.example.app:front:1.2":              "registry.example.com/team/com.example.app/front:1.2",
		"com.example.web:front:1.2":              "web.example.com:5000/com.example.web/front:1.2",
		"com.examples:front:1.2":                 "rest.example.com/com.examples/front:1.2",
	} {
		got, err := registries.Image(artifact)
		require.NoError(t, err, artifact)
		require.Equal(t, image, got, artifact)
		require.NoError(t, CheckArtifact(artifact))
	}
	_, err := ArtifactRegistries{"com.example": "registry.example.com"}.Image("org.example:front:1.2")
	require.ErrorIs(t, err, ErrUnmapped)
	require.ErrorContains(t, err, `"org.example"`)
}

func TestWhatIsNoArtifactIsSaidSo(t *testing.T) {
	t.Parallel()
	for artifact, why := range map[string]string{
		"":                            "group:name:version",
		"Nginx":                       "Nginx",
		"nginx:":                      "nginx:",
		"nginx:1:2:3":                 "nginx:1:2:3",
		"nginx@sha256:12":             "sha256:12",
		"nginx@md5:0123":              "md5",
		"https://example.com/x":       "https://example.com/x",
		" nginx":                      " nginx",
		strings.Repeat("n", 300):      "nnn",
		strings.Repeat("0123", 64/4):  "0123", // an image's id says nothing of where it lies
		"Com.Example:front:1":         "group",
		"com.example:Front:1":         "name",
		"com.example:front:":          "version",
		"com.example:front:1.2 final": "version",
		"::":                          "group",
	} {
		err := CheckArtifact(artifact)
		require.ErrorIs(t, err, ErrMalformed, "%q", artifact)
		require.ErrorContains(t, err, why)
		_, err = ArtifactRegistries{AnyGroup: "registry.example.com"}.Image(artifact)
		require.ErrorIs(t, err, ErrMalformed, "%q", artifact)
	}
}

func TestAMappingThatLeadsNowhereIsRefused(t *testing.T) {
	t.Parallel()
	for group, registry := range map[string]string{
		"Com.Example":     "registry.example.com",
		"com.example":     "registry.example.com/team/", // would be team//com.example
		"com.example.web": "https://registry.example.com",
		"*":               "",
		"org.example":     "registry.example.com/Team",
	} {
		require.ErrorIs(t, ArtifactRegistries{group: registry}.Check(), ErrMalformed, "%s=%s", group, registry)
	}
}
