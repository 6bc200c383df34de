package fsm

import (
	"io"
	"maps"
	"slices"
	"strings"
)

// SnapshotInfo is what an operator wants to know of a snapshot.
type SnapshotInfo struct {
	Format    int
	Revision  Revision
	Time      Millis
	Behaviour uint32
	Hash      Hash
	Holds     int
	Results   int
	Tables    []TableInfo // by name
}

// TableInfo counts the rows of one resource.
type TableInfo struct {
	Name string
	Rows int
}

// InspectSnapshot reads and verifies a snapshot as ReadSnapshot does, and describes it.
func InspectSnapshot(r io.Reader) (SnapshotInfo, error) {
	s, err := ReadSnapshot(r)
	if err != nil {
		return SnapshotInfo{}, err
	}
	info := SnapshotInfo{
		Format: snapshotFormat, Revision: s.revision, Time: s.time, Behaviour: s.behaviour,
		Hash: s.Hash(), Results: s.results.len(),
	}
	rows := map[string]int{}
	for row := range s.Scan("") {
		table, _, _ := strings.Cut(row.Key, "/")
		rows[table]++
		if row.Account != nil {
			info.Holds += row.Account.HoldCount()
		}
	}
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		info.Tables = append(info.Tables, TableInfo{Name: name, Rows: rows[name]})
	}
	return info, nil
}
