// SPDX-License-Identifier: Apache-2.0

package simcard

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tranche-dra/tranche/pkg/card"
)

// Card is an open simulated card.
type Card struct {
	path   string
	config Config
	shared *cardLayout
	mapped []byte
	file   *os.File
	pids   *os.File
}

// Open maps the card whose directory path is, to look at it. Close it after use.
func Open(path string) (c *Card, err error) {
	file, err := os.OpenFile(filepath.Join(path, cardFile), os.O_RDONLY, 0)
	if err != nil {
		return nil, fmt.Errorf("open simulated card: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, file.Close())
		}
	}()
	info, err := file.Stat()
	if err != nil {
		return nil, fmt.Errorf("open simulated card: %w", err)
	}
	if info.Size() != cardSize {
		return nil, fmt.Errorf("%w: %s has %d bytes, want %d", ErrNotACard, file.Name(), info.Size(), cardSize)
	}
	pids, err := os.OpenFile(filepath.Join(path, pidsFile), os.O_RDONLY, 0)
	if err != nil {
		return nil, fmt.Errorf("open simulated card: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, pids.Close())
		}
	}()
	mapped, err := unix.Mmap(int(file.Fd()), 0, int(cardSize), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map simulated card: %w", err)
	}
	c = &Card{path: path, mapped: mapped, file: file, pids: pids}
	c.shared = (*cardLayout)(unsafe.Pointer(unsafe.SliceData(mapped))) //nolint:gosec // the mapping is as large as the structure, and page-aligned
	f := &c.shared.facts
	if f.magic != magic || f.version != version || int64(f.size) != cardSize {
		err := fmt.Errorf("%w: %s: magic %#x, version %d, size %d; want %#x, %d, %d",
			ErrNotACard, file.Name(), f.magic, f.version, f.size, uint64(magic), version, cardSize)
		return nil, errors.Join(err, unix.Munmap(mapped))
	}
	c.config = c.readConfig()
	return c, nil
}

// Close ends the use of the card. What Truth returned stays valid.
func (c *Card) Close() error {
	return errors.Join(unix.Munmap(c.mapped), c.file.Close(), c.pids.Close())
}

// Path is the card's directory.
func (c *Card) Path() string { return c.path }

// Config are the card's facts.
func (c *Card) Config() Config { return c.config }

func (c *Card) readConfig() Config {
	f := &c.shared.facts
	return Config{
		UUID: card.UUID(text(f.uuid[:])), Name: text(f.name[:]), PCIBusID: text(f.pciBusID[:]),
		Memory: f.memoryTotal, DriverMemory: f.memoryDriver, ContextBytes: f.contextBytes,
		DriverVersion: text(f.driverVersion[:]), CUDAVersion: int(f.cudaVersion), Profile: int(f.profile),
		Index: int(f.index), Minor: int(f.minor), ComputeMajor: int(f.computeMajor), ComputeMinor: int(f.computeMinor),
		Multiprocessors: int(f.multiprocessors), ThreadsPerMultiprocessor: int(f.threadsPerMultiprocessor),
		TimeSlice: time.Duration(f.timeSlice), CopyBytesPerSecond: f.copyBytesPerSecond, //nolint:gosec // at most a second
	}
}
