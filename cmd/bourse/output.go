package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/bourse-dev/bourse/cmd/internal/exchange"
)

// client holds the flags that every operator's command has.
type client struct {
	kubeconfig, namespace, output string
}

func (c *client) flags(flags *pflag.FlagSet) {
	flags.StringVar(&c.kubeconfig, "kubeconfig", "", "kubeconfig of the exchange (default: as kubectl finds it)")
	flags.StringVarP(&c.namespace, "namespace", "n", "", "namespace (default: the context's)")
	flags.StringVarP(&c.output, "output", "o", "", "output format: json, or empty for people")
}

func (c *client) connect() (*exchange.Client, error) {
	if c.output != "" && c.output != "json" {
		return nil, usageError{fmt.Errorf("--output %q: must be json or empty", c.output)}
	}
	return exchange.Connect(c.kubeconfig, c.namespace)
}

// print writes value as JSON where that was asked for, else calls text.
func (c *client) print(command *cobra.Command, value any, text func(io.Writer) error) error {
	if c.output == "json" {
		encoder := json.NewEncoder(command.OutOrStdout())
		encoder.SetIndent("", "  ")
		return encoder.Encode(value)
	}
	return text(command.OutOrStdout())
}

// table prints rows with aligned columns. Cells may be coloured: only what is seen counts for the width.
func table(w io.Writer, rows [][]string) error {
	widths := map[int]int{}
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], seenWidth(cell))
		}
	}
	for _, row := range rows {
		var line strings.Builder
		for i, cell := range row {
			line.WriteString(cell)
			if i < len(row)-1 {
				line.WriteString(strings.Repeat(" ", widths[i]-seenWidth(cell)+3))
			}
		}
		if _, err := fmt.Fprintln(w, strings.TrimRight(line.String(), " ")); err != nil {
			return err
		}
	}
	return nil
}

const (
	green  = "\x1b[32m"
	yellow = "\x1b[33m"
	red    = "\x1b[31m"
	faint  = "\x1b[2m"
	reset  = "\x1b[0m"
)

// paint colours text only where w is a terminal and NO_COLOR is not set.
func paint(w io.Writer, colour, text string) string {
	file, ok := w.(*os.File)
	if _, off := os.LookupEnv("NO_COLOR"); off || !ok || !term.IsTerminal(int(file.Fd())) {
		return text
	}
	return colour + text + reset
}

func seenWidth(cell string) int {
	for _, code := range []string{green, yellow, red, faint, reset} {
		cell = strings.ReplaceAll(cell, code, "")
	}
	return len([]rune(cell))
}

// bar draws shares of a whole as one bar of width cells, one rune for each share, the rest empty.
func bar(width int, whole int64, shares []int64, runes []rune) string {
	cells := slices.Repeat([]rune{'·'}, width)
	if whole <= 0 {
		return string(cells)
	}
	position, sum := 0, int64(0)
	for i, share := range shares {
		sum += share
		end := min(width, int((sum*int64(width)+whole/2)/whole))
		for ; position < end; position++ {
			cells[position] = runes[i]
		}
	}
	return string(cells)
}
