package fsm

import (
	"bufio"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// childEnv makes the test binary the other process.
const childEnv = "BOURSE_FSM_TEST_CHILD"

type child struct {
	in  io.Writer
	out *bufio.Reader
}

func startChild(t *testing.T) *child {
	exe, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), childEnv+"=1")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		require.NoError(t, in.Close())
		require.NoError(t, cmd.Wait())
	})
	return &child{in: in, out: bufio.NewReader(out)}
}

func (c *child) replay(t *rapid.T, entries [][]byte) string {
	if _, err := c.in.Write(frames(entries)); err != nil {
		t.Fatalf("child: %v", err)
	}
	line, err := c.out.ReadString('\n')
	if err != nil {
		t.Fatalf("child: %v", err)
	}
	return strings.TrimSpace(line)
}

// fingerprint is the state's hash and that of its snapshot's bytes.
func fingerprint(s *State) string {
	digest := sha256.New()
	if err := WriteSnapshot(digest, s); err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%s %x", s.Hash(), digest.Sum(nil))
}

// replayChild answers each command list with the fingerprint of the state it makes.
func replayChild(in io.Reader, out io.Writer) error {
	from := bufio.NewReader(in)
	for {
		entries, err := readFrames(from)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		s := New()
		for _, data := range entries {
			next, err := s.Apply(data)
			if err != nil {
				return err
			}
			s = next.State
		}
		if _, err := fmt.Fprintln(out, fingerprint(s)); err != nil {
			return err
		}
	}
}

// frames packs a command list for the child and the golden file.
func frames(entries [][]byte) []byte {
	b := binary.AppendUvarint(nil, uint64(len(entries)))
	for _, e := range entries {
		b = append(binary.AppendUvarint(b, uint64(len(e))), e...)
	}
	return b
}

func readFrames(from *bufio.Reader) (entries [][]byte, err error) {
	n, err := binary.ReadUvarint(from)
	if err != nil {
		return nil, err
	}
	for range n {
		size, err := binary.ReadUvarint(from)
		if err != nil {
			return nil, err
		}
		data := make([]byte, size)
		if _, err := io.ReadFull(from, data); err != nil {
			return nil, err
		}
		entries = append(entries, data)
	}
	return entries, nil
}
