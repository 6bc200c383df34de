package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/google/uuid"
)

// IdentityFile says whose data directory it lies in.
const IdentityFile = "identity.json"

// The formats that this version knows; a higher one was written by a newer version.
const (
	boltFormat    = 1 // the log is raft.db
	segmentFormat = 2 // the log is in segments: disk_log.go
)

// Identity says whose data directory this is. NodeID and UUID never change.
type Identity struct {
	Format int    `json:"format"`
	NodeID string `json:"nodeID"`
	// UUID is made with the directory: it tells two directories of one node id apart.
	UUID string `json:"uuid"`
	// ClusterID is empty until the node founded, pledged itself to or joined an exchange.
	ClusterID string `json:"clusterID,omitempty"`
	// Founder is the node that founds, or founded, that exchange, as far as this node was asked to pledge itself.
	Founder string `json:"founder,omitempty"`
	// GaveUp is the exchange that this node meant to found but gave up, before it held
	// anything, in favour of ClusterID.
	GaveUp string `json:"gaveUp,omitempty"`
	// Joining says that the exchange exists and that its leader has not let this directory in yet.
	Joining bool `json:"joining,omitempty"`
}

// ErrIdentity says that the data directory belongs to another node or another exchange.
var ErrIdentity = errors.New("the data directory belongs to another node or exchange")

// loadIdentity reads the identity; where there is none and the directory is otherwise empty it makes one up,
// without writing it.
func loadIdentity(dir, nodeID string) (id Identity, isNew bool, err error) {
	path := filepath.Join(dir, IdentityFile)
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		for _, log := range []string{logFile, segmentDir} {
			if _, err := os.Stat(filepath.Join(dir, log)); err == nil {
				return Identity{}, false, fmt.Errorf("%w: %s is missing beside %s: restore it or remove the whole directory",
					ErrCorrupt, path, log)
			}
		}
		return Identity{Format: segmentFormat, NodeID: nodeID, UUID: uuid.NewString()}, true, nil
	}
	if err != nil {
		return Identity{}, false, fmt.Errorf("read identity: %w", err)
	}
	if err := json.Unmarshal(data, &id); err != nil {
		return Identity{}, false, fmt.Errorf("%w: %s: %w", ErrCorrupt, path, err)
	}
	switch {
	case id.Format != boltFormat && id.Format != segmentFormat:
		return Identity{}, false, fmt.Errorf("%w: %s has format %d, this version knows %d to %d",
			ErrCorrupt, path, id.Format, boltFormat, segmentFormat)
	case id.NodeID == "" || uuid.Validate(id.UUID) != nil:
		return Identity{}, false, fmt.Errorf("%w: %s lacks nodeID or uuid", ErrCorrupt, path)
	case id.NodeID != nodeID:
		return Identity{}, false, fmt.Errorf("%w: %s says node %q, the configuration says node-id %q: correct node-id or data-dir",
			ErrIdentity, path, id.NodeID, nodeID)
	}
	return id, false, nil
}

// writeFileAtomic replaces a file so that after a crash either the old or the new content is there.
func writeFileAtomic(path string, data []byte) (err error) {
	tmp := path + ".tmp"
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(tmp)
		}
	}()
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return err
	}
	if err = os.Rename(tmp, path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = d.Sync()
	if closeErr := d.Close(); err == nil {
		err = closeErr
	}
	return err
}

func writeIdentity(dir string, id Identity) error {
	data, err := json.MarshalIndent(id, "", "  ")
	if err != nil {
		return fmt.Errorf("encode identity: %w", err)
	}
	if err := writeFileAtomic(filepath.Join(dir, IdentityFile), append(data, '\n')); err != nil {
		return fmt.Errorf("write identity: %w", err)
	}
	return nil
}
