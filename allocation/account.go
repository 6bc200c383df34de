package allocation

// Account is the arithmetic of one cluster's (or quota's) capacity. The one formula of
// the house, for each resource:
//
//	committed = (Allocated - Used) + HeldOrUsed
//	available = max(0, Allocatable - KeepBack - committed)
type Account struct {
	Allocatable Amounts // as last reported
	KeepBack    Amounts // never lent
	Allocated   Amounts // requests of all pods, those inside holds included
	Used        Amounts // sum over holds of what the pods inside use
	HeldOrUsed  Amounts // sum over holds of max(held, used)
}

// OwnAllocated is what the cluster's own pods request: allocated without the pods inside live holds.
func (a *Account) OwnAllocated() Amounts {
	return a.Allocated.Sub(a.Used).Max(nil)
}

// Available is what can be held now of one resource; never negative.
func (a *Account) Available(resource string) int64 {
	return max(0, a.free(resource))
}

// Short is how far one resource is promised beyond what is there; 0 where it is not.
func (a *Account) Short(resource string) int64 {
	return max(0, -a.free(resource))
}

func (a *Account) free(resource string) int64 {
	own := max(0, a.Allocated.Get(resource)-a.Used.Get(resource))
	committed := saturatingAdd(own, a.HeldOrUsed.Get(resource))
	return saturatingAdd(saturatingAdd(a.Allocatable.Get(resource), -a.KeepBack.Get(resource)), -committed)
}

// Lack is one resource of which a request wants more than there is.
type Lack struct {
	Resource             string
	Requested, Available int64
}

// Fits says whether the request fits the account now. Apply and every planner ask this one
// function. Where it does not, lack is the first resource (by name) that falls short.
func Fits(a *Account, request Amounts) (lack Lack, ok bool) {
	for _, r := range request {
		if have := a.Available(r.Resource); r.Value > have {
			return Lack{r.Resource, r.Value, have}, false
		}
	}
	return Lack{}, true
}
