package agent

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestConsentAllowsWhatItNamesAndNothingElse(t *testing.T) {
	t.Parallel()
	some := Consent{Namespaces: []string{"shop", "team-a"}, Registries: []string{"registry.example.com/team", "docker.io", "localhost:5000"}}
	all := Consent{Namespaces: []string{"*"}, Registries: []string{"*"}}
	for name, c := range map[string]struct {
		consent          Consent
		namespace, image string
		refusal          string // a part; empty: allowed
	}{
		"none is given":                     {Consent{}, "shop", "nginx", "started without --blueprint-namespaces"},
		"namespaces without registries":     {Consent{Namespaces: []string{"shop"}}, "shop", "nginx", "--blueprint-namespaces"},
		"a named namespace and registry":    {some, "shop", "docker.io/library/nginx:1.29", ""},
		"a short name":                      {some, "team-a", "nginx", ""},
		"another namespace":                 {some, "default", "nginx", `namespace "default" is not among --blueprint-namespaces shop,team-a`},
		"a path below the named one":        {some, "shop", "registry.example.com/team/sub/web:1", ""},
		"the named path itself":             {some, "shop", "registry.example.com/team:1", ""},
		"a path that only begins like it":   {some, "shop", "registry.example.com/teammate/web:1", "is not of --blueprint-registries"},
		"another path of the host":          {some, "shop", "registry.example.com/web:1", "is not of --blueprint-registries"},
		"a host that only begins like it":   {some, "shop", "docker.io.evil.example/web", "is not of --blueprint-registries"},
		"a digest":                          {some, "shop", "docker.io/library/nginx@sha256:" + strings.Repeat("a", 64), ""},
		"a port":                            {some, "shop", "localhost:5000/web:1", ""},
		"another port":                      {some, "shop", "localhost:5001/web:1", "is not of --blueprint-registries"},
		"a tag beside a digest":             {some, "shop", "nginx:1@sha256:" + strings.Repeat("a", 64), ""},
		"no reference":                      {some, "shop", "No Image", "is no image reference"},
		"everything":                        {all, "shop", "quay.io/x/y:1", ""},
		"everything but Kubernetes' own":    {all, "kube-system", "quay.io/x/y", `namespace "kube-system"`},
		"Kubernetes' own where it is named": {Consent{Namespaces: []string{"kube-system"}, Registries: []string{"*"}}, "kube-system", "quay.io/x/y:1", ""},
		"the other name of Docker's":        {some, "shop", "index.docker.io/library/nginx:1", ""},
		"a short name of another registry":  {Consent{Namespaces: []string{"shop"}, Registries: []string{"quay.io"}}, "shop", "nginx:1.27", "image docker.io/library/nginx is not of --blueprint-registries quay.io"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			refusal := c.consent.refusal(c.namespace, c.image)
			if c.refusal == "" {
				require.Empty(t, refusal)
				return
			}
			require.Contains(t, refusal, c.refusal)
		})
	}
}

func TestBadConsentIsRefusedByName(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		consent Consent
		faults  []string
	}{
		"no namespace's name":       {Consent{Namespaces: []string{"Shop!"}, Registries: []string{"*"}}, []string{`blueprint namespace "Shop!"`}},
		"a URL":                     {Consent{Namespaces: []string{"shop"}, Registries: []string{"https://docker.io"}}, []string{`blueprint registry "https://docker.io"`}},
		"a bare word":               {Consent{Namespaces: []string{"shop"}, Registries: []string{"team"}}, []string{`blueprint registry "team"`}},
		"a tag":                     {Consent{Namespaces: []string{"shop"}, Registries: []string{"docker.io/web:1"}}, []string{`blueprint registry "docker.io/web:1"`}},
		"all and some":              {Consent{Namespaces: []string{"*", "shop"}, Registries: []string{"*"}}, []string{"* allows all"}},
		"no registries":             {Consent{Namespaces: []string{"shop"}}, []string{"blueprint registries: missing"}},
		"no namespaces":             {Consent{Registries: []string{"*"}}, []string{"blueprint namespaces: missing"}},
		"two faults, said together": {Consent{Namespaces: []string{"A"}, Registries: []string{"B"}}, []string{`"A"`, `"B"`}},
		"none":                      {Consent{}, nil},
		"good":                      {Consent{Namespaces: []string{"shop"}, Registries: []string{"docker.io", "localhost:5000/x"}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := errors.Join(c.consent.faults()...)
			if c.faults == nil {
				require.NoError(t, err)
			}
			for _, part := range c.faults {
				require.ErrorContains(t, err, part)
			}
		})
	}
}
