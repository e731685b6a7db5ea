// SPDX-License-Identifier: Apache-2.0

//go:build native

package sim_test

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-dra/tranche/pkg/card"
	"github.com/tranche-dra/tranche/pkg/simcard"
)

// simcard runs tranche-simcard and gives its lines.
func (m machine) simcard(t *testing.T, args ...string) []string {
	t.Helper()
	return output(t, m.command(t, "tranche-simcard", args...))
}

func TestTheToolMakesTheSameCardsAsTheNodeDriver(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		config  simcard.Config
		options []string
	}{
		"as little as possible": {simcard.Config{UUID: firstUUID, Memory: 8 << 30}, []string{"--memory", "8GiB"}},
		"every option": {
			simcard.Config{
				UUID: firstUUID, Memory: 1000 * mib, DriverMemory: 100 * mib, Name: "NVIDIA L4", PCIBusID: "00000000:1b:00.0", DriverVersion: "550.90.07",
				CUDAVersion: 12030, Profile: 535, Index: 3, Minor: 4, ComputeMajor: 8, ComputeMinor: 9, Multiprocessors: 58,
				ThreadsPerMultiprocessor: 2048, ContextBytes: 300 * mib, TimeSlice: time.Millisecond, CopyBytesPerSecond: 1e9,
			},
			strings.Fields("--memory 1048576000 --driver-memory 100MiB --context 300MiB --pci 00000000:1b:00.0 --driver 550.90.07 --cuda 12.3 --profile 535" +
				" --index 3 --minor 4 --compute 8.9 --multiprocessors 58 --threads 2048 --time-slice-us 1000 --copy-mbps 1000 --name"),
		},
		"a profile":        {simcard.Config{UUID: firstUUID, Memory: 8 << 30, Profile: 470}, []string{"--memory", "8GiB", "--profile", "470"}},
		"a version":        {simcard.Config{UUID: firstUUID, Memory: 8 << 30, DriverVersion: "560.35.03"}, []string{"--memory", "8GiB", "--driver", "560.35.03"}},
		"the newest":       {simcard.Config{UUID: firstUUID, Memory: 8 << 30, Profile: 580}, []string{"--memory", "8GiB", "--profile", "580"}},
		"another position": {simcard.Config{UUID: firstUUID, Memory: 8 << 30, Index: 40}, []string{"--memory", "8GiB", "--index", "40"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			if tc.options[len(tc.options)-1] == "--name" {
				tc.options = append(tc.options, "NVIDIA L4")
			}
			create := append([]string{"create", string(firstUUID)}, tc.options...)
			m.simcard(t, create...)
			_, err := simcard.Create(m.cards, tc.config)
			require.NoError(t, err)
			m.simcard(t, create...)
		})
	}
}

func TestTheToolRefusesWhatCannotBe(t *testing.T) {
	t.Parallel()
	m := newMachine(t, simcard.Config{UUID: firstUUID, Memory: 1000 * mib})
	for command, says := range map[string]string{
		"dance":                        "dance: no such command",
		"create":                       "create: say the UUID of the card",
		"create GPU-1 --memory 1GiB":   "GPU-1: want a UUID like",
		"create " + string(secondUUID): "--memory: want a multiple of 2 MiB",
		"create " + string(firstUUID) + " --memory 2GiB":                       "exists with another memory_total: 1048576000, not 2147483648",
		"create " + string(secondUUID) + " --memory 3MiB":                      "--memory: want a multiple of 2 MiB",
		"create " + string(secondUUID) + " --memory 1TB":                       "--memory 1TB: want a size like",
		"create " + string(secondUUID) + " --memory 1GiB --driver-memory 1GiB": "--driver-memory: want",
		"create " + string(secondUUID) + " --memory 1GiB --profile 600":        "--profile 600: want 470, 535, 550 or 580",
		"create " + string(secondUUID) + " --memory 1GiB --pci 1":              "--pci 1: want one like",
		"create " + string(secondUUID) + " --memory 1GiB --index -1":           "--index -1: want a number",
		"create " + string(secondUUID) + " --memory 1GiB --compute 9":          "--compute 9: want two numbers",
		"truth " + string(secondUUID):                                          "has no simulated card " + string(secondUUID),
		"runs":                                                                 "runs: say the UUID of the card",
		"watch":                                                                "watch: say the UUID of the card",
		"list a b":                                                             "b: one card at most is expected",
		"list --nothing":                                                       "unrecognized option '--nothing'",
	} {
		t.Run(command, func(t *testing.T) {
			t.Parallel()
			out, err := m.command(t, "tranche-simcard", strings.Fields(command)...).CombinedOutput()
			require.Error(t, err)
			require.Contains(t, string(out), says)
			require.Equal(t, 1, strings.Count(string(out), "\n"), "%s", out)
		})
	}
	cards, err := simcard.List(m.cards)
	require.NoError(t, err)
	require.Len(t, cards, 1, "nothing was made")
}

// toldSlot is a slot as the tool prints it.
type toldSlot struct {
	Slot, PID, NSPID                 int
	State, Name                      string
	Alive                            bool
	Held                             map[string]uint64
	Total, HeldMax, BusyNS, Launches uint64
}

func TestTheToolTellsTheTruth(t *testing.T) {
	t.Parallel()
	m := newMachine(t, simcard.Config{UUID: firstUUID, Memory: 1000 * mib, DriverMemory: 100 * mib, Name: `a "card"`})
	living := m.hold(t, firstUUID).tell(t, "context 10", "linear 5", "runs 10 50")
	dead := m.hold(t, firstUUID).tell(t, "linear 3")
	dead.kill()

	var told []struct {
		UUID                                        card.UUID
		Total, Driver, Used, UsedMax, Refused, Runs uint64
		Slots                                       []toldSlot
	}
	require.NoError(t, json.Unmarshal([]byte(m.simcard(t, "truth", "--json")[0]), &told))
	require.Len(t, told, 1)
	require.Equal(t, []uint64{1000 * mib, 100 * mib, 36 * mib, 36 * mib, 0}, []uint64{told[0].Total, told[0].Driver, told[0].Used, told[0].UsedMax, told[0].Refused})
	require.Len(t, told[0].Slots, 2)
	one, two := told[0].Slots[0], told[0].Slots[1]
	require.Equal(t, []any{living.pid(), living.pid(), "alive", "holder", true}, []any{one.PID, one.NSPID, one.State, one.Name, one.Alive})
	require.Equal(t, []uint64{20 * mib, 10 * mib, 30 * mib, 30 * mib}, []uint64{one.Held["context"], one.Held["linear"], one.Total, one.HeldMax})
	require.Equal(t, []any{0, "dead", false, 6 * mib}, []any{two.PID, two.State, two.Alive, two.Total})

	text := strings.Join(m.simcard(t, "truth", string(firstUUID)), "\n")
	require.Contains(t, text, "total 1000 MiB, driver 100, used 36")
	require.Regexp(t, fmt.Sprintf(`0 alive +%d +%d holder +30 +30 .* context=20 linear=10`, living.pid(), living.pid()), text)

	var listed []struct {
		Index       int
		UUID        card.UUID
		Name        string
		Total, Used uint64
	}
	require.NoError(t, json.Unmarshal([]byte(m.simcard(t, "list", "--json")[0]), &listed))
	require.Equal(t, `a "card"`, listed[0].Name)
	require.Contains(t, m.simcard(t, "list")[1], string(firstUUID))

	require.Contains(t, m.simcard(t, "watch", string(firstUUID), "--count", "2", "--interval-ms", "1")[1], " 36 ")
	require.Equal(t, []string{string(firstUUID) + ": 6 MiB freed"}, m.simcard(t, "reap"))
	require.NoError(t, json.Unmarshal([]byte(m.simcard(t, "truth", "--json")[0]), &told))
	require.Len(t, told[0].Slots, 1)
}

func TestTheToolAndTheReaderShowTheSameRuns(t *testing.T) {
	t.Parallel()
	m := newMachine(t, simcard.Config{UUID: firstUUID, Memory: 1000 * mib})
	// More than the card remembers.
	m.hold(t, firstUUID).tell(t, "runs 50000 50", "runs 100 50")
	opened, err := simcard.Open(filepath.Join(m.cards, string(firstUUID)))
	require.NoError(t, err)
	defer func() { require.NoError(t, opened.Close()) }()
	const all, last = 70100, 65536
	runs := opened.Runs(0)
	require.Len(t, runs, last)
	require.EqualValues(t, all-last, runs[0].Index)
	require.Equal(t, 500*time.Microsecond, runs[0].End-runs[0].Start)
	require.Len(t, opened.Runs(all-10), 10)
	require.Empty(t, opened.Runs(all))

	var told []struct {
		Run        uint64
		Slot, What int
		Start, End time.Duration
	}
	require.NoError(t, json.Unmarshal([]byte(m.simcard(t, "runs", string(firstUUID), "--json", "--since", fmt.Sprint(all-5))[0]), &told))
	require.Len(t, told, 5)
	for i, run := range opened.Runs(all - 5) {
		require.Equal(t, []any{run.Index, run.Start, run.End, run.Slot, int(run.What)}, []any{told[i].Run, told[i].Start, told[i].End, told[i].Slot, told[i].What})
	}
	require.Len(t, m.simcard(t, "runs", string(firstUUID), "--since", fmt.Sprint(all-5)), 6)
	require.Len(t, m.simcard(t, "runs", string(firstUUID)), last+1)
}
