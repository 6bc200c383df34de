package model

import (
	"errors"
	"testing"
)

// Each rule once: what the book lets pass, and what it doesn't.
func TestBook(t *testing.T) {
	cpu := func(n int64) Amounts { return Amounts{"cpu": n} }
	hold := func(holder string, n int64, fence uint64) Hold {
		return Hold{Holder: holder, Cluster: "paris", Amounts: cpu(n), Fence: fence}
	}
	paris := func(b *Book) error { return b.Advertise(1, "paris", cpu(10), cpu(2), cpu(1), false) }
	granted := func(b *Book) error { return errors.Join(paris(b), b.Grant(2, hold("a", 5, 2))) }
	for name, c := range map[string]struct {
		before func(*Book) error
		do     func(*Book) error
		broken bool
	}{
		"a grant of all that is free":       {paris, func(b *Book) error { return b.Grant(2, hold("a", 7, 2)) }, false},
		"a grant of more":                   {paris, func(b *Book) error { return b.Grant(2, hold("a", 8, 2)) }, true},
		"a second grant of the rest":        {granted, func(b *Book) error { return b.Grant(3, hold("b", 2, 3)) }, false},
		"a second grant of more":            {granted, func(b *Book) error { return b.Grant(3, hold("b", 3, 3)) }, true},
		"a resource that is not there":      {paris, func(b *Book) error { return b.Grant(2, Hold{"a", "paris", Amounts{"gpu": 1}, nil, 2, 0}) }, true},
		"an unknown cluster":                {granted, func(b *Book) error { return b.Grant(3, Hold{"b", "rome", cpu(1), nil, 3, 0}) }, true},
		"two holds of one holder":           {granted, func(b *Book) error { return b.Grant(3, hold("a", 1, 3)) }, true},
		"an old fence of the cluster":       {granted, func(b *Book) error { return b.Grant(3, hold("b", 1, 2)) }, true},
		"a fence from the future":           {granted, func(b *Book) error { return b.Grant(3, hold("b", 1, 4)) }, true},
		"facts that leave a hold uncovered": {granted, func(b *Book) error { return b.Advertise(3, "paris", cpu(1), nil, nil, false) }, false},
		"an end":                            {granted, func(b *Book) error { return b.End(3, "a") }, false},
		"an end of nothing":                 {granted, func(b *Book) error { return b.End(3, "b") }, true},
		"a second end":                      {granted, func(b *Book) error { return errors.Join(b.End(3, "a"), b.End(4, "a")) }, true},
		"a grant of what was given back":    {granted, func(b *Book) error { return errors.Join(b.End(3, "a"), b.Grant(4, hold("b", 7, 4))) }, false},
		"an old fence of the holder":        {granted, func(b *Book) error { return errors.Join(b.End(3, "a"), b.Grant(4, hold("a", 1, 2))) }, true},
		"growth into all that is free":      {granted, func(b *Book) error { return b.Resize(3, "a", cpu(7)) }, false},
		"growth beyond it":                  {granted, func(b *Book) error { return b.Resize(3, "a", cpu(8)) }, true},
		"growth of another's hold":          {granted, func(b *Book) error { return b.Resize(3, "b", cpu(1)) }, true},
		"giving back on a closed cluster": {granted, func(b *Book) error {
			return errors.Join(b.Advertise(3, "paris", cpu(10), nil, nil, true), b.Resize(4, "a", cpu(1)))
		}, false},
		"growth on a closed cluster": {granted, func(b *Book) error {
			return errors.Join(b.Advertise(3, "paris", cpu(10), nil, nil, true), b.Resize(4, "a", cpu(6)))
		}, true},
		"a grant of what was made smaller": {granted, func(b *Book) error {
			return errors.Join(b.Resize(3, "a", cpu(1)), b.Grant(4, hold("b", 6, 4)))
		}, false},
		"a grant beside pods of holders": {granted, func(b *Book) error {
			return errors.Join(b.Advertise(3, "paris", cpu(10), cpu(6), cpu(1), false), b.Use(3, "a", cpu(4)), b.Grant(4, hold("b", 2, 4)))
		}, false},
		"a grant of what pods take beyond what is held": {granted, func(b *Book) error {
			return errors.Join(b.Advertise(3, "paris", cpu(10), cpu(8), cpu(1), false), b.Use(3, "a", cpu(6)), b.Grant(4, hold("b", 2, 4)))
		}, true},
		"use without a hold":         {granted, func(b *Book) error { return b.Use(3, "b", cpu(1)) }, true},
		"an extension":               {granted, func(b *Book) error { return b.Extend(3, "a", 100) }, false},
		"an extension of nothing":    {granted, func(b *Book) error { return b.Extend(3, "b", 100) }, true},
		"two events of one revision": {granted, func(b *Book) error { return b.End(2, "a") }, false},
		"a revision that goes back":  {granted, func(b *Book) error { return b.End(1, "a") }, true},
		"a closed cluster": {granted, func(b *Book) error {
			return errors.Join(b.Advertise(3, "paris", cpu(10), nil, nil, true), b.Grant(4, hold("b", 1, 4)))
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			b := New()
			if err := c.before(b); err != nil {
				t.Fatal(err)
			}
			if err := c.do(b); errors.Is(err, ErrViolation) != c.broken {
				t.Fatalf("got %v, want a violation: %v", err, c.broken)
			}
		})
	}
}

// All or nothing: what is held as one thing is held whole, or not at all.
func TestBookOfWholes(t *testing.T) {
	b := New()
	hold := func(holder string, cpu int64, expiresAt int64) Hold {
		return Hold{Holder: holder, Cluster: "paris", Amounts: Amounts{"cpu": cpu}, Fence: b.revision + 1, ExpiresAt: expiresAt}
	}
	if err := errors.Join(
		b.Advertise(1, "paris", Amounts{"cpu": 10}, nil, nil, false),
		b.Grant(2, hold("w-1", 3, 7)), b.Grant(3, hold("w-2", 2, 7)), b.Grant(4, hold("late", 1, 8)),
	); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		whole  string
		parts  []string
		broken bool
	}{
		"all are held":         {"w", []string{"w-1", "w-2"}, false},
		"two of three":         {"w", []string{"w-1", "w-2", "w-3"}, true},
		"one ends later":       {"w", []string{"w-1", "late"}, true},
		"the whole holds, too": {"late", []string{"w-1", "w-2"}, true},
	} {
		sum, err := b.Whole(5, c.whole, c.parts, 7)
		if errors.Is(err, ErrViolation) != c.broken {
			t.Errorf("%s: %v", name, err)
		}
		if !c.broken && sum["cpu"] != 5 {
			t.Errorf("%s: the sum is %v", name, sum)
		}
	}
	if err := b.Nothing(5, "w", []string{"w-3", "w-4"}); err != nil {
		t.Error(err)
	}
	if err := b.Nothing(5, "w", []string{"w-2", "w-3"}); !errors.Is(err, ErrViolation) {
		t.Errorf("a part that is left over: %v", err)
	}
}

func TestBookCounts(t *testing.T) {
	b := New()
	if err := errors.Join(
		b.Advertise(1, "paris", Amounts{"cpu": 10, "memory": 100}, Amounts{"cpu": 2}, Amounts{"memory": 10}, false),
		b.Grant(2, Hold{"b", "paris", Amounts{"cpu": 3}, nil, 2, 0}),
		b.Grant(3, Hold{"a", "paris", Amounts{"cpu": 1, "memory": 90}, nil, 3, 7}),
	); err != nil {
		t.Fatal(err)
	}
	if got := b.Available("paris"); got["cpu"] != 4 || got["memory"] != 0 {
		t.Errorf("available: %v", got)
	}
	if got := b.Held("paris"); got["cpu"] != 4 || got["memory"] != 90 {
		t.Errorf("held: %v", got)
	}
	if got := b.Holds(); len(got) != 2 || got[0].Holder != "a" || got[0].ExpiresAt != 7 || got[1].Holder != "b" {
		t.Errorf("holds: %v", got)
	}
}
