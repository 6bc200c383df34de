package server

import (
	"context"
	"strings"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// Groups (the O of a client certificate's subject) that mean something here. `bourse pki` writes them.
const (
	GroupAdmin     = "bourse:admin"
	GroupViewer    = "bourse:viewer"
	GroupServer    = "bourse:server"
	GroupRequester = "bourse:requester:" // + cluster ID
	GroupProvider  = "bourse:provider:"  // + cluster ID
	GroupAgent     = "bourse:agent:"     // + cluster ID
	GroupNamespace = "bourse:namespace:" // + namespace, of the requester and agent roles; default their IDs
)

// role is what a user may be, from its groups.
type role struct {
	admin, viewer, server bool
	requesters            set
	providers             set
	agents                set
	namespaces            set
}

type set map[string]bool

// roleOf reads a user's groups. Groups of other makers mean nothing.
func roleOf(u user.Info) role {
	r := role{requesters: set{}, providers: set{}, agents: set{}, namespaces: set{}}
	if u == nil {
		return r
	}
	lists := []struct {
		prefix string
		ids    set
	}{
		{GroupRequester, r.requesters}, {GroupProvider, r.providers}, {GroupAgent, r.agents}, {GroupNamespace, r.namespaces},
	}
	for _, group := range u.GetGroups() {
		switch group {
		case GroupAdmin:
			r.admin = true
		case GroupViewer:
			r.viewer = true
		case GroupServer:
			r.server = true
		default:
			for _, list := range lists {
				if id, ok := strings.CutPrefix(group, list.prefix); ok && id != "" {
					list.ids[id] = true
				}
			}
		}
	}
	if len(r.namespaces) == 0 {
		for id := range r.requesters {
			r.namespaces[id] = true
		}
	}
	return r
}

// roleFrom is the role of the request's user. Without a user (the server's own calls in tests of
// the registry) it is nobody's.
func roleFrom(ctx context.Context) role {
	u, _ := request.UserFrom(ctx)
	return roleOf(u)
}

// seesDecisions: agents act for a member cluster, whose rivals' prices are not its business.
func (r role) seesDecisions() bool { return r.admin || len(r.agents) == 0 }
