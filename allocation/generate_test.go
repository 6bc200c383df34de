package allocation

import (
	"fmt"

	"k8s.io/apimachinery/pkg/labels"
	"pgregory.net/rapid"
)

const gpu = "nvidia.com/gpu"

var testResources = []string{CPU, "ephemeral-storage", Memory, gpu, "vendor.example/none"}

// amountGen mixes everyday values, values that collide, and the extremes.
func amountGen() *rapid.Generator[int64] {
	return rapid.OneOf(
		rapid.Int64Range(0, 8),
		rapid.SampledFrom([]int64{0, 1, 4000, 8000, 64_000, 1 << 26, 8 << 30, 64 << 30, 64<<30 - 1, MaxAmount - 1, MaxAmount}),
		rapid.Int64Range(0, 128_000),
		rapid.Int64Range(0, MaxAmount),
	)
}

func amountsGen(resources []string, least int) *rapid.Generator[Amounts] {
	return rapid.Custom(func(t *rapid.T) Amounts {
		var list []Amount
		for _, name := range resources {
			if rapid.Bool().Draw(t, name) {
				list = append(list, Amount{name, amountGen().Draw(t, name+" amount")})
			}
		}
		out := NewAmounts(list...)
		if len(out) < least {
			return Amounts{{CPU, rapid.Int64Range(1, 8000).Draw(t, "cpu")}}
		}
		return out
	})
}

func pricesGen() *rapid.Generator[Prices] {
	nano := rapid.OneOf(
		rapid.SampledFrom([]int64{0, 1, 50_000_000, 500_000_000, 500_000_001, 1e16}),
		rapid.Int64Range(0, 1e16),
		rapid.Int64Range(0, 2e9),
	)
	return rapid.Custom(func(t *rapid.T) Prices {
		switch rapid.IntRange(0, 4).Draw(t, "kind of prices") {
		case 0:
			return Prices{}
		case 1:
			return Prices{Priced: true, PerHour: nano.Draw(t, "perHour")}
		}
		p := Prices{Priced: true}
		for _, name := range testResources {
			if rapid.Bool().Draw(t, "prices "+name) {
				p.Unit = append(p.Unit, UnitPrice{name, nano.Draw(t, name+" price")})
			}
		}
		return p
	})
}

func accountGen() *rapid.Generator[Account] {
	return rapid.Custom(func(t *rapid.T) Account {
		stocked := testResources[:4]
		a := Account{Allocatable: amountsGen(stocked, 0).Draw(t, "allocatable")}
		if rapid.Bool().Draw(t, "in use") {
			a.KeepBack = amountsGen(stocked[:2], 0).Draw(t, "keepBack")
			a.Allocated = amountsGen(stocked, 0).Draw(t, "allocated")
			a.Used = amountsGen(stocked[:3], 0).Draw(t, "used")
			a.HeldOrUsed = amountsGen(stocked[:1], 0).Draw(t, "held").Max(a.Used)
		}
		return a
	})
}

func offerGen(id string) *rapid.Generator[Offer] {
	return rapid.Custom(func(t *rapid.T) Offer {
		account := accountGen().Draw(t, "account")
		o := Offer{
			ClusterID:   id,
			Region:      rapid.SampledFrom([]string{"", "eu", "us"}).Draw(t, "region"),
			Account:     &account,
			LargestFree: amountsGen(testResources[:4], 0).Draw(t, "largest"),
			Prices:      pricesGen().Draw(t, "prices"),
		}
		if rapid.Bool().Draw(t, "labelled") {
			o.Labels = map[string]string{"tier": rapid.SampledFrom([]string{"a", "b"}).Draw(t, "tier"), "region": "label"}
		}
		switch rapid.IntRange(0, 9).Draw(t, "closed") {
		case 0:
			o.Stale = true
		case 1:
			o.Withdrawn = true
		case 2:
			o.Cordoned, o.Stale = true, rapid.Bool().Draw(t, "stale too")
		case 3:
			o.Holds = MaxHolds - rapid.IntRange(0, 2).Draw(t, "holds left")
		}
		return o
	})
}

// offersGen draws up to 200 clusters, sorted by ID, of which many are alike.
func offersGen() *rapid.Generator[[]Offer] {
	return rapid.Custom(func(t *rapid.T) []Offer {
		models := make([]Offer, rapid.IntRange(1, 8).Draw(t, "models"))
		for i := range models {
			models[i] = offerGen("").Draw(t, "model")
		}
		offers := make([]Offer, rapid.SampledFrom([]int{0, 1, 3, 12, 64, 65, 200}).Draw(t, "clusters"))
		for i := range offers {
			o := rapid.SampledFrom(models).Draw(t, "of model")
			account := *o.Account
			o.Account = &account
			o.ClusterID = fmt.Sprintf("c%03d", i)
			if rapid.Bool().Draw(t, "held") {
				held := Amounts{{CPU, rapid.Int64Range(1, 8000).Draw(t, "held cpu")}}
				account.HeldOrUsed = account.HeldOrUsed.Add(held)
				*o.Account = account
			}
			offers[i] = o
		}
		return offers
	})
}

func requestGen() *rapid.Generator[Request] {
	selectors := []string{"", "", "region=eu", "region!=eu", "tier", "!tier", "tier in (a,b),region in (us,label)", "tier notin (a)"}
	return rapid.Custom(func(t *rapid.T) Request {
		r := Request{
			Requester:    rapid.SampledFrom([]string{"c000", "c001", "c070", "elsewhere"}).Draw(t, "requester"),
			Amounts:      amountsGen(testResources, 1).Draw(t, "amounts"),
			MaxPriceNano: NoPriceLimit,
		}
		if rapid.Bool().Draw(t, "small") {
			r.Amounts = Amounts{{CPU, rapid.Int64Range(1, 4000).Draw(t, "cpu")}, {Memory, rapid.Int64Range(1, 8<<30).Draw(t, "memory")}}
		}
		if rapid.IntRange(0, 2).Draw(t, "chunked") == 0 {
			r.Chunk = amountsGen(testResources, 0).Draw(t, "chunk")
		}
		if text := rapid.SampledFrom(selectors).Draw(t, "selector"); text != "" {
			selector, err := labels.Parse(text)
			if err != nil {
				panic(err)
			}
			r.Selector = selector
		}
		if rapid.IntRange(0, 3).Draw(t, "limited") == 0 {
			r.MaxPriceNano = rapid.SampledFrom([]int64{0, 1, 1e9, 1e18}).Draw(t, "limit")
		}
		if rapid.IntRange(0, 3).Draw(t, "targeted") == 0 {
			r.Target = rapid.SampledFrom([]string{"c000", "c001", "c002", "c150", "nowhere"}).Draw(t, "target")
		}
		return r
	})
}
