// Package settings reads one table of options, a flag set, from flags,
// environment and a YAML file, in that order of precedence. The table is the
// only place where an option's name, default and meaning stand: help texts and
// docs/configuration.md are printed from it.
package settings

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"
)

// maxFileBytes bounds a configuration file: a few dozen short lines.
const maxFileBytes = 1 << 20

// Env is the environment variable of an option.
func Env(flag string) string {
	return "BOURSE_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// Load fills every flag that was not given on the command line from the
// environment, else from the YAML file at path (none where path is empty). Keys
// of the file are the flags' names. All faults are reported at once.
func Load(flags *pflag.FlagSet, path string, lookupEnv func(string) (string, bool)) error {
	file, err := readFile(path)
	if err != nil {
		return err
	}
	var faults []error
	flags.VisitAll(func(flag *pflag.Flag) {
		raw, inFile := file[flag.Name]
		delete(file, flag.Name)
		if flag.Changed {
			return
		}
		source, values := "", []string(nil)
		if value, ok := lookupEnv(Env(flag.Name)); ok {
			source, values = Env(flag.Name), []string{value}
		} else if inFile {
			source, values = fmt.Sprintf("%s: %s", path, flag.Name), texts(raw)
		}
		for _, value := range values {
			if err := flags.Set(flag.Name, value); err != nil {
				faults = append(faults, fmt.Errorf("%s: %w", source, err))
			}
		}
	})
	for _, key := range sortedKeys(file) {
		faults = append(faults, fmt.Errorf("%s: unknown key %q", path, key))
	}
	return errors.Join(faults...)
}

func readFile(path string) (map[string]any, error) {
	if path == "" {
		return nil, nil
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read the configuration: %w", err)
	}
	defer file.Close() //nolint:errcheck // only read
	data, err := io.ReadAll(io.LimitReader(file, maxFileBytes+1))
	if err != nil {
		return nil, fmt.Errorf("read the configuration %s: %w", path, err)
	}
	if len(data) > maxFileBytes {
		return nil, fmt.Errorf("the configuration %s is larger than %d bytes", path, maxFileBytes)
	}
	values := map[string]any{}
	if err := yaml.UnmarshalStrict(data, &values); err != nil {
		return nil, fmt.Errorf("read the configuration %s: %w", path, err)
	}
	return values, nil
}

// texts turns a YAML value into what pflag reads: a list or a map into one Set each.
func texts(value any) []string {
	var out []string
	switch v := value.(type) {
	case []any:
		for _, element := range v {
			out = append(out, fmt.Sprint(element))
		}
	case map[string]any:
		for _, key := range sortedKeys(v) {
			out = append(out, fmt.Sprintf("%s=%v", key, v[key]))
		}
	default:
		out = append(out, fmt.Sprint(v))
	}
	return out
}

func sortedKeys(m map[string]any) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// Markdown writes the table of options as a Markdown table.
func Markdown(w io.Writer, flags *pflag.FlagSet) error {
	lines := []string{"| key and flag | environment | default | meaning |", "| --- | --- | --- | --- |"}
	flags.VisitAll(func(flag *pflag.Flag) {
		standard := "`" + flag.DefValue + "`"
		if flag.DefValue == "" || flag.DefValue == "[]" {
			standard = ""
		}
		lines = append(lines, fmt.Sprintf("| `%s` | `%s` | %s | %s |", flag.Name, Env(flag.Name), standard, flag.Usage))
	})
	_, err := io.WriteString(w, strings.Join(lines, "\n")+"\n")
	return err
}
