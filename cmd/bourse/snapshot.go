package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse/fsm"
)

func newSnapshotCommand() *cobra.Command {
	command := &cobra.Command{Use: "snapshot", Short: "Save the exchange's state, or look into a saved one"}
	command.AddCommand(newSnapshotSaveCommand(), newSnapshotInspectCommand())
	return command
}

func newSnapshotSaveCommand() *cobra.Command {
	var c client
	command := &cobra.Command{
		Use:     "save FILE",
		Short:   "Save a snapshot of the state",
		Example: "  bourse snapshot save backup.snap",
		Args:    cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			exchange, err := c.connect()
			if err != nil {
				return err
			}
			path := args[0]
			partial := path + ".partial"
			file, err := os.OpenFile(partial, os.O_CREATE|os.O_TRUNC|os.O_RDWR, 0o600)
			if err != nil {
				return err
			}
			size, err := exchange.Snapshot(command.Context(), file)
			if err == nil {
				// What was cut off on the way must not look like a backup.
				_, err = inspect(file)
			}
			err = errors.Join(err, file.Sync(), file.Close())
			if err == nil {
				err = os.Rename(partial, path)
			}
			if err != nil {
				return errors.Join(fmt.Errorf("save a snapshot to %s: %w", path, err), os.Remove(partial))
			}
			command.Printf("saved %s, %d bytes, verified\n", path, size)
			return nil
		},
	}
	c.flags(command.Flags())
	return command
}

func newSnapshotInspectCommand() *cobra.Command {
	var c client
	command := &cobra.Command{
		Use:     "inspect FILE",
		Short:   "Verify a saved snapshot and say what is in it",
		Example: "  bourse snapshot inspect backup.snap",
		Args:    cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			file, err := os.Open(args[0])
			if err != nil {
				return err
			}
			defer file.Close() //nolint:errcheck // only read
			info, err := inspect(file)
			if err != nil {
				return fmt.Errorf("inspect %s: %w", args[0], err)
			}
			return c.print(command, info, func(w io.Writer) error {
				rows := [][]string{
					{"revision", fmt.Sprint(info.Revision)},
					{"state time", time.UnixMilli(int64(info.Time)).UTC().Format(time.RFC3339)},
					{"behaviour version", fmt.Sprint(info.Behaviour)},
					{"hash", info.Hash.String()},
					{"holds", fmt.Sprint(info.Holds)},
				}
				for _, t := range info.Tables {
					rows = append(rows, []string{t.Name, fmt.Sprint(t.Rows)})
				}
				return table(w, rows)
			})
		},
	}
	c.flags(command.Flags())
	return command
}

func inspect(file *os.File) (*fsm.SnapshotInfo, error) {
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	info, err := fsm.InspectSnapshot(file)
	return &info, err
}
