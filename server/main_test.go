package server_test

import (
	"os"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/bourse-dev/bourse/server"
)

func TestMain(m *testing.M) {
	server.RedirectKlog(hclog.NewNullLogger())
	os.Exit(m.Run())
}
