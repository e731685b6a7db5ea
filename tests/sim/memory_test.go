// SPDX-License-Identifier: Apache-2.0

//go:build native

package sim_test

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranche-dra/tranche/pkg/card"
	"github.com/tranche-dra/tranche/pkg/simcard"
	"github.com/tranche-dra/tranche/tests/rig"
)

// driver is the directory with the simulated libcuda and the programs of
// memory/; made once, with the sanitizer that FLAVOUR names.
var driver = sync.OnceValues(func() (string, error) {
	root, err := built()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(root, "driver")
	library := filepath.Join(dir, "libcuda.so.1")
	err = cmp.Or(os.Mkdir(dir, 0o700), os.Link(filepath.Join(root, "libcuda-real.so.1"), library))
	sources, _ := filepath.Glob("memory/*.c")
	for _, source := range sources {
		program := filepath.Join(dir, strings.TrimSuffix(filepath.Base(source), ".c"))
		err = cmp.Or(err, compile(program, source, library, "-ldl"))
	}
	return dir, err
})

// twoCards are one that programs fill up, and one beside it.
func twoCards(memory uint64, profile int) []simcard.Config {
	return []simcard.Config{
		{UUID: firstUUID, Memory: memory, DriverMemory: 64 * mib, ContextBytes: 64 * mib, Profile: profile},
		{UUID: secondUUID, Memory: 1 << 30, ContextBytes: 64 * mib, Index: 1, Profile: profile},
	}
}

// program is a program of memory/ with the cards of m.
func (m machine) program(t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	dir, err := driver()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), filepath.Join(dir, name), args...)
	cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+dir, simcard.DirEnv+"="+m.cards)
	for i, id := range []card.UUID{firstUUID, secondUUID} {
		cmd.Env = append(cmd.Env, fmt.Sprintf("TEST_CARD_%d=%s", i, simcard.Path(m.cards, id)))
	}
	return cmd
}

// nothingIsHeld looks at the cards after all programs have ended.
func (m machine) nothingIsHeld(t *testing.T) {
	t.Helper()
	for _, id := range []card.UUID{firstUUID, secondUUID} {
		c, err := simcard.Open(simcard.Path(m.cards, id))
		require.NoError(t, err)
		truth, err := c.Truth()
		require.NoError(t, err)
		require.Zero(t, truth.Live())
		require.NoError(t, c.Audit())
		require.NoError(t, c.Close())
	}
}

func TestMemoryOfTheSimulatedDriver(t *testing.T) {
	t.Parallel()
	lists := "../testdata/cuda/"
	steps := "6"
	if rig.Flavour() != "release" {
		steps = "2" // there are ten times as many instructions, and the same stores of the program
	}
	for name, tc := range map[string]struct {
		program string
		args    []string
		memory  uint64
		profile int
		copies  bool // another copy of the library in one process, which sanitizers cannot have
		steps   bool // instruction by instruction, of which the thread sanitizer has too many
	}{
		"linear, pitched, managed and host memory": {program: "linear"},
		"contexts":                                 {program: "contexts"},
		"modules that load when they are used":     {program: "modules", args: []string{"LAZY"}},
		"modules that load at once":                {program: "modules", args: []string{"EAGER"}},
		"pools":                                    {program: "pools"},
		"virtual memory and multicast objects":     {program: "vmm"},
		"arrays":                                   {program: "arrays"},
		"memory that processes share":              {program: "shared"},
		"processes that are killed at any instant": {program: "kills", args: []string{cmp.Or(os.Getenv("KILLS"), "30")}},
		"processes that are killed between two instructions": {program: "steps", args: []string{cmp.Or(os.Getenv("STEPS"), steps)}, steps: true},
		"fork and exec":                                    {program: "forks"},
		"a program that closes all descriptors":            {program: "closes"},
		"two copies of the library in one process":         {program: "second", copies: true},
		"many threads":                                     {program: "threads"},
		"300 processes at once":                            {program: "crowd", args: []string{"300"}, memory: 301 * 66 * mib},
		"the entry points of driver 470":                   {program: "entry", args: []string{lists + "gpa-table-470.txt", lists + "symbols-libcuda-470.txt", "11040"}, profile: 470},
		"the entry points of driver 535":                   {program: "entry", args: []string{lists + "gpa-table-535.txt", lists + "symbols-libcuda-535.txt", "12020"}, profile: 535},
		"the entry points of driver 550":                   {program: "entry", args: []string{lists + "gpa-table-550.txt", lists + "symbols-libcuda-550.txt", "12040"}, profile: 550},
		"the entry points of driver 580, and of all after": {program: "entry", args: []string{lists + "gpa-table-550.txt", lists + "symbols-libcuda-13.txt", "13000"}, profile: 580},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if tc.copies && rig.Flavour() != "release" {
				t.Skip("a sanitizer cannot be in a process twice")
			}
			if tc.steps && rig.Flavour() == "tsan" {
				t.Skip("that would take minutes")
			}
			m := newMachine(t, twoCards(cmp.Or(tc.memory, 1<<30), tc.profile)...)
			out, err := m.program(t, tc.program, tc.args...).CombinedOutput()
			require.NoError(t, err, "%s", out)
			m.nothingIsHeld(t)
		})
	}
}

func TestWhichCardsAProcessSees(t *testing.T) {
	t.Parallel()
	const first, second, third = "GPU-8f3c2a10-5b7e-4c21-9d0a-000000000000", "GPU-8f3c2a10-5b7e-4c21-9d0a-000000000001", "GPU-90000000-5b7e-4c21-9d0a-000000000002"
	for value, sees := range map[string][]string{
		"-":                    {first, second, third}, // not set
		"":                     {},
		"0":                    {first},
		"2,0":                  {third, first},
		" 1 , 2 ":              {second, third},
		"0,3,1":                {first},
		"0,-1,1":               {first},
		"x":                    {},
		"0,,1":                 {first},
		"1,1":                  {},
		third:                  {third},
		third + "," + first:    {third, first},
		"GPU-9":                {third},
		"gpu-9,0":              {third, first},
		"GPU-8":                {}, // two begin like this
		"GPU-":                 {},
		first + "x":            {},
		"2,GPU-9":              {},
		"0x1":                  {},
		"1," + first + ",x,2":  {second, first},
		"99999999999999999999": {},
	} {
		t.Run(value, func(t *testing.T) {
			t.Parallel()
			configs := []simcard.Config{
				{UUID: third, Memory: 1 << 30, Index: 2},
				{UUID: first, Memory: 1 << 30, Index: 0},
				{UUID: second, Memory: 1 << 30, Index: 1},
			}
			cmd := newMachine(t, configs...).program(t, "devices")
			if value != "-" {
				cmd.Env = append(cmd.Env, "CUDA_VISIBLE_DEVICES="+value)
			}
			require.Equal(t, append([]string{strconv.Itoa(len(sees))}, sees...), output(t, cmd))
		})
	}
}
