package allocation

import (
	"math"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
)

// labelColumn is one label key of all clusters: the number of its value, 0 where a cluster has no such
// label. A requirement of a selector is then asked once for each value, not once for each cluster.
type labelColumn struct {
	key    string
	stamp  uint64 // of the last request that named it
	values []uint32
	texts  []string // by number; the first is no value
	number map[string]uint32
}

func newLabelColumn(key string, size int) *labelColumn {
	return &labelColumn{
		key: key, values: make([]uint32, size), texts: []string{""}, number: map[string]uint32{},
	}
}

func (c *labelColumn) set(i int, s *slot) {
	c.values[i] = 0
	text, ok := s.offer.label(c.key)
	if !ok {
		return
	}
	n := c.number[text]
	if n == 0 {
		n = uint32(len(c.texts))
		text = strings.Clone(text)
		c.number[text] = n
		c.texts = append(c.texts, text)
	}
	c.values[i] = n
}

// overgrown says whether most of the values are no cluster's any more; the column is then made anew.
func (c *labelColumn) overgrown(clusters int) bool { return len(c.texts) > 2*clusters+blockSize }

// labelColumn returns a key's column, made from the slots where it is not there yet.
func (m *Market) labelColumn(key string) *labelColumn {
	c := m.labelColumns[key]
	if c == nil {
		if len(m.labelColumns) >= maxLabelColumns {
			m.dropLabelColumn()
		}
		c = newLabelColumn(strings.Clone(key), len(m.flags))
		for i, s := range m.slots {
			c.set(i, s)
		}
		m.labelColumns[c.key] = c
	}
	c.stamp = m.stamp
	return c
}

func (m *Market) dropLabelColumn() {
	oldest, stamp := "", uint64(math.MaxUint64)
	for key, c := range m.labelColumns {
		if c.stamp < stamp {
			oldest, stamp = key, c.stamp
		}
	}
	delete(m.labelColumns, oldest)
}

// selecting says whether the selector excludes anybody.
func selecting(selector labels.Selector) bool { return selector != nil && !selector.Empty() }

// selectBlocks fills matched with a bit for each cluster that the selector takes.
func (m *Market) selectBlocks(selector labels.Selector, matched []uint64) {
	requirements, selectable := selector.Requirements()
	if !selectable {
		clear(matched)
		return
	}
	for word := range matched {
		matched[word] = math.MaxUint64
	}
	for r := range requirements {
		column := m.labelColumn(requirements[r].Key())
		allowed := m.scan.allowed[:0]
		for n, text := range column.texts {
			m.scan.oneLabel = oneLabel{text, n > 0}
			var bit uint8
			if requirements[r].Matches(&m.scan.oneLabel) {
				bit = 1
			}
			allowed = append(allowed, bit)
		}
		for word := range matched {
			block := column.values[word*blockSize:][:blockSize]
			var bits uint64
			for j, n := range block {
				bits |= uint64(allowed[n]) << (j & 63)
			}
			matched[word] &= bits
		}
		m.scan.allowed = allowed
	}
}

// oneLabel is a label set of the one key that is asked for.
type oneLabel struct {
	value string
	ok    bool
}

func (l *oneLabel) Has(string) bool              { return l.ok }
func (l *oneLabel) Get(string) string            { return l.value }
func (l *oneLabel) Lookup(string) (string, bool) { return l.value, l.ok }

// A slot is the label set of its cluster.
func (s *slot) Has(key string) bool {
	_, ok := s.offer.label(key)
	return ok
}

func (s *slot) Get(key string) string {
	value, _ := s.offer.label(key)
	return value
}

func (s *slot) Lookup(key string) (string, bool) { return s.offer.label(key) }
