package allocation

// Labels that every cluster has by its advertisement.
const (
	LabelRegion   = "region"
	LabelProvider = "provider"
)

// MaxHolds bounds how many live holds one cluster has.
const MaxHolds = 16384

// Offer is one cluster as a Market takes it.
type Offer struct {
	ClusterID string
	Region    string            // counts as the label "region" where not empty
	Provider  string            // counts as the label "provider" where not empty
	Labels    map[string]string // not changed by anyone after Set

	// The cluster is Active where none of these is set. The first that is set is the reason shown.
	Stale, Withdrawn, Cordoned bool
	Holds                      int // live ones; with MaxHolds it takes no more

	Account     *Account // read by Set, not kept
	LargestFree Amounts  // on one single node
	Prices      Prices
	Currency    string // for the caller: all offers of a Market have the same
}

// label is one label of the cluster.
func (o *Offer) label(key string) (value string, ok bool) {
	switch {
	case key == LabelRegion && o.Region != "":
		return o.Region, true
	case key == LabelProvider && o.Provider != "":
		return o.Provider, true
	}
	value, ok = o.Labels[key]
	return value, ok
}

// closed is the reason for which the cluster takes nobody, or ReasonNone.
func (o *Offer) closed() Reason {
	switch {
	case o.Stale:
		return ReasonStale
	case o.Withdrawn:
		return ReasonWithdrawn
	case o.Cordoned:
		return ReasonCordoned
	case o.Holds >= MaxHolds:
		return ReasonFull
	}
	return ReasonNone
}
