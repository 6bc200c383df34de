//go:build !linux

package main

import "fmt"

const fullAt, unlimited = 0, 0

func limitFiles(int, uint64) error {
	return fmt.Errorf("%w: only Linux limits another process", errNoEffect)
}
