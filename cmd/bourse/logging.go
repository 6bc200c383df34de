package main

import (
	"fmt"
	"io"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/pflag"
)

// logFlags choose what is logged and how.
type logFlags struct {
	level string
	json  bool
}

func (l *logFlags) flags(flags *pflag.FlagSet) {
	flags.StringVar(&l.level, "log-level", "info", "trace, debug, info, warn or error")
	flags.BoolVar(&l.json, "log-json", false, "log JSON lines")
}

func (l *logFlags) logger(w io.Writer) (hclog.Logger, error) {
	level := hclog.LevelFromString(l.level)
	if level == hclog.NoLevel {
		return nil, fmt.Errorf("--log-level %q: must be trace, debug, info, warn or error", l.level)
	}
	return hclog.New(&hclog.LoggerOptions{Name: "bourse", Level: level, Output: w, JSONFormat: l.json}), nil
}
