package store

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// segmentOf packs appends of these sizes into a segment of so many sectors.
func segmentOf(sectors int, sizes ...int) (segment []byte, payloads [][]byte) {
	segment = make([]byte, sectors*sectorSize)
	at := 0
	for i, size := range sizes {
		payload := bytes.Repeat([]byte{byte(i)}, size) // the first is all zero, and still no sector of it is blank
		at += copy(segment[at:], packSectors(place{7, uint64(at / sectorSize)}, uint32(i+1), payload))
		payloads = append(payloads, payload)
	}
	return segment, payloads
}

func scanned(segment []byte) (found [][]byte, s segmentScan, err error) {
	s, err = scanSegment(7, segment, func(_ int, payload []byte) error {
		found = append(found, payload)
		return nil
	})
	return found, s, err
}

func requirePayloads(t *testing.T, want, got [][]byte) {
	t.Helper()
	require.Len(t, got, len(want))
	for i := range want {
		require.Equal(t, want[i], got[i][:len(want[i])])
		require.Zero(t, bytes.Trim(got[i][len(want[i]):], "\x00"), "padding")
	}
}

func TestAppendsAreReadAsWritten(t *testing.T) {
	t.Parallel()
	segment, want := segmentOf(20, 1, 500, 501, 3000)
	got, s, err := scanned(segment)
	require.NoError(t, err)
	require.Equal(t, segmentScan{appends: 4, end: 10}, s)
	requirePayloads(t, want, got)
}

func TestEveryFlippedBitOfASegmentIsFound(t *testing.T) {
	t.Parallel()
	segment, _ := segmentOf(8, 1, 700, 900)
	for bit := range len(segment) * 8 {
		segment[bit/8] ^= 1 << (bit % 8)
		_, _, err := scanned(segment)
		require.Error(t, err, "bit %d of byte %d", bit%8, bit/8)
		segment[bit/8] ^= 1 << (bit % 8)
	}
}

// Each sector of the last append may be on disk or not; nothing before it is in doubt.
func TestATornAppendIsNoDamageAndAsIfItHadNotBeen(t *testing.T) {
	t.Parallel()
	segment, want := segmentOf(12, 1, 700, 2300)
	const from, sectors = 3, 5
	for written := range 1<<sectors - 1 {
		torn := bytes.Clone(segment)
		for i := range sectors {
			if written&(1<<i) == 0 {
				clear(torn[(from+i)*sectorSize:][:sectorSize])
			}
		}
		got, s, err := scanned(torn)
		require.NoError(t, err, "%b", written)
		require.Equal(t, segmentScan{appends: 2, end: from, torn: s.torn}, s)
		require.Equal(t, written != 0, s.torn > 0)
		requirePayloads(t, want[:2], got)
		if written == 0 {
			continue
		}
		flip := from*sectorSize + rand.IntN(sectors*sectorSize)
		torn[flip] ^= 1
		_, _, err = scanned(torn)
		require.Error(t, err, "a flipped bit in a torn append, byte %d", flip)
	}
}

func TestASectorOfAnotherPlaceOrAMissingAppendIsDamage(t *testing.T) {
	t.Parallel()
	whole, _ := segmentOf(12, 1, 700, 900)
	for name, change := range map[string]func(b []byte){
		"a blank sector before the last append": func(b []byte) { clear(b[sectorSize:][:sectorSize]) },
		"a whole append missing":                func(b []byte) { clear(b[sectorSize:][:2*sectorSize]) },
		"a sector twice":                        func(b []byte) { copy(b[sectorSize:], b[:sectorSize]) },
		"sectors in other order":                func(b []byte) { copy(b[3*sectorSize:], whole[4*sectorSize:][:sectorSize]) },
	} {
		b := bytes.Clone(whole)
		change(b)
		_, _, err := scanned(b)
		require.Error(t, err, name)
	}
	_, err := scanSegment(8, whole, func(int, []byte) error { return nil })
	require.ErrorIs(t, err, errChecksum, "a segment under the name of another")
}
