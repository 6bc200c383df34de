package server

import (
	"github.com/go-logr/logr"
	"github.com/hashicorp/go-hclog"
	"k8s.io/klog/v2"
)

// RedirectKlog sends what the Kubernetes libraries log into our logger. It is process-wide: cmd calls
// it once, before anything of theirs runs.
func RedirectKlog(logger hclog.Logger) {
	klog.SetLoggerWithOptions(logr.New(hclogSink{logger: logger}), klog.ContextualLogger(true))
}

// klogDebugLevel: klog's -v levels from here on are debug to us. Its level 0 to 1 are what an
// administrator would want to see; of a library that is still only detail.
const klogDebugLevel = 2

// hclogSink writes logr's lines as hclog's.
type hclogSink struct{ logger hclog.Logger }

func (hclogSink) Init(logr.RuntimeInfo) {}

func (s hclogSink) Enabled(level int) bool {
	if level < klogDebugLevel {
		return s.logger.IsInfo()
	}
	return s.logger.IsTrace()
}

func (s hclogSink) Info(level int, message string, pairs ...any) {
	if level < klogDebugLevel {
		s.logger.Debug(message, pairs...)
		return
	}
	s.logger.Trace(message, pairs...)
}

func (s hclogSink) Error(err error, message string, pairs ...any) {
	s.logger.Error(message, append(pairs, "error", err)...)
}

func (s hclogSink) WithValues(pairs ...any) logr.LogSink { return hclogSink{s.logger.With(pairs...)} }
func (s hclogSink) WithName(name string) logr.LogSink    { return hclogSink{s.logger.Named(name)} }
