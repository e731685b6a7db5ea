// SPDX-License-Identifier: Apache-2.0

package simcard_test

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-dra/tranche/pkg/card"
	"github.com/tranche-dra/tranche/pkg/simcard"
)

const someUUID = card.UUID("GPU-8f3c2a10-5b7e-4c21-9d0a-000000000000")

func some() simcard.Config { return simcard.Config{UUID: someUUID, Memory: 8 << 30} }

func create(t *testing.T, config simcard.Config) string {
	t.Helper()
	path, err := simcard.Create(t.TempDir(), config)
	require.NoError(t, err)
	return path
}

func open(t *testing.T, path string) *simcard.Card {
	t.Helper()
	c, err := simcard.Open(path)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

func TestANewCardHasItsFactsAndNothingElse(t *testing.T) {
	t.Parallel()
	path := create(t, simcard.Config{
		UUID: someUUID, Memory: 24 << 30, DriverMemory: 512 << 20, Name: "NVIDIA A10", PCIBusID: "00000000:1b:00.0", Profile: 535, Index: 3, Minor: 5,
		ComputeMajor: 9, ContextBytes: 300 << 20, TimeSlice: time.Millisecond,
	})
	c := open(t, path)
	require.Equal(t, simcard.Config{
		UUID: someUUID, Memory: 24 << 30, DriverMemory: 512 << 20, Name: "NVIDIA A10", PCIBusID: "00000000:1b:00.0", Profile: 535, Index: 3, Minor: 5,
		DriverVersion: "535.183.06", CUDAVersion: 12020, ComputeMajor: 9, Multiprocessors: 72, ThreadsPerMultiprocessor: 1536,
		ContextBytes: 300 << 20, TimeSlice: time.Millisecond, CopyBytesPerSecond: 24e9,
	}, c.Config())
	truth, err := c.Truth()
	require.NoError(t, err)
	require.Equal(t, simcard.Truth{Total: 24 << 30, Driver: 512 << 20}, truth)
	require.NoError(t, c.Audit())
	require.Empty(t, c.Runs(0))
	require.Equal(t, path, c.Path())
}

func TestAnyUserOfAContainerCanUseACard(t *testing.T) {
	t.Parallel()
	path := create(t, some())
	for name, mode := range map[string]os.FileMode{"": 0o755, "card": 0o666, "mem": 0o666, "pids": 0o666} {
		info, err := os.Stat(filepath.Join(path, name))
		require.NoError(t, err)
		require.Equal(t, mode, info.Mode().Perm(), name)
	}
	info, err := os.Stat(filepath.Join(path, "mem"))
	require.NoError(t, err)
	require.EqualValues(t, 8<<30, info.Size())
}

func TestCreatingACardAgain(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(*simcard.Config)
		says   string
	}{
		"the same facts keep it": {func(*simcard.Config) {}, ""},
		"another size is refused": {
			func(c *simcard.Config) { c.Memory = 4 << 30 }, "memory is 8589934592, not 4294967296",
		},
		"another driver is refused, and all that it changes is named": {
			func(c *simcard.Config) { c.Profile = 470 },
			"driver version is 550.54.14, not 470.256.02; CUDA version is 12040, not 11040; profile is 550, not 470",
		},
		"another context size is refused": {
			func(c *simcard.Config) { c.ContextBytes = 2 << 20 }, "size of a context is 268435456, not 2097152",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := create(t, some())
			config := some()
			tc.change(&config)
			again, err := simcard.Create(filepath.Dir(path), config)
			require.Equal(t, path, again)
			if tc.says == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, simcard.ErrDiffers)
			require.ErrorContains(t, err, tc.says)
		})
	}
}

func TestManyWhoCreateOneCardAllGetIt(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var group sync.WaitGroup
	errs := make([]error, 16)
	for i := range errs {
		group.Go(func() { _, errs[i] = simcard.Create(dir, some()) })
	}
	group.Wait()
	for _, err := range errs {
		require.NoError(t, err)
	}
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 1, "nothing half-made is left")
}

func TestFactsThatCannotBe(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(*simcard.Config)
		says   string
	}{
		"no UUID":              {func(c *simcard.Config) { c.UUID = "" }, `UUID "": want GPU-`},
		"a path for a UUID":    {func(c *simcard.Config) { c.UUID = "../x" }, `UUID "../x"`},
		"no memory":            {func(c *simcard.Config) { c.Memory = 0 }, "memory of 0 bytes"},
		"half a frame":         {func(c *simcard.Config) { c.Memory = 8<<30 + 1<<20 }, "want a multiple of 2097152"},
		"too much memory":      {func(c *simcard.Config) { c.Memory = 1 << 40 }, "want at most 274877906944"},
		"all for the driver":   {func(c *simcard.Config) { c.DriverMemory = c.Memory }, "driver's memory"},
		"half a context":       {func(c *simcard.Config) { c.ContextBytes = 1 }, "context of 1 bytes"},
		"an unknown profile":   {func(c *simcard.Config) { c.Profile = 999 }, "profile 999: want 470, 535, 550 or 580"},
		"a strange PCI bus id": {func(c *simcard.Config) { c.PCIBusID = "1b:00.0" }, `PCI bus id "1b:00.0"`},
		"no version":           {func(c *simcard.Config) { c.DriverVersion = "new" }, `driver version "new"`},
		"a negative index":     {func(c *simcard.Config) { c.Index = -1 }, "index -1: want 0 to 255"},
		"no time":              {func(c *simcard.Config) { c.TimeSlice = 1 }, "time slice 1ns"},
		"slow copies":          {func(c *simcard.Config) { c.CopyBytesPerSecond = 1 }, "1 bytes copied a second"},
		"a long name":          {func(c *simcard.Config) { c.Name = string(make([]byte, 96)) }, "want at most 95 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config := some()
			tc.change(&config)
			_, err := simcard.Create(t.TempDir(), config)
			require.ErrorIs(t, err, simcard.ErrConfig)
			require.ErrorContains(t, err, tc.says)
		})
	}
}

func TestFactsOfACardThatTheNodeLists(t *testing.T) {
	t.Parallel()
	listed := card.Card{
		UUID: someUUID, Index: 2, Minor: 2, ProductName: "NVIDIA H100 80GB HBM3", ComputeCapability: "9.0", DriverVersion: "580.65.06", CUDAVersion: "13.0",
		PCIBusID: "00000000:18:00.0", Memory: 81559,
	}
	config, err := simcard.FromCard(listed)
	require.NoError(t, err)
	require.Equal(t, simcard.Config{
		UUID: someUUID, Index: 2, Minor: 2, Name: "NVIDIA H100 80GB HBM3", ComputeMajor: 9, DriverVersion: "580.65.06", CUDAVersion: 13000, Profile: 580,
		PCIBusID: "00000000:18:00.0", Memory: 81560 << 20, Multiprocessors: 72, ThreadsPerMultiprocessor: 1536, ContextBytes: 256 << 20,
		TimeSlice: 2 * time.Millisecond, CopyBytesPerSecond: 24e9,
	}, config)

	for name, change := range map[string]func(*card.Card){
		"unknown memory":              func(c *card.Card) { c.Memory = 0 },
		"a UUID that is none":         func(c *card.Card) { c.UUID = "GPU-1" },
		"a strange capability":        func(c *card.Card) { c.ComputeCapability = "9" },
		"a strange version of CUDA":   func(c *card.Card) { c.CUDAVersion = "a.b" },
		"a strange driver":            func(c *card.Card) { c.DriverVersion = "x" },
		"memory that no frames cover": func(c *card.Card) { c.Memory = 300 << 10 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			other := listed
			change(&other)
			_, err := simcard.FromCard(other)
			require.ErrorIs(t, err, simcard.ErrConfig)
		})
	}
}

func TestDirectoriesThatAreNoCards(t *testing.T) {
	t.Parallel()
	path := create(t, some())
	_, err := simcard.Open(filepath.Join(path, "missing"))
	require.ErrorIs(t, err, os.ErrNotExist)

	require.NoError(t, os.WriteFile(filepath.Join(path, "card"), []byte("x"), 0o600))
	_, err = simcard.Open(path)
	require.ErrorIs(t, err, simcard.ErrNotACard)

	path = create(t, some())
	file, err := os.OpenFile(filepath.Join(path, "card"), os.O_RDWR, 0)
	require.NoError(t, err)
	_, err = file.WriteAt([]byte{9}, 8)
	require.NoError(t, err)
	require.NoError(t, file.Close())
	_, err = simcard.Open(path)
	require.ErrorIs(t, err, simcard.ErrNotACard)
	require.ErrorContains(t, err, "version 9")
	_, err = simcard.Create(filepath.Dir(path), some())
	require.ErrorIs(t, err, simcard.ErrNotACard)
}

func TestListingCards(t *testing.T) {
	t.Parallel()
	none, err := simcard.List(filepath.Join(t.TempDir(), "missing"))
	require.NoError(t, err)
	require.Empty(t, none)

	path := create(t, some())
	dir := filepath.Dir(path)
	require.NoError(t, os.Mkdir(filepath.Join(dir, ".new-1"), 0o700))
	cards, err := simcard.List(dir)
	require.NoError(t, err)
	require.Equal(t, []string{path}, cards)
	require.Equal(t, path, simcard.Path(dir, someUUID))
}
