// SPDX-License-Identifier: Apache-2.0

package simcard

import (
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// layoutProgram prints every offset, size and number of the header that this
// package has as well.
const layoutProgram = `
#include <stddef.h>
#include <stdio.h>
#include "card/shared.h"
#define SHARED(f) printf("objects." #f " %zu\n", offsetof(struct card_shared, f))
#define OBJECT(f) printf("object." #f " %zu\n", offsetof(struct card_object, f))
#define CARD(f) printf(#f " %zu\n", offsetof(struct simcard, f))
#define SLOT(f) printf("slot." #f " %zu\n", offsetof(struct simcard_slot, f))
#define RUN(f) printf("run." #f " %zu\n", offsetof(struct simcard_run, f))
#define NUMBER(n) printf(#n " %llu\n", (unsigned long long)(n))
int main(void)
{
	CARD(magic); CARD(version); CARD(size); CARD(uuid); CARD(name); CARD(pci_bus_id); CARD(driver_version);
	CARD(cuda_version); CARD(profile); CARD(index); CARD(minor); CARD(compute_major); CARD(compute_minor);
	CARD(multiprocessors); CARD(threads_per_multiprocessor); CARD(memory_total); CARD(memory_driver);
	CARD(context_bytes); CARD(time_slice); CARD(copy_bytes_per_second);
	CARD(used); CARD(used_max); CARD(refused); CARD(changes); CARD(engine); CARD(log_next); CARD(log); CARD(slot); CARD(frame); CARD(shared);
	SLOT(taken); SLOT(ns_pid); SLOT(held); SLOT(held_max); SLOT(busy); SLOT(launches); SLOT(started); SLOT(last_busy); SLOT(name);
	RUN(start); RUN(end); RUN(slot); RUN(what);
	SHARED(objects); SHARED(tag); SHARED(object); OBJECT(id); OBJECT(holders);
	NUMBER(sizeof(struct card_object)); NUMBER(CARD_MAX_OBJECTS); NUMBER(CARD_TAG_BITS); NUMBER(CARD_LOCK_DESCRIPTORS);
	NUMBER(sizeof(struct simcard)); NUMBER(sizeof(struct simcard_slot)); NUMBER(sizeof(struct simcard_run));
	NUMBER(SIMCARD_MAGIC); NUMBER(SIMCARD_VERSION); NUMBER(SIMCARD_MAX_SLOTS); NUMBER(SIMCARD_FRAME);
	NUMBER(SIMCARD_MAX_FRAMES); NUMBER(SIMCARD_LOG);
	NUMBER(SIMCARD_CONTEXT); NUMBER(SIMCARD_MODULE); NUMBER(SIMCARD_LINEAR); NUMBER(SIMCARD_MANAGED); NUMBER(SIMCARD_POOL);
	NUMBER(SIMCARD_VMM); NUMBER(SIMCARD_ARRAY); NUMBER(SIMCARD_GRAPH); NUMBER(SIMCARD_OTHER); NUMBER(SIMCARD_KINDS);
	puts(SIMCARD_DIR);
	puts(SIMCARD_DIR_ENV);
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
	out, err := exec.CommandContext(t.Context(), compiler, "-std=c11", "-Wall", "-Werror", "-I../../cdi/simdriver", "-o", program, source).CombinedOutput()
	require.NoError(t, err, string(out))
	printed, err := exec.CommandContext(t.Context(), program).Output()
	require.NoError(t, err)
	require.Equal(t, layoutOfThisPackage(), strings.Split(strings.TrimSpace(string(printed)), "\n"))

	var c cardLayout
	require.EqualValues(t, unsafe.Sizeof(c.facts), binary.Size(factsOnDisk{}), "what Create writes is what Open reads")
}

func layoutOfThisPackage() []string {
	var c cardLayout
	var s slotLayout
	var r runLayout
	var o objectLayout
	type row struct {
		name   string
		number any
	}
	var lines []string
	for _, r := range []row{
		{"magic", unsafe.Offsetof(c.facts.magic)},
		{"version", unsafe.Offsetof(c.facts.version)},
		{"size", unsafe.Offsetof(c.facts.size)},
		{"uuid", unsafe.Offsetof(c.facts.uuid)},
		{"name", unsafe.Offsetof(c.facts.name)},
		{"pci_bus_id", unsafe.Offsetof(c.facts.pciBusID)},
		{"driver_version", unsafe.Offsetof(c.facts.driverVersion)},
		{"cuda_version", unsafe.Offsetof(c.facts.cudaVersion)},
		{"profile", unsafe.Offsetof(c.facts.profile)},
		{"index", unsafe.Offsetof(c.facts.index)},
		{"minor", unsafe.Offsetof(c.facts.minor)},
		{"compute_major", unsafe.Offsetof(c.facts.computeMajor)},
		{"compute_minor", unsafe.Offsetof(c.facts.computeMinor)},
		{"multiprocessors", unsafe.Offsetof(c.facts.multiprocessors)},
		{"threads_per_multiprocessor", unsafe.Offsetof(c.facts.threadsPerMultiprocessor)},
		{"memory_total", unsafe.Offsetof(c.facts.memoryTotal)},
		{"memory_driver", unsafe.Offsetof(c.facts.memoryDriver)},
		{"context_bytes", unsafe.Offsetof(c.facts.contextBytes)},
		{"time_slice", unsafe.Offsetof(c.facts.timeSlice)},
		{"copy_bytes_per_second", unsafe.Offsetof(c.facts.copyBytesPerSecond)},
		{"used", unsafe.Offsetof(c.used)},
		{"used_max", unsafe.Offsetof(c.usedMax)},
		{"refused", unsafe.Offsetof(c.refused)},
		{"changes", unsafe.Offsetof(c.changes)},
		{"engine", unsafe.Offsetof(c.engine)},
		{"log_next", unsafe.Offsetof(c.logNext)},
		{"log", unsafe.Offsetof(c.log)},
		{"slot", unsafe.Offsetof(c.slot)},
		{"frame", unsafe.Offsetof(c.frame)},
		{"shared", unsafe.Offsetof(c.objects)},
		{"slot.taken", unsafe.Offsetof(s.taken)},
		{"slot.ns_pid", unsafe.Offsetof(s.nsPID)},
		{"slot.held", unsafe.Offsetof(s.held)},
		{"slot.held_max", unsafe.Offsetof(s.heldMax)},
		{"slot.busy", unsafe.Offsetof(s.busy)},
		{"slot.launches", unsafe.Offsetof(s.launches)},
		{"slot.started", unsafe.Offsetof(s.started)},
		{"slot.last_busy", unsafe.Offsetof(s.lastBusy)},
		{"slot.name", unsafe.Offsetof(s.name)},
		{"run.start", unsafe.Offsetof(r.start)},
		{"run.end", unsafe.Offsetof(r.end)},
		{"run.slot", unsafe.Offsetof(r.slot)},
		{"run.what", unsafe.Offsetof(r.what)},
		{"objects.objects", unsafe.Offsetof(c.objects.objects)},
		{"objects.tag", unsafe.Offsetof(c.objects.tag)},
		{"objects.object", unsafe.Offsetof(c.objects.object)},
		{"object.id", unsafe.Offsetof(o.id)},
		{"object.holders", unsafe.Offsetof(o.holders)},
		{"sizeof(struct card_object)", unsafe.Sizeof(o)},
		{"CARD_MAX_OBJECTS", maxObjects},
		{"CARD_TAG_BITS", tagBits},
		{"CARD_LOCK_DESCRIPTORS", uint64(descriptorLock)},
		{"sizeof(struct simcard)", cardSize},
		{"sizeof(struct simcard_slot)", unsafe.Sizeof(s)},
		{"sizeof(struct simcard_run)", unsafe.Sizeof(r)},
		{"SIMCARD_MAGIC", uint64(magic)},
		{"SIMCARD_VERSION", version},
		{"SIMCARD_MAX_SLOTS", MaxSlots},
		{"SIMCARD_FRAME", Frame},
		{"SIMCARD_MAX_FRAMES", maxFrames},
		{"SIMCARD_LOG", logSize},
		{"SIMCARD_CONTEXT", int(KindContext)},
		{"SIMCARD_MODULE", int(KindModule)},
		{"SIMCARD_LINEAR", int(KindLinear)},
		{"SIMCARD_MANAGED", int(KindManaged)},
		{"SIMCARD_POOL", int(KindPool)},
		{"SIMCARD_VMM", int(KindVMM)},
		{"SIMCARD_ARRAY", int(KindArray)},
		{"SIMCARD_GRAPH", int(KindGraph)},
		{"SIMCARD_OTHER", int(KindOther)},
		{"SIMCARD_KINDS", int(kinds)},
	} {
		lines = append(lines, fmt.Sprint(r.name, " ", r.number))
	}
	return append(lines, Dir, DirEnv)
}
