// SPDX-License-Identifier: Apache-2.0

package wire_test

import (
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/tranche-dra/tranche/pkg/wire"
)

// layoutProgram prints every offset, size and number of the header.
const layoutProgram = `
#include <stddef.h>
#include <stdio.h>
#include "wire.h"
#define FIELD(s, f) printf(#s "." #f " %zu\n", offsetof(struct tranche_##s, f))
#define SIZE(s) printf(#s " %zu\n", sizeof(struct tranche_##s))
#define NUMBER(n) printf(#n " %llu\n", (unsigned long long)(n))
int main(void)
{
	SIZE(grant); FIELD(grant, magic); FIELD(grant, version); FIELD(grant, flags); FIELD(grant, memory_limit);
	FIELD(grant, context_estimate); FIELD(grant, slots_used); FIELD(grant, card_uuid);
	FIELD(grant, lease); FIELD(grant, beat); FIELD(grant, window); FIELD(grant, alone_period); FIELD(grant, alone_start); FIELD(grant, alone_length);
	SIZE(slot); FIELD(slot, pending); FIELD(slot, committed); FIELD(slot, reserve); FIELD(slot, implicit); FIELD(slot, inflight);
	FIELD(slot, changes); FIELD(slot, host_pid); FIELD(slot, ns_pid); FIELD(slot, attached); FIELD(slot, exported);
	SIZE(ledger); FIELD(ledger, magic); FIELD(ledger, version); FIELD(ledger, slots); FIELD(ledger, slots_used); FIELD(ledger, bell);
	FIELD(ledger, moves); FIELD(ledger, slot);
	SIZE(demand); FIELD(demand, magic); FIELD(demand, version); FIELD(demand, wants); FIELD(demand, drained); FIELD(demand, waiting);
	FIELD(demand, ends); FIELD(demand, used); FIELD(demand, waited);
	SIZE(hello); FIELD(hello, magic); FIELD(hello, version); FIELD(hello, role); FIELD(hello, ns_pid); FIELD(hello, slot); FIELD(hello, nonce);
	SIZE(welcome); FIELD(welcome, magic); FIELD(welcome, version); FIELD(welcome, status); FIELD(welcome, slot); FIELD(welcome, nonce);
	FIELD(welcome, host_pid); FIELD(welcome, reason);
	SIZE(request); FIELD(request, magic); FIELD(request, op); FIELD(request, id); FIELD(request, settle);
	SIZE(reply); FIELD(reply, magic); FIELD(reply, status); FIELD(reply, id); FIELD(reply, used); FIELD(reply, implicit);
	NUMBER(TRANCHE_CONTRACT_VERSION); NUMBER(TRANCHE_PAGE_SIZE); NUMBER(TRANCHE_MAX_SLOTS); NUMBER(TRANCHE_NO_LIMIT);
	NUMBER(TRANCHE_GRANT_MAGIC); NUMBER(TRANCHE_LEDGER_MAGIC); NUMBER(TRANCHE_DEMAND_MAGIC);
	NUMBER(TRANCHE_GRANT_ENDED); NUMBER(TRANCHE_GRANT_WITHHELD);
	NUMBER(TRANCHE_LEASE_CLOSED); NUMBER(TRANCHE_LEASE_OPEN); NUMBER(TRANCHE_LEASE_FREE); NUMBER(TRANCHE_LEASE_STATE);
	NUMBER(TRANCHE_LEASE_CONTENDED); NUMBER(TRANCHE_LEASE_TELL); NUMBER(TRANCHE_LEASE_COUNT);
	NUMBER(TRANCHE_LEASE_IDLE_NS); NUMBER(TRANCHE_LEASE_LEAD_NS); NUMBER(TRANCHE_BEAT_NS); NUMBER(TRANCHE_BEAT_LOST_NS);
	NUMBER(TRANCHE_MESSAGE_MAGIC); NUMBER(TRANCHE_REASON_SIZE);
	NUMBER(TRANCHE_ROLE_PROBE); NUMBER(TRANCHE_ROLE_PROCESS); NUMBER(TRANCHE_ROLE_OBSERVER); NUMBER(TRANCHE_ROLE_AGAIN);
	NUMBER(TRANCHE_OP_MEASURE); NUMBER(TRANCHE_OP_MEASURE_ALL);
#define STATUS(n) printf(#n " %d\n", n)
	STATUS(TRANCHE_OK); STATUS(TRANCHE_MOVED); STATUS(TRANCHE_EVERSION); STATUS(TRANCHE_EENDED); STATUS(TRANCHE_EFULL);
	STATUS(TRANCHE_EINVALID); STATUS(TRANCHE_EMEASURE); STATUS(TRANCHE_EDENIED);
	puts(TRANCHE_SHARES_DIR); puts(TRANCHE_SHARE_FILE); puts(TRANCHE_SOCKET_NAME);
	return 0;
}
`

func TestTheLayoutIsThatOfTheHeader(t *testing.T) {
	t.Parallel()
	compiler, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("there is no C compiler")
	}
	dir := t.TempDir()
	source, program := filepath.Join(dir, "layout.c"), filepath.Join(dir, "layout")
	require.NoError(t, os.WriteFile(source, []byte(layoutProgram), 0o600))
	out, err := exec.CommandContext(t.Context(), compiler, "-std=c11", "-Wall", "-Werror", "-I../../cdi/runtime", "-o", program, source).CombinedOutput()
	require.NoError(t, err, string(out))
	printed, err := exec.CommandContext(t.Context(), program).Output()
	require.NoError(t, err)
	require.Equal(t, layoutOfThisPackage(), strings.Split(strings.TrimSpace(string(printed)), "\n"))
}

// fields gives the size of a structure and the offsets of its named fields.
func fields(name string, structure any) []string {
	t := reflect.TypeOf(structure).Elem()
	lines := []string{fmt.Sprint(name, " ", t.Size())}
	for f := range t.Fields() {
		if f.IsExported() && f.Name != "Reserved" {
			lines = append(lines, fmt.Sprint(name, ".", snake(f.Name), " ", f.Offset))
		}
	}
	return lines
}

// snake is how C writes a name.
func snake(name string) string {
	name = strings.NewReplacer("UUID", "Uuid", "NSPID", "NsPid", "HostPID", "HostPid", "ID", "Id").Replace(name)
	var b strings.Builder
	for i, r := range name {
		if i > 0 && 'A' <= r && r <= 'Z' {
			b.WriteByte('_')
		}
		b.WriteRune(r)
	}
	return strings.ToLower(b.String())
}

func layoutOfThisPackage() []string {
	var lines []string
	for _, s := range []struct {
		name      string
		structure any
	}{
		{"grant", &wire.Grant{}},
		{"slot", &wire.Slot{}},
		{"ledger", &wire.Ledger{}},
		{"demand", &wire.Demand{}},
		{"hello", &wire.Hello{}},
		{"welcome", &wire.Welcome{}},
		{"request", &wire.Request{}},
		{"reply", &wire.Reply{}},
	} {
		lines = append(lines, fields(s.name, s.structure)...)
	}
	for _, n := range []struct {
		name   string
		number any
	}{
		{"CONTRACT_VERSION", wire.ContractVersion},
		{"PAGE_SIZE", wire.PageSize},
		{"MAX_SLOTS", wire.MaxSlots},
		{"NO_LIMIT", wire.NoLimit},
		{"GRANT_MAGIC", wire.GrantMagic},
		{"LEDGER_MAGIC", wire.LedgerMagic},
		{"DEMAND_MAGIC", wire.DemandMagic},
		{"GRANT_ENDED", wire.GrantEnded},
		{"GRANT_WITHHELD", wire.GrantWithheld},
		{"LEASE_CLOSED", wire.LeaseClosed},
		{"LEASE_OPEN", wire.LeaseOpen},
		{"LEASE_FREE", wire.LeaseFree},
		{"LEASE_STATE", wire.LeaseState},
		{"LEASE_CONTENDED", wire.LeaseContended},
		{"LEASE_TELL", wire.LeaseTell},
		{"LEASE_COUNT", wire.LeaseCount},
		{"LEASE_IDLE_NS", wire.LeaseIdle.Nanoseconds()},
		{"LEASE_LEAD_NS", wire.LeaseLead.Nanoseconds()},
		{"BEAT_NS", wire.BeatEvery.Nanoseconds()},
		{"BEAT_LOST_NS", wire.BeatLost.Nanoseconds()},
		{"MESSAGE_MAGIC", wire.MessageMagic},
		{"REASON_SIZE", wire.ReasonSize},
		{"ROLE_PROBE", uint32(wire.RoleProbe)},
		{"ROLE_PROCESS", uint32(wire.RoleProcess)},
		{"ROLE_OBSERVER", uint32(wire.RoleObserver)},
		{"ROLE_AGAIN", uint32(wire.RoleAgain)},
		{"OP_MEASURE", uint32(wire.OpMeasure)},
		{"OP_MEASURE_ALL", uint32(wire.OpMeasureAll)},
		{"OK", int32(wire.OK)},
		{"MOVED", int32(wire.Moved)},
		{"EVERSION", int32(wire.EVersion)},
		{"EENDED", int32(wire.EEnded)},
		{"EFULL", int32(wire.EFull)},
		{"EINVALID", int32(wire.EInvalid)},
		{"EMEASURE", int32(wire.EMeasure)},
		{"EDENIED", int32(wire.EDenied)},
	} {
		lines = append(lines, fmt.Sprint("TRANCHE_", n.name, " ", n.number))
	}
	return append(lines, wire.SharesDir, wire.ShareFile, wire.SocketName)
}

func TestSizesAreThoseOfTheStructures(t *testing.T) {
	t.Parallel()
	require.Equal(t, wire.HelloSize, binary.Size(wire.Hello{}))
	require.Equal(t, wire.WelcomeSize, binary.Size(wire.Welcome{}))
	require.Equal(t, wire.RequestSize, binary.Size(wire.Request{}))
	require.Equal(t, wire.ReplySize, binary.Size(wire.Reply{}))
	require.EqualValues(t, wire.WelcomeSize, unsafe.Sizeof(wire.Welcome{}), "messages have no padding")
	require.LessOrEqual(t, int(unsafe.Sizeof(wire.Grant{})), wire.GrantSize)
	require.EqualValues(t, wire.LedgerSize, unsafe.Sizeof(wire.Ledger{}))
	require.LessOrEqual(t, int(unsafe.Sizeof(wire.Demand{})), wire.DemandSize)
}
