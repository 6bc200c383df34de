package dev

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
)

// nodePorts are one broker node's addresses on loopback.
type nodePorts struct {
	API    string `json:"api"`
	Raft   string `json:"raft"`
	Gossip string `json:"gossip"`
}

// loadPorts returns the addresses of a former run where they are still free, else new ones, and
// remembers them: nodes that come back at the same addresses find each other at once.
func loadPorts(dir string, ids []string) (map[string]nodePorts, error) {
	path := filepath.Join(dir, "ports.json")
	known := map[string]nodePorts{}
	data, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(data, &known)
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	// All listeners stay open until every address is chosen, so that none is chosen twice.
	var open []net.Listener
	defer func() {
		for _, listener := range open {
			listener.Close() //nolint:errcheck // only held to keep the port
		}
	}()
	choose := func(address string) (string, error) {
		listener, err := net.Listen("tcp", address)
		if address == "" || err != nil {
			listener, err = net.Listen("tcp", "127.0.0.1:0")
		}
		if err != nil {
			return "", fmt.Errorf("find a free port: %w", err)
		}
		open = append(open, listener)
		return listener.Addr().String(), nil
	}
	for _, id := range ids {
		ports := known[id]
		for _, address := range []*string{&ports.API, &ports.Raft, &ports.Gossip} {
			if *address, err = choose(orAny(*address)); err != nil {
				return nil, err
			}
		}
		known[id] = ports
	}
	data, err = json.MarshalIndent(known, "", "  ")
	if err != nil {
		return nil, err
	}
	return known, os.WriteFile(path, append(data, '\n'), 0o644)
}

func orAny(address string) string {
	if address == "" {
		return "127.0.0.1:0"
	}
	return address
}
