// SPDX-License-Identifier: Apache-2.0

package simcard

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tranche-dra/tranche/pkg/card"
)

const (
	// Dir is where containers have their simulated cards. A node has all of
	// its cards in such a directory.
	Dir = "/run/tranche/cards"
	// DirEnv names another directory of cards, for tests and tools.
	DirEnv = "TRANCHE_SIM_CARDS"

	cardFile = "card"
	memFile  = "mem"
	pidsFile = "pids"
)

// Create makes a card below dir, which is made as well if it is missing, and
// returns the card's own directory, named by the UUID. Either the whole card
// appears or nothing. A card that exists with the same facts is left alone, with
// what is on it; other facts are ErrDiffers, with the differences.
func Create(dir string, config Config) (string, error) {
	config = config.withDefaults()
	if err := config.validate(); err != nil {
		return "", err
	}
	path := filepath.Join(dir, string(config.UUID))
	if _, err := os.Lstat(path); err == nil {
		return path, compare(path, config)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // any user of a container looks in here
		return "", fmt.Errorf("make directory of simulated cards: %w", err)
	}
	aside, err := os.MkdirTemp(dir, ".new-")
	if err != nil {
		return "", fmt.Errorf("make simulated card: %w", err)
	}
	err = errors.Join(fill(aside, config), os.Chmod(aside, 0o755)) //nolint:gosec // as above
	if err == nil {
		err = os.Rename(aside, path)
	}
	if err == nil {
		return path, nil
	}
	err = errors.Join(err, os.RemoveAll(aside))
	if errors.Is(err, fs.ErrExist) || errors.Is(err, unix.ENOTEMPTY) {
		// Somebody else was faster.
		return path, compare(path, config)
	}
	return "", fmt.Errorf("make simulated card: %w", err)
}

// fill writes the files of a card. The magic number is there only when all the
// rest is: the directory gets its name afterwards.
func fill(dir string, config Config) error {
	var facts bytes.Buffer
	if err := binary.Write(&facts, binary.NativeEndian, facing(config)); err != nil {
		return err
	}
	for _, f := range []struct {
		name string
		size int64
		head []byte
	}{
		{memFile, int64(config.Memory), nil}, //nolint:gosec // at most 256 GiB
		{pidsFile, 0, nil},
		{cardFile, cardSize, facts.Bytes()},
	} {
		if err := writeSparse(filepath.Join(dir, f.name), f.size, f.head); err != nil {
			return err
		}
	}
	return nil
}

func writeSparse(path string, size int64, head []byte) (err error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if err := file.Truncate(size); err != nil {
		return err
	}
	if _, err := file.WriteAt(head, 0); err != nil {
		return err
	}
	// Every user of every container that has the card writes these.
	return file.Chmod(0o666)
}

// facing is the configuration as the card carries it. The fields are exported
// for package binary, in the order of factsLayout.
func facing(c Config) factsOnDisk {
	f := factsOnDisk{
		Magic: magic, Version: version, Size: uint32(cardSize),
		MemoryTotal: c.Memory, MemoryDriver: c.DriverMemory, ContextBytes: c.ContextBytes,
		TimeSlice: uint64(c.TimeSlice), CopyBytesPerSecond: c.CopyBytesPerSecond, //nolint:gosec // positive
	}
	copy(f.UUID[:], c.UUID)
	copy(f.Name[:], c.Name)
	copy(f.PCIBusID[:], c.PCIBusID)
	copy(f.DriverVersion[:], c.DriverVersion)
	for i, n := range []int{c.CUDAVersion, c.Profile, c.Index, c.Minor, c.ComputeMajor, c.ComputeMinor, c.Multiprocessors, c.ThreadsPerMultiprocessor} {
		f.Numbers[i] = uint32(n) //nolint:gosec // validated
	}
	return f
}

type factsOnDisk struct {
	Magic         uint64
	Version, Size uint32
	UUID          [64]byte
	Name          [96]byte
	PCIBusID      [32]byte
	DriverVersion [32]byte
	Numbers       [8]uint32

	MemoryTotal, MemoryDriver, ContextBytes, TimeSlice, CopyBytesPerSecond uint64
}

// compare tells what an existing card has otherwise than wanted.
func compare(path string, want Config) (err error) {
	existing, err := Open(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, existing.Close()) }()
	var differences []string
	have := existing.Config()
	differ := func(what string, has, wants any) {
		if has != wants {
			differences = append(differences, fmt.Sprintf("%s is %v, not %v", what, has, wants))
		}
	}
	differ("UUID", have.UUID, want.UUID)
	differ("name", have.Name, want.Name)
	differ("PCI bus id", have.PCIBusID, want.PCIBusID)
	differ("driver version", have.DriverVersion, want.DriverVersion)
	differ("CUDA version", have.CUDAVersion, want.CUDAVersion)
	differ("profile", have.Profile, want.Profile)
	differ("index", have.Index, want.Index)
	differ("minor", have.Minor, want.Minor)
	differ("compute capability", fmt.Sprintf("%d.%d", have.ComputeMajor, have.ComputeMinor), fmt.Sprintf("%d.%d", want.ComputeMajor, want.ComputeMinor))
	differ("number of multiprocessors", have.Multiprocessors, want.Multiprocessors)
	differ("threads per multiprocessor", have.ThreadsPerMultiprocessor, want.ThreadsPerMultiprocessor)
	differ("memory", have.Memory, want.Memory)
	differ("driver's memory", have.DriverMemory, want.DriverMemory)
	differ("size of a context", have.ContextBytes, want.ContextBytes)
	differ("time slice", have.TimeSlice, want.TimeSlice)
	differ("speed of copies", have.CopyBytesPerSecond, want.CopyBytesPerSecond)
	if len(differences) > 0 {
		return fmt.Errorf("%w: %s: %s", ErrDiffers, path, strings.Join(differences, "; "))
	}
	return nil
}

// List gives the directories of the cards below dir, sorted by name. A dir that
// is missing has none.
func List(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list simulated cards: %w", err)
	}
	var paths []string
	for _, e := range entries {
		if uuidForm.MatchString(e.Name()) {
			paths = append(paths, filepath.Join(dir, e.Name()))
		}
	}
	return paths, nil
}

// Path is the directory of a card below dir.
func Path(dir string, id card.UUID) string { return filepath.Join(dir, string(id)) }
