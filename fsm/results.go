package fsm

import "iter"

// results remembers what became of the newest commands, in the order they came. It is
// immutable; adding copies one page (about 16 records) and the two arrays above it, some 3
// KiB. A radix tree would take ten times the memory for 65,536 records.
type results struct {
	pages *[resultDirs]*resultDir
	// full and tail are the ids in order of arrival; the first skip ids are forgotten.
	full  [][]RequestID // chunks of resultChunkSize
	tail  []RequestID   // shorter than one chunk
	skip  int           // within the first chunk
	count int
	// forgotten is one above the newest Seen among the ids forgotten, 0 while there is none.
	forgotten Revision
}

const (
	resultDirs      = 64
	resultDirPages  = 64
	resultChunkSize = 64
)

type resultDir [resultDirPages][]remembered

func (r *results) len() int { return r.count }

// place spreads ids over pages, even where they are small counters.
func place(id RequestID) (dir, page uint64) {
	h := (id.Random ^ uint64(id.Seen)*0x9E3779B97F4A7C15) * 0xD6E8FEB86659FD93
	h ^= h >> 32
	h *= 0xD6E8FEB86659FD93
	return h >> 58, h >> 52 & (resultDirPages - 1)
}

func (r *results) get(id RequestID) *remembered {
	if r.pages == nil {
		return nil
	}
	dir, page := place(id)
	if r.pages[dir] == nil {
		return nil
	}
	for i := range r.pages[dir][page] {
		if found := &r.pages[dir][page][i]; found.id == id {
			return found
		}
	}
	return nil
}

// all yields the results in order of arrival.
func (r *results) all() iter.Seq[*remembered] {
	return func(yield func(*remembered) bool) {
		skip := r.skip
		for i := range len(r.full) + 1 {
			ids := r.tail
			if i < len(r.full) {
				ids = r.full[i]
			}
			for _, id := range ids[skip:] {
				if !yield(r.get(id)) {
					return
				}
			}
			skip = 0
		}
	}
}

// with returns results that remember one more. The id must not be there yet.
func (r results) with(rec remembered) results {
	r = r.edit(rec.id, func(page []remembered) []remembered {
		return append(append(make([]remembered, 0, len(page)+1), page...), rec)
	})
	// Slices are copied, never appended to: two states may be made from one.
	r.tail = append(r.tail[:len(r.tail):len(r.tail)], rec.id)
	if len(r.tail) == resultChunkSize {
		r.full, r.tail = append(r.full[:len(r.full):len(r.full)], r.tail), nil
	}
	r.count++
	return r
}

// put is with, in place: of results that nobody else has, while a state is read.
func (r *results) put(rec remembered) {
	if r.pages == nil {
		r.pages = new([resultDirs]*resultDir)
	}
	dir, page := place(rec.id)
	if r.pages[dir] == nil {
		r.pages[dir] = new(resultDir)
	}
	r.pages[dir][page] = append(r.pages[dir][page], rec)
	r.tail = append(r.tail, rec.id)
	if len(r.tail) == resultChunkSize {
		r.full, r.tail = append(r.full, r.tail), nil
	}
	r.count++
}

// withoutOldest forgets the result that came first, and returns it.
func (r results) withoutOldest() (results, remembered) {
	first := r.tail
	if len(r.full) > 0 {
		first = r.full[0]
	}
	id := first[r.skip]
	oldest := *r.get(id)
	r = r.edit(id, func(page []remembered) []remembered {
		rest := make([]remembered, 0, len(page)-1)
		for _, rec := range page {
			if rec.id != id {
				rest = append(rest, rec)
			}
		}
		return rest
	})
	r.skip++
	if r.skip == resultChunkSize {
		r.full, r.skip = r.full[1:], 0
	}
	r.count--
	r.forgotten = max(r.forgotten, id.Seen+1)
	return r, oldest
}

func (r results) edit(id RequestID, change func([]remembered) []remembered) results {
	dir, page := place(id)
	var pages [resultDirs]*resultDir
	if r.pages != nil {
		pages = *r.pages
	}
	var pagesOfDir resultDir
	if pages[dir] != nil {
		pagesOfDir = *pages[dir]
	}
	pagesOfDir[page] = change(pagesOfDir[page])
	pages[dir] = &pagesOfDir
	r.pages = &pages
	return r
}
