package server_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bourse-dev/bourse/server"
)

// A JSON patch tests what it likes: to an agent of another cluster a test that holds must read as one that does not.
func TestAPatchTellsAnAgentNothingOfAnotherClustersSlice(t *testing.T) {
	t.Parallel()
	x := start(t)
	x.consent("berlin", 8)
	x.consent("paris", 8)
	x.addSlice("shop-web-berlin-1", "berlin", 2)
	status := romeSlices + "/shop-web-berlin-1/status"
	guess := func(artifact string) string {
		return `[{"op":"test","path":"/spec/artifact","value":"` + artifact + `"}]`
	}
	paris := x.client(server.GroupAgent + "paris")
	right := paris.must(http.StatusForbidden, "PATCH", status, guess("nginx:1.29"), "Content-Type", jsonTyp)
	wrong := paris.must(http.StatusForbidden, "PATCH", status, guess("nginx:1.30"), "Content-Type", jsonTyp)
	require.Equal(t, right.body, wrong.body)
	berlin := x.client(server.GroupAgent + "berlin")
	berlin.must(http.StatusOK, "PATCH", status, guess("nginx:1.29"), "Content-Type", jsonTyp)
}
