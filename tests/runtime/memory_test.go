// SPDX-License-Identifier: Apache-2.0

//go:build native

package runtime_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranche-dra/tranche/pkg/card"
	"github.com/tranche-dra/tranche/pkg/simcard"
	"github.com/tranche-dra/tranche/tests/rig"
)

// ways are all ways to take memory that tests/clients/fill knows.
func ways() []string {
	return []string{
		"alloc", "pitch", "managed", "async", "pool", "vmm", "array", "array3d", "mipmap", "graph", "capture", "ipc", "import", "all",
	}
}

func TestEveryWayToAllocateStopsAtTheLimitAndTheProgramGoesOn(t *testing.T) {
	t.Parallel()
	const limit, block = 768, 32
	for _, way := range ways() {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t, limit)
			client := start(t, p.box, []string{"TRANCHE_TEST_BARRIERS=1"}, "fill", way, strconv.Itoa(block))
			full := fill(t, p, client)
			require.NotZero(t, full, "it never said that it is full")
			require.Greater(t, full, (limit-2*block)*rig.MiB, "memory that the share has could not be had")
			p.gone(t)
			p.neverAbove(t)
		})
	}
}

// fill follows a client from barrier to barrier, and wants ledger and truth to
// agree at each. It returns what was held when the client was full.
func fill(t *testing.T, p place, client *rig.Program) uint64 {
	t.Helper()
	full := uint64(0)
	for {
		line, err := client.Line()
		if err != nil {
			_, err := client.End()
			require.NoError(t, err)
			return full
		}
		if line.Word != "quiet" {
			require.Equal(t, p.share.Limit, amount(t, line, "total"), "what the program sees: %s", line.Text)
			continue
		}
		held := p.settled(t)
		if strings.HasSuffix(line.Text, "full") {
			full = held
		}
		require.NoError(t, client.Say("go on"))
	}
}

func TestRacingThreadsAndProcessesStayBelowTheLimit(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct{ processes, threads, rounds int }{
		"one process with 8 threads":   {1, 8, 20},
		"8 processes":                  {8, 1, 20},
		"4 processes with 4 threads":   {4, 4, 10},
		"more processes than fit well": {16, 2, 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t, 1536)
			run(t, p.box, "storm", strconv.Itoa(row.processes), strconv.Itoa(row.threads), strconv.Itoa(scaled(row.rounds)))
			p.gone(t)
			p.neverAbove(t)
			require.NoError(t, p.rig.Audit(p.card))
		})
	}
}

// Whoever looks before he takes, without the others' seeing it, is found out here.
func TestOfThoseWhoWantTheLastBlockAtOnceExactlyOneGetsIt(t *testing.T) {
	t.Parallel()
	for processes, rounds := range map[int]int{2: 10000, 3: 3000} {
		t.Run(fmt.Sprint(processes, " processes"), func(t *testing.T) {
			t.Parallel()
			room := 256 - 64*uint64(processes) // without the contexts
			p := newPlace(t, 256)
			run(t, p.box, "lastone", strconv.Itoa(processes), strconv.Itoa(scaled(rounds)), fmt.Sprint((room/2+2)*rig.MiB))
			p.gone(t)
			p.neverAbove(t)
		})
	}
}

func TestMemoryIsCountedOnceAndGivenBack(t *testing.T) {
	t.Parallel()
	for _, name := range []string{
		"meminfo", "retained", "mapped-twice", "reserved", "imported", "host", "unknown", "small", "absurd", "trimmed", "pools",
		"pool-again", "context-gone", "modules",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t, 512)
			lines := run(t, p.box, "counted", name)
			require.Equal(t, "ok", lines[len(lines)-1].Word)
			p.gone(t)
			p.neverAbove(t)
		})
	}
}

// Never more free than total, nor other nonsense, while others come
// and go.
func TestWhatIsFreeMakesSenseWhileOthersAllocate(t *testing.T) {
	t.Parallel()
	p := newPlace(t, 1024)
	observer := tenant(t, p.box, 0)
	done := make(chan error, 1)
	go func() {
		_, err := rig.Run(t.Context(), p.box, rig.Client("storm"), "3", "2", strconv.Itoa(scaled(15)))
		done <- err
	}()
	for looks := 0; ; looks++ {
		info := ask(t, observer, "info", success)
		require.Equal(t, p.share.Limit, amount(t, info, "total"))
		require.Equal(t, p.share.Limit, amount(t, info, "device_total"))
		require.Less(t, amount(t, info, "free"), p.share.Limit, "the context at least is there")
		select {
		case err := <-done:
			require.NoError(t, err)
			require.NotZero(t, looks)
			return
		default:
		}
	}
}

// twoCards makes a box with two cards and a share of another size on each.
func twoCards(t *testing.T, mib ...uint64) (*rig.Rig, []rig.Share) {
	t.Helper()
	r := newRig(t)
	shares := make([]rig.Share, 0, len(mib))
	for i, n := range mib {
		c := newCard(t, r, simcard.Config{UUID: card.UUID(fmt.Sprintf("GPU-%08x-aaaa-bbbb-cccc-00000000000%d", i+0x10, i))})
		shares = append(shares, newShare(t, r, c, n))
	}
	return r, shares
}

func TestEachCardHasItsOwnLimitWhateverTheProgramSees(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		visible []string
		sees    []int
	}{
		"all of them":                {nil, []int{0, 1, 2}},
		"one of them":                {[]string{"CUDA_VISIBLE_DEVICES=1"}, []int{1}},
		"in another order":           {[]string{"CUDA_VISIBLE_DEVICES=2,0"}, []int{2, 0}},
		"by UUID":                    {[]string{"CUDA_VISIBLE_DEVICES=GPU-00000012-aaaa-bbbb-cccc-000000000002,GPU-00000010-aaaa-bbbb-cccc-000000000000"}, []int{2, 0}},
		"by the beginning of a UUID": {[]string{"CUDA_VISIBLE_DEVICES=GPU-00000011"}, []int{1}},
		"up to one that is not":      {[]string{"CUDA_VISIBLE_DEVICES=0,7,1"}, []int{0}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, shares := twoCards(t, 256, 384, 512)
			box := newBox(t, r, shares...)
			p := start(t, box, row.visible, "tenant")
			ask(t, p, "init", success)
			devices := ask(t, p, "devices", success)
			require.EqualValues(t, len(row.sees), amount(t, devices, "count"))
			for device, want := range row.sees {
				s := shares[want]
				require.Equal(t, string(s.Card.Config().UUID), devices.Values[fmt.Sprint("uuid", device)])
				require.Equal(t, s.Limit, amount(t, devices, fmt.Sprint("total", device)))
				ask(t, p, fmt.Sprint("context ", device), success)
				fillUp(t, p, "alloc", 32*rig.MiB)
				held, err := r.Settled(s)
				require.NoError(t, err)
				require.LessOrEqual(t, held, s.Limit)
				require.Greater(t, held, s.Limit-48*rig.MiB)
			}
			for i, s := range shares {
				held, err := r.Settled(s)
				require.NoError(t, err)
				require.Equal(t, slices.Contains(row.sees, i), held != 0, "card %d holds %d bytes", i, held)
			}
		})
	}
}

// fillUp takes blocks until there are no more.
func fillUp(t *testing.T, p *rig.Program, kind string, bytes uint64) (blocks int) {
	t.Helper()
	for {
		answer, err := p.Ask(fmt.Sprintf("take %s %d", kind, bytes))
		require.NoError(t, err)
		if answer.Values["result"] == strconv.Itoa(outOfMemory) {
			return blocks
		}
		require.Equal(t, strconv.Itoa(success), answer.Values["result"], answer.Text)
		blocks++
	}
}

func TestSharesOfOneCardDoNotTouchEachOther(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	c := newCard(t, r, simcard.Config{})
	small, large := newShare(t, r, c, 256), newShare(t, r, c, 640)
	one, other := tenant(t, newBox(t, r, small), 0), tenant(t, newBox(t, r, large), 0)
	fillUp(t, one, "alloc", 16*rig.MiB)
	require.Equal(t, large.Limit, amount(t, ask(t, other, "info", success), "total"))
	fillUp(t, other, "alloc", 16*rig.MiB)
	for _, s := range []rig.Share{small, large} {
		held, err := r.Settled(s)
		require.NoError(t, err)
		require.LessOrEqual(t, held, s.Limit)
		require.Greater(t, held, s.Limit-32*rig.MiB)
	}
}

func TestProcessesOfOneShareHaveOneLimitTogether(t *testing.T) {
	t.Parallel()
	p := newPlace(t, 640)
	first, second := tenant(t, p.box, 0), tenant(t, newBox(t, p.rig, p.share), 0)
	fillUp(t, first, "alloc", 32*rig.MiB)
	ask(t, second, fmt.Sprint("take alloc ", 32*rig.MiB), outOfMemory)
	for range 3 {
		ask(t, first, "drop", success)
	}
	require.Equal(t, 3, fillUp(t, second, "vmm", 32*rig.MiB))
	p.settled(t)
	p.neverAbove(t)
}

func TestSharesOfOneCardInOneContainerAddUp(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	c := newCard(t, r, simcard.Config{})
	one, other := newShare(t, r, c, 256), newShare(t, r, c, 384)
	p := tenant(t, newBox(t, r, one, other), 0)
	require.Equal(t, 640*rig.MiB, amount(t, ask(t, p, "info", success), "total"))
	fillUp(t, p, "alloc", 32*rig.MiB)
	held, err := r.Settled(one, other)
	require.NoError(t, err)
	require.LessOrEqual(t, held, 640*rig.MiB)
	require.Greater(t, held, (640-64)*rig.MiB)
	// What one process leaves over is there for a second one.
	ask(t, p, "drop", success)
	ask(t, p, "drop", success)
	ask(t, p, "drop", success)
	ask(t, tenant(t, newBox(t, r, one, other), 0), fmt.Sprint("take alloc ", 16*rig.MiB), success)
}

func TestAWholeCardHasNoLimitButItsMemory(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	c := newCard(t, r, simcard.Config{Memory: 1024 * rig.MiB})
	s := newShare(t, r, c, 0)
	p := tenant(t, newBox(t, r, s), 0)
	info := ask(t, p, "info", success)
	require.Equal(t, 1024*rig.MiB, amount(t, info, "total"))
	fillUp(t, p, "alloc", 32*rig.MiB)
	truth, err := c.Truth()
	require.NoError(t, err)
	require.Greater(t, truth.Used, (1024-64)*rig.MiB)
}

func TestACardWithoutAShareCannotBeUsed(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	mine, foreign := newCard(t, r, simcard.Config{}), newCard(t, r, simcard.Config{})
	s := newShare(t, r, mine, 256)
	box, err := r.Box(rig.BoxOptions{Cards: []*simcard.Card{foreign}}, s)
	require.NoError(t, err)
	p := start(t, box, nil, "tenant")
	ask(t, p, "init", success)
	ask(t, p, "context 1", notPermitted)
	ask(t, p, "context 0", success)
	truth, err := foreign.Truth()
	require.NoError(t, err)
	require.Zero(t, truth.UsedMax)
}
