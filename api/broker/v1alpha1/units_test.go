package v1alpha1

import (
	"errors"
	"math"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/resource"
	"pgregory.net/rapid"
)

func TestAmountsAreRoundedUpForRequestsAndDownForSupply(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, quantity string
		up, down       int64
	}{
		{"cpu", "4", 4000, 4000},
		{"cpu", "1500m", 1500, 1500},
		{"cpu", "1u", 1, 0},
		{"cpu", "0.0015", 2, 1},
		{"memory", "8Gi", 8 << 30, 8 << 30},
		{"memory", "1500m", 2, 1},
		{"ephemeral-storage", "1M", 1_000_000, 1_000_000},
		{"hugepages-2Mi", "4Mi", 4 << 20, 4 << 20},
		{"nvidia.com/gpu", "2", 2, 2},
		{"nvidia.com/gpu", "0.5", 1, 0},
		{"memory", "0", 0, 0},
		{"memory", "64Pi", MaxAmount, MaxAmount},
	} {
		up, err := AmountOf(c.name, resource.MustParse(c.quantity), true)
		require.NoError(t, err)
		require.Equal(t, c.up, up, "%s %s up", c.name, c.quantity)
		down, err := AmountOf(c.name, resource.MustParse(c.quantity), false)
		require.NoError(t, err)
		require.Equal(t, c.down, down, "%s %s down", c.name, c.quantity)
	}
}

func TestNegativeAndAbsurdAmountsAreErrors(t *testing.T) {
	t.Parallel()
	for quantity, want := range map[string]error{
		"-1": ErrNegative, "-1u": ErrNegative, "65Pi": ErrTooLarge, "72057594037927937": ErrTooLarge,
		"1e40": ErrTooLarge, "99999999999999999999999999": ErrTooLarge,
	} {
		_, err := AmountOf("memory", resource.MustParse(quantity), true)
		require.ErrorIs(t, err, want, quantity)
		require.ErrorContains(t, err, "memory")
	}
}

func TestQuantitiesAreCanonical(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		amount int64
		want   string
	}{
		{"cpu", 4000, "4"},
		{"cpu", 1500, "1500m"},
		{"memory", 8 << 30, "8Gi"},
		{"memory", 1000, "1k"},
		{"memory", 1001, "1001"},
		{"nvidia.com/gpu", 2, "2"},
		{"cpu", 0, "0"},
	} {
		q := QuantityOf(c.name, c.amount)
		require.Equal(t, c.want, q.String())
	}
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.SampledFrom([]string{"cpu", "memory", "nvidia.com/gpu"}).Draw(t, "name")
		amount := rapid.Int64Range(0, MaxAmount).Draw(t, "amount")
		q := QuantityOf(name, amount)
		back, err := AmountOf(name, resource.MustParse(q.String()), rapid.Bool().Draw(t, "up"))
		require.NoError(t, err)
		require.Equal(t, amount, back)
	})
}

func TestPricesAreDecimals(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int64{
		"0": 0, "2": 2e9, "0.50": 5e8, "0.05": 5e7, "0.000000001": 1, "1000000000": MaxPrice, "007": 7e9,
	} {
		got, err := ParsePrice(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
	for text, want := range map[string]error{
		"": ErrMalformed, "-1": ErrMalformed, "+1": ErrMalformed, ".5": ErrMalformed, "1.": ErrMalformed, "1e3": ErrMalformed,
		"cheap": ErrMalformed, "0,5": ErrMalformed, "1 ": ErrMalformed, "0.0000000001": ErrMalformed, "١": ErrMalformed,
		"1000000000.000000001": ErrTooLarge, "99999999999999999999": ErrTooLarge,
	} {
		_, err := ParsePrice(text)
		require.ErrorIs(t, err, want, text)
	}
	require.Equal(t, "2.40", FormatPrice(2_400_000_000))
	require.Equal(t, "0.0005", FormatPrice(500_000))
	require.Equal(t, "9223372036.854775807", FormatPrice(math.MaxInt64))
	require.Equal(t, UnpricedText, FormatPrice(Unpriced))
	rapid.Check(t, func(t *rapid.T) {
		nano := rapid.Int64Range(0, MaxPrice).Draw(t, "nano")
		back, err := ParsePrice(FormatPrice(nano))
		require.NoError(t, err)
		require.Equal(t, nano, back)
	})
}

func TestSpans(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{
		"2h": 2 * time.Hour, "90m": 90 * time.Minute, "1h30m": 90 * time.Minute, "5s": 5 * time.Second, "8760h": MaxSpan, "1ms": MinSpan,
	} {
		got, err := ParseSpan(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
	for text, want := range map[string]error{
		"": ErrMalformed, "2 hours": ErrMalformed, "2": ErrMalformed, "0s": ErrMalformed, "1ns": ErrMalformed,
		"-2h": ErrNegative, "8760h1ns": ErrTooLarge, "99999999h": ErrMalformed,
	} {
		_, err := ParseSpan(text)
		require.True(t, errors.Is(err, want), "%q: %v", text, err)
	}
}

func TestNamesAndKeys(t *testing.T) {
	t.Parallel()
	require.Equal(t, "paris-adv", AdvertisementName("paris"))
	require.Equal(t, "clusteradvertisements/paris-adv", AdvertisementKey("paris"))
	require.Equal(t, "reservations/rome/ml-training", ReservationKey("rome", "ml-training"))
	id, ok := ClusterIDOf("a-adv-adv")
	require.True(t, ok)
	require.Equal(t, "a-adv", id)
	for _, name := range []string{"paris", "-adv", ""} {
		_, ok := ClusterIDOf(name)
		require.False(t, ok, name)
	}
}

func TestTextsAreCutAtTheEndOfACharacter(t *testing.T) {
	t.Parallel()
	for limit := 4; limit < 16; limit++ {
		cut := Clip("ünïcödé wörds", limit)
		require.True(t, utf8.ValidString(cut), "%q", cut)
		require.LessOrEqual(t, len(cut), limit)
		require.Greater(t, len(cut), limit-2, "no more than one character is lost")
	}
	require.Equal(t, "ünï", Clip("ünï", 5))
	require.Equal(t, "ää...", Clip("ääääää", 8))
}
