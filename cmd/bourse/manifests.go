package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	yamlstream "k8s.io/apimachinery/pkg/util/yaml"

	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
)

const (
	// maxManifests of one file: more than anybody reads the plans of.
	maxManifests = 64
	// maxManifestBytes: no blueprint is larger, see v1alpha1.MaxObjectBytes.
	maxManifestBytes = broker.MaxObjectBytes
	// sniffedBytes tell JSON from YAML.
	sniffedBytes = 4096
)

// manifest is a blueprint as the fields that stand in a file.
type manifest struct {
	where           string // for people
	name, namespace string
	object          map[string]any
}

// readManifests reads the blueprints of a file, one of each YAML document or JSON object; - is stdin.
func readManifests(stdin io.Reader, path string) ([]manifest, error) {
	source := stdin
	if path != "-" {
		file, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		defer file.Close() //nolint:errcheck // only read
		source = file
	}
	const most = maxManifests * maxManifestBytes
	text, err := io.ReadAll(io.LimitReader(source, most+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	if len(text) > most {
		return nil, fmt.Errorf("%s is larger than %d bytes", path, most)
	}
	var all []manifest
	documents := yamlstream.NewYAMLOrJSONDecoder(bytes.NewReader(text), sniffedBytes)
	for number := 1; ; number++ {
		var document json.RawMessage
		err := documents.Decode(&document)
		if errors.Is(err, io.EOF) {
			break
		}
		var m manifest
		if err == nil && len(document) > 0 {
			m, err = readManifest(document)
		}
		if m.where = path; number > 1 {
			m.where = fmt.Sprintf("%s, document %d", path, number)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", m.where, err)
		}
		if m.object != nil { // else there are only comments
			all = append(all, m)
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s: no blueprint is in it", path)
	}
	if len(all) > maxManifests {
		return nil, fmt.Errorf("%s: %d blueprints, at most %d", path, len(all), maxManifests)
	}
	return all, nil
}

func readManifest(text []byte) (m manifest, err error) {
	if len(text) > maxManifestBytes {
		return m, fmt.Errorf("larger than %d bytes", maxManifestBytes)
	}
	if err := json.Unmarshal(text, &m.object); err != nil || m.object == nil {
		return m, err
	}
	if m.object["kind"] != "Blueprint" || m.object["apiVersion"] != broker.SchemeGroupVersion.String() {
		return m, fmt.Errorf("apiVersion %v, kind %v: want a %s Blueprint", m.object["apiVersion"], m.object["kind"], broker.SchemeGroupVersion)
	}
	metadata, _ := m.object["metadata"].(map[string]any)
	m.name, _ = metadata["name"].(string)
	m.namespace, _ = metadata["namespace"].(string)
	if m.name == "" {
		return m, errors.New("metadata.name is empty")
	}
	return m, nil
}
