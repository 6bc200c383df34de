package v1alpha1

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
)

// FuzzPrice: what is read as a price is written as one that reads the same.
func FuzzPrice(f *testing.F) {
	for _, s := range []string{"0.05", "2", "0.123456789", "-1", "1e9", "", ".", "9999999999999999999"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		nano, err := ParsePrice(s)
		if err != nil {
			return
		}
		if again, err := ParsePrice(FormatPrice(nano)); err != nil || again != nano || nano < 0 || nano > MaxPrice {
			t.Fatalf("%q is %d, written %s, read %d (%v)", s, nano, FormatPrice(nano), again, err)
		}
	})
}

// FuzzSpan: what is read as a duration lies within the limits.
func FuzzSpan(f *testing.F) {
	for _, s := range []string{"2h", "1h30m", "-1s", "1ns", "9999999h", "1", "h"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if d, err := ParseSpan(s); err == nil && (d < MinSpan || d > MaxSpan) {
			t.Fatalf("%q is %v", s, d)
		}
	})
}

// FuzzAmount: a quantity is rounded by less than one unit, up or down as asked, and an amount is
// written as a quantity that reads the same.
func FuzzAmount(f *testing.F) {
	for _, s := range []string{"4", "1500m", "8Gi", "0.0001", "1e30", "-1", "9223372036854775807", "1n", "12E"} {
		f.Add("cpu", s)
		f.Add("memory", s)
	}
	f.Fuzz(func(t *testing.T, name, s string) {
		q, err := resource.ParseQuantity(s)
		if err != nil {
			return
		}
		up, errUp := AmountOf(name, q.DeepCopy(), true)
		down, errDown := AmountOf(name, q.DeepCopy(), false)
		if (errUp == nil) != (errDown == nil) {
			t.Fatalf("%s %q: up %v, down %v", name, s, errUp, errDown)
		}
		if errUp != nil {
			return
		}
		upQ, downQ := QuantityOf(name, up), QuantityOf(name, down)
		if up < 0 || up > MaxAmount || up-down > 1 || down > up || upQ.Cmp(q) < 0 || downQ.Cmp(q) > 0 {
			t.Fatalf("%s %q: up %d, down %d", name, s, up, down)
		}
		if again, err := AmountOf(name, resource.MustParse(upQ.String()), false); err != nil || again != up {
			t.Fatalf("%s %d is written %s and read %d (%v)", name, up, upQ.String(), again, err)
		}
	})
}
