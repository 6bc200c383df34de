package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
)

// bbolt trusts its pages: a flipped bit in them makes it read for ever, or panic on a goroutine of its own, or write
// over pages that are in use. So we walk the file before it does, and accept nothing but what bbolt writes:
// elements packed tightly, each page reached once, keys in order, the key of a branch that of its child.

// The layout of bbolt's pages.
const (
	pageHead    = 16 // number 8, kind 2, elements 2, pages that follow 4
	elementHead = 16

	branchPage, leafPage, headPage, freePage = 0x01, 0x02, 0x04, 0x10 // kinds

	bucketElement = 1  // the flag of a leaf's element
	bucketHead    = 16 // root page 8, sequence 8
	noFreelist    = 1<<64 - 1
	bboltMagic    = 0xED0CDAED
	bboltVersion  = 2
	minPage       = 1 << 10
	maxPage       = 1 << 24 // as bbolt looks for

	maxDepth = 32 // a branch has two children or more
)

// errNeverWritten says that bbolt made the file, and that a crash came before its first transaction.
var errNeverWritten = errors.New("the log file has never been written")

// head is what a head page says.
type head struct{ pageSize, root, freelist, end, tx uint64 }

// element of a page.
type element struct {
	flags      uint32
	child      uint64
	key, value []byte
}

// pageWalk goes through the pages of a file, in the order of the keys.
type pageWalk struct {
	head
	file   *os.File
	seen   []bool // by page
	before []byte // the key before, in this bucket
	visit  func(bucket, key, value []byte) error
}

// walkPages calls visit with all that lies in the buckets "conf" and "logs", in this order. tx is the newest
// transaction. visit may keep what it is given.
func walkPages(path string, visit func(bucket, key, value []byte) error) (tx uint64, err error) {
	file, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	info, err := file.Stat()
	if err != nil {
		return 0, err
	}
	newest, err := readHeads(file)
	if err != nil {
		return 0, err
	}
	if newest.end > uint64(info.Size())/newest.pageSize {
		return 0, fmt.Errorf("cut short: %d bytes of %d pages", info.Size(), newest.end)
	}
	w := &pageWalk{head: newest, file: file, seen: make([]bool, newest.end), visit: visit}
	if err := w.root(); err != nil {
		return 0, err
	}
	return newest.tx, w.freelist()
}

// readHeads proves both head pages. bbolt writes them in turn and makes do with the older one where the
// newer is damaged: it would take back the last entry, or the last vote. (Either fits into one disk
// sector, so no crash tears it.)
func readHeads(file *os.File) (newest head, err error) {
	const sumAt = 56 // behind it, the FNV-1a of all before it
	var b [pageHead + sumAt + 8]byte
	for page := range uint64(2) {
		if _, err := file.ReadAt(b[:], int64(page*newest.pageSize)); err != nil {
			return head{}, fmt.Errorf("head page %d: %w", page, err)
		}
		m := b[pageHead:]
		sum := fnv.New64a()
		_, _ = sum.Write(m[:sumAt])
		if sum.Sum64() != binary.NativeEndian.Uint64(m[sumAt:]) {
			return head{}, fmt.Errorf("head page %d does not match its checksum", page)
		}
		h := head{
			pageSize: uint64(binary.NativeEndian.Uint32(m[8:])),
			root:     binary.NativeEndian.Uint64(m[16:]),
			freelist: binary.NativeEndian.Uint64(m[32:]),
			end:      binary.NativeEndian.Uint64(m[40:]),
			tx:       binary.NativeEndian.Uint64(m[48:]),
		}
		switch {
		case binary.NativeEndian.Uint32(m) != bboltMagic || binary.NativeEndian.Uint32(m[4:]) != bboltVersion:
			return head{}, fmt.Errorf("head page %d is not of a format that this version knows", page)
		case h.pageSize < minPage || h.pageSize > maxPage || page > 0 && h.pageSize != newest.pageSize:
			return head{}, fmt.Errorf("head page %d says that pages have %d bytes", page, h.pageSize)
		case binary.NativeEndian.Uint64(b[:]) != page || binary.NativeEndian.Uint64(b[8:]) != headPage || h.tx%2 != page:
			return head{}, fmt.Errorf("head page %d says that it is another", page)
		}
		if page == 0 || h.tx > newest.tx {
			newest = h
		}
	}
	return newest, nil
}

// run reads a page and those that it says follow it, which nobody else may name.
func (w *pageWalk) run(id uint64) (page []byte, kind uint16, err error) {
	if id < 2 || id >= w.end {
		return nil, 0, fmt.Errorf("page %d: the file has pages 2 to %d", id, w.end-1)
	}
	var h [pageHead]byte
	if _, err := w.file.ReadAt(h[:], int64(id*w.pageSize)); err != nil {
		return nil, 0, err
	}
	follow := uint64(binary.NativeEndian.Uint32(h[12:]))
	if binary.NativeEndian.Uint64(h[:]) != id || follow >= w.end-id {
		return nil, 0, fmt.Errorf("page %d: says that it is %d, and that %d follow", id, binary.NativeEndian.Uint64(h[:]), follow)
	}
	for i := id; i <= id+follow; i++ {
		if w.seen[i] {
			return nil, 0, fmt.Errorf("page %d is reached twice", i)
		}
		w.seen[i] = true
	}
	page = make([]byte, (follow+1)*w.pageSize)
	_, err = w.file.ReadAt(page, int64(id*w.pageSize))
	return page, binary.NativeEndian.Uint16(page[8:]), err
}

// node reads a page of elements. bbolt takes as many pages as they need.
func (w *pageWalk) node(id uint64) (kind uint16, list []element, err error) {
	page, kind, err := w.run(id)
	if err != nil {
		return 0, nil, err
	}
	list, used, err := elements(page, kind)
	if err != nil {
		return 0, nil, fmt.Errorf("page %d: %w", id, err)
	}
	if need := (used + w.pageSize - 1) / w.pageSize * w.pageSize; need != uint64(len(page)) {
		return 0, nil, fmt.Errorf("page %d: has %d bytes and needs %d", id, len(page), need)
	}
	return kind, list, nil
}

// elements of a page, in order. used is where they end.
func elements(page []byte, kind uint16) (list []element, used uint64, err error) {
	if kind != leafPage && kind != branchPage {
		return nil, 0, fmt.Errorf("is of kind %#x", kind)
	}
	count := uint64(binary.NativeEndian.Uint16(page[10:]))
	size := uint64(len(page))
	if used = pageHead + count*elementHead; used > size {
		return nil, 0, fmt.Errorf("says that it has %d elements", count)
	}
	list = make([]element, count)
	for i := range count {
		at, e := pageHead+i*elementHead, &list[i]
		word := func(n uint64) uint64 { return uint64(binary.NativeEndian.Uint32(page[at+4*n:])) }
		pos, keySize, valueSize := word(0), word(1), uint64(0)
		if kind == leafPage {
			e.flags, pos, keySize, valueSize = uint32(word(0)), word(1), word(2), word(3)
		} else {
			e.child = binary.NativeEndian.Uint64(page[at+8:])
		}
		if at+pos != used || keySize == 0 || keySize+valueSize > size-used {
			return nil, 0, fmt.Errorf("element %d lies at %d with %d and %d bytes, the one before ends at %d", i, at+pos, keySize, valueSize, used)
		}
		e.key, e.value = page[used:used+keySize], page[used+keySize:used+keySize+valueSize]
		used += keySize + valueSize
		if i > 0 && bytes.Compare(list[i-1].key, e.key) >= 0 {
			return nil, 0, fmt.Errorf("key %x comes after %x", e.key, list[i-1].key)
		}
	}
	return list, used, nil
}

// root reads the page that names the buckets.
func (w *pageWalk) root() error {
	kind, list, err := w.node(w.head.root)
	if err != nil {
		return err
	}
	// The first transaction, the third by bbolt's count, makes the buckets.
	if len(list) == 0 && w.tx < 2 {
		return errNeverWritten
	}
	if kind != leafPage || len(list) != 2 {
		return fmt.Errorf("page %d: there are %d buckets, not 2", w.head.root, len(list))
	}
	for i, name := range [][]byte{stableBucket, logBucket} {
		e := list[i]
		if !bytes.Equal(e.key, name) || e.flags != bucketElement || len(e.value) < bucketHead {
			return fmt.Errorf("page %d: %q is no bucket, or in the place of %q", w.head.root, e.key, name)
		}
		if err := w.bucket(name, e.value); err != nil {
			return fmt.Errorf("bucket %q: %w", name, err)
		}
	}
	return nil
}

// bucket of which there is little lies whole in its value; that of term and vote always does.
func (w *pageWalk) bucket(name, value []byte) error {
	id, sequence, inside := binary.NativeEndian.Uint64(value), binary.NativeEndian.Uint64(value[8:]), value[bucketHead:]
	w.before = nil
	if sequence != 0 {
		return fmt.Errorf("has sequence %d, and nobody counts", sequence)
	}
	if id != 0 {
		if len(inside) > 0 || bytes.Equal(name, stableBucket) {
			return fmt.Errorf("is at page %d, and here", id)
		}
		_, err := w.tree(name, id, 0)
		return err
	}
	if len(inside) < pageHead || binary.NativeEndian.Uint64(inside) != 0 || binary.NativeEndian.Uint32(inside[12:]) != 0 ||
		binary.NativeEndian.Uint16(inside[8:]) != leafPage {
		return errors.New("has no page")
	}
	list, used, err := elements(inside, leafPage)
	if err != nil {
		return err
	}
	if used != uint64(len(inside)) {
		return fmt.Errorf("has %d bytes and needs %d", len(inside), used)
	}
	return w.leaf(name, list)
}

// tree visits what lies below a page, whose first key it returns.
func (w *pageWalk) tree(name []byte, id uint64, depth int) (first []byte, err error) {
	kind, list, err := w.node(id)
	switch {
	case err != nil:
		return nil, err
	case len(list) == 0 || depth > maxDepth:
		return nil, fmt.Errorf("page %d: has %d elements at depth %d", id, len(list), depth)
	case kind == leafPage:
		return list[0].key, w.leaf(name, list)
	}
	for _, e := range list {
		key, err := w.tree(name, e.child, depth+1)
		if err != nil {
			return nil, err
		}
		if !bytes.Equal(key, e.key) {
			return nil, fmt.Errorf("page %d: says that page %d begins with key %x, not %x", id, e.child, e.key, key)
		}
	}
	return list[0].key, nil
}

func (w *pageWalk) leaf(name []byte, list []element) error {
	for _, e := range list {
		if w.before != nil && bytes.Compare(w.before, e.key) >= 0 {
			return fmt.Errorf("key %x comes after %x", e.key, w.before)
		}
		w.before = e.key
		if e.flags != 0 {
			return fmt.Errorf("key %x has flags %#x", e.key, e.flags)
		}
		if err := w.visit(name, e.key, e.value); err != nil {
			return err
		}
	}
	return nil
}

// freelist is there only where a program without NoFreelistSync wrote last. bbolt writes over what is in it.
func (w *pageWalk) freelist() error {
	if w.head.freelist == noFreelist {
		return nil
	}
	page, kind, err := w.run(w.head.freelist)
	if err != nil {
		return err
	}
	list := page[pageHead:]
	count := uint64(binary.NativeEndian.Uint16(page[10:]))
	if count == 0xFFFF { // too many for that field
		count, list = binary.NativeEndian.Uint64(list), list[8:]
	}
	if kind != freePage || count > uint64(len(list))/8 {
		return fmt.Errorf("page %d: is of kind %#x, with %d free pages", w.head.freelist, kind, count)
	}
	before := uint64(1)
	for i := range count {
		id := binary.NativeEndian.Uint64(list[8*i:])
		if id <= before || id >= w.end || w.seen[id] {
			return fmt.Errorf("page %d is free and in use, or out of place in the list of free pages", id)
		}
		before = id
	}
	return nil
}
