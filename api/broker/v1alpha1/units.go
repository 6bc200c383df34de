package v1alpha1

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
)

// The units of the house. Amounts and money are integers everywhere behind the API.
const (
	// MaxAmount bounds every single amount: 64 PiB of memory, 72 trillion cores.
	// 64 of them add up within an int64; sums saturate beyond.
	MaxAmount = int64(1) << 56

	// PriceUnit is one unit of currency: prices are counted in its billionths.
	PriceUnit = int64(1_000_000_000)
	// MaxPrice bounds every stated amount of money: a billion units of currency.
	// 1e18 billionths, within the 9.2e18 of an int64.
	MaxPrice = 1_000_000_000 * PriceUnit
	// MaxUnitPrice bounds the price of one core, GiB or piece for one hour: ten million units of
	// currency, so 1e16 billionths, within 54 bits. The ranking of offers relies on the 54 bits.
	MaxUnitPrice = 10_000_000 * PriceUnit
	// Unpriced stands where a price would, in billionths, for a cluster that states none.
	Unpriced = int64(-1)
	// UnpricedText is how the API shows Unpriced.
	UnpricedText = "Unpriced"

	// priceDecimals is how many digits a price may have after the point.
	priceDecimals = 9

	// MinSpan is the resolution of the exchange's clock.
	MinSpan = time.Millisecond
)

// Prefixes of row keys: "<resource>/<namespace>/<name>" or "<resource>/<name>".
const (
	ReservationsPrefix   = "reservations/"
	BatchesPrefix        = "reservationbatches/"
	AdvertisementsPrefix = "clusteradvertisements/"
	BlueprintsPrefix     = "blueprints/"
	SlicesPrefix         = "slices/"

	advertisementSuffix = "-adv"
)

// Why a text or a quantity is no amount, price or span. Match with errors.Is.
var (
	ErrNegative  = errors.New("must not be negative")
	ErrTooLarge  = errors.New("is too large")
	ErrMalformed = errors.New("is malformed")
)

// AdvertisementName is the name of a cluster's advertisement.
func AdvertisementName(clusterID string) string { return clusterID + advertisementSuffix }

// ClusterIDOf is the cluster that an advertisement's name speaks of; false where the name is no such name.
func ClusterIDOf(advertisementName string) (string, bool) {
	id, ok := strings.CutSuffix(advertisementName, advertisementSuffix)
	return id, ok && id != ""
}

// AdvertisementKey is the row key of a cluster's advertisement, which is also its account.
func AdvertisementKey(clusterID string) string {
	return AdvertisementsPrefix + clusterID + advertisementSuffix
}

// ReservationKey is the row key of a reservation.
func ReservationKey(namespace, name string) string {
	return ReservationsPrefix + namespace + "/" + name
}

// BlueprintKey is the row key of a blueprint.
func BlueprintKey(namespace, name string) string { return BlueprintsPrefix + namespace + "/" + name }

// SliceKey is the row key of a slice.
func SliceKey(namespace, name string) string { return SlicesPrefix + namespace + "/" + name }

// InBytes says whether a resource is counted in bytes, and so priced per GiB.
func InBytes(name string) bool {
	switch name {
	case "memory", "ephemeral-storage", "storage":
		return true
	}
	return strings.HasPrefix(name, "hugepages-")
}

// AmountOf is a quantity in the house's integer unit of that resource: thousandths of a core for
// cpu, bytes for memory and other byte resources, pieces for all else. What a unit can't
// express is rounded up (requests, use) or down (supply). Negative or absurd quantities are errors.
func AmountOf(name string, q resource.Quantity, roundUp bool) (int64, error) {
	if q.Sign() < 0 {
		return 0, fmt.Errorf("%s %s: %w", name, q.String(), ErrNegative)
	}
	scale := resource.Scale(0)
	if name == "cpu" {
		scale = resource.Milli
	}
	// Compared as a quantity first: ScaledValue wraps around beyond an int64.
	if q.Cmp(*resource.NewScaledQuantity(MaxAmount, scale)) > 0 {
		return 0, fmt.Errorf("%s %s: %w: at most %s", name, q.String(), ErrTooLarge, ptr(QuantityOf(name, MaxAmount)).String())
	}
	amount := q.ScaledValue(scale) // rounds up
	if !roundUp && resource.NewScaledQuantity(amount, scale).Cmp(q) > 0 {
		amount--
	}
	return amount, nil
}

// QuantityOf is an amount as the API writes it: cpu "4" or "1500m", memory "8Gi", pieces "2".
func QuantityOf(name string, amount int64) resource.Quantity {
	switch {
	case name == "cpu":
		return *resource.NewMilliQuantity(amount, resource.DecimalSI)
	case InBytes(name):
		return *resource.NewQuantity(amount, resource.BinarySI)
	}
	return *resource.NewQuantity(amount, resource.DecimalSI)
}

func ptr(q resource.Quantity) *resource.Quantity { return &q }

// ParsePrice reads a decimal ("2", "0.05") as billionths of the currency. No sign, no exponent,
// at most nine digits after the point, at most MaxPrice.
func ParsePrice(s string) (int64, error) {
	whole, fraction, pointed := strings.Cut(s, ".")
	if !digits(whole) || pointed && !digits(fraction) {
		return 0, fmt.Errorf("price %q %w: want a decimal like 0.05", clip(s), ErrMalformed)
	}
	if len(fraction) > priceDecimals {
		return 0, fmt.Errorf("price %q %w: at most %d digits after the point", clip(s), ErrMalformed, priceDecimals)
	}
	nano, err := strconv.ParseInt(whole+fraction+strings.Repeat("0", priceDecimals-len(fraction)), 10, 64)
	if err != nil || nano > MaxPrice {
		return 0, fmt.Errorf("price %q %w: at most %s", clip(s), ErrTooLarge, FormatPrice(MaxPrice))
	}
	return nano, nil
}

// FormatPrice writes a price with two to nine digits after the point; Unpriced as "Unpriced".
func FormatPrice(nano int64) string {
	if nano < 0 {
		return UnpricedText
	}
	fraction := fmt.Sprintf("%09d", nano%PriceUnit)
	return strconv.FormatInt(nano/PriceUnit, 10) + "." + fraction[:2] + strings.TrimRight(fraction[2:], "0")
}

// ParseSpan reads a duration or waitFor ("2h", "90m", "1h30m"): at least MinSpan, at most MaxSpan.
func ParseSpan(s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	switch {
	case err != nil:
		return 0, fmt.Errorf("duration %q %w: want hours, minutes and seconds like 2h or 1h30m", clip(s), ErrMalformed)
	case d < 0:
		return 0, fmt.Errorf("duration %q: %w", clip(s), ErrNegative)
	case d < MinSpan:
		return 0, fmt.Errorf("duration %q %w: at least %s", clip(s), ErrMalformed, MinSpan)
	case d > MaxSpan:
		return 0, fmt.Errorf("duration %q %w: at most a year (8760h)", clip(s), ErrTooLarge)
	}
	return d, nil
}

func digits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}

// Clip cuts a text to so many bytes, at the end of a character.
func Clip(text string, limit int) string {
	const mark = "..."
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit-len(mark)], "") + mark
}

// clip keeps hostile input out of messages.
func clip(s string) string { return Clip(s, 64) }
