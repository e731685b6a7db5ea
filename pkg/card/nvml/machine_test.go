// SPDX-License-Identifier: Apache-2.0

package nvml_test

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/server"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dra/tranche/pkg/card"
	"github.com/tranche-dra/tranche/pkg/card/nvml"
)

const reserved = 600 << 20

// machine is one of go-nvml's mock servers, with what they leave out filled in:
// the calls that they lack end the test. Its fields may be changed while a
// Watch runs, under the lock.
type machine struct {
	*server.Server
	sysfs string

	sync.Mutex
	inits, shutdowns int
	missing          map[string]bool // symbols
	lost             map[int]gonvml.Return
	recovery         map[int]gonvml.DeviceGpuRecoveryAction // nil: not supported
	uncorrected      map[int]uint64
	remapFailed      map[int]bool
	init             gonvml.Return
	noEvents         bool
	events           chan event
	frees            int
}

// event is what the next wait gives.
type event struct {
	data gonvml.EventData
	ret  gonvml.Return
}

func newMachine(t *testing.T, s *server.Server) *machine {
	t.Helper()
	m := &machine{
		Server: s, sysfs: t.TempDir(), events: make(chan event, 16),
		missing: map[string]bool{}, lost: map[int]gonvml.Return{}, uncorrected: map[int]uint64{}, remapFailed: map[int]bool{},
	}
	s.InitFunc = func() gonvml.Return {
		m.Lock()
		defer m.Unlock()
		m.inits++
		return m.init
	}
	s.ShutdownFunc = func() gonvml.Return {
		m.Lock()
		defer m.Unlock()
		m.shutdowns++
		return gonvml.SUCCESS
	}
	s.LookupSymbolFunc = func(symbol string) error {
		m.Lock()
		defer m.Unlock()
		if m.missing[symbol] {
			return fmt.Errorf("undefined symbol: %s", symbol)
		}
		return nil
	}
	byIndex := s.DeviceGetHandleByIndexFunc
	s.DeviceGetHandleByIndexFunc = func(i int) (gonvml.Device, gonvml.Return) {
		m.Lock()
		defer m.Unlock()
		if ret, lost := m.lost[i]; lost {
			return nil, ret
		}
		return byIndex(i)
	}
	s.EventSetCreateFunc = m.createEventSet
	for i, d := range s.Devices {
		m.complete(t, i, d.(*server.Device))
	}
	return m
}

func (m *machine) createEventSet() (gonvml.EventSet, gonvml.Return) {
	return &mock.EventSet{
		WaitFunc: func(milliseconds uint32) (gonvml.EventData, gonvml.Return) {
			select {
			case e := <-m.events:
				return e.data, e.ret
			case <-time.After(min(time.Duration(milliseconds)*time.Millisecond, 5*time.Millisecond)):
				return gonvml.EventData{}, gonvml.ERROR_TIMEOUT
			}
		},
		FreeFunc: func() gonvml.Return {
			m.Lock()
			defer m.Unlock()
			m.frees++
			return gonvml.SUCCESS
		},
	}, gonvml.SUCCESS
}

// complete gives a device what go-nvml's mocks leave out.
func (m *machine) complete(t *testing.T, i int, d *server.Device) {
	t.Helper()
	d.UUID = fmt.Sprintf("GPU-8f3c2a10-5b7e-4c21-9d0a-%012x", i)
	d.GetMemoryInfo_v2Func = func() (gonvml.Memory_v2, gonvml.Return) {
		return gonvml.Memory_v2{Total: d.MemoryInfo.Total, Reserved: reserved}, gonvml.SUCCESS
	}
	d.GetPciInfoFunc = func() (gonvml.PciInfo, gonvml.Return) {
		var info gonvml.PciInfo
		for n, b := range []byte(fmt.Sprintf("00000000:%02X:00.0", 0x1b+i)) {
			info.BusId[n] = int8(b)
		}
		return info, gonvml.SUCCESS
	}
	d.GetRemappedRowsFunc = func() (int, int, bool, bool, gonvml.Return) {
		m.Lock()
		defer m.Unlock()
		return 0, 1, true, m.remapFailed[i], gonvml.SUCCESS
	}
	d.GetTotalEccErrorsFunc = func(gonvml.MemoryErrorType, gonvml.EccCounterType) (uint64, gonvml.Return) {
		m.Lock()
		defer m.Unlock()
		return m.uncorrected[i], gonvml.SUCCESS
	}
	d.GetFieldValuesFunc = func(values []gonvml.FieldValue) gonvml.Return {
		m.Lock()
		defer m.Unlock()
		require.Equal(t, uint32(gonvml.FI_DEV_GET_GPU_RECOVERY_ACTION), values[0].FieldId)
		if m.recovery == nil {
			values[0].NvmlReturn = uint32(gonvml.ERROR_NOT_SUPPORTED)
			return gonvml.SUCCESS
		}
		binary.LittleEndian.PutUint32(values[0].Value[:], uint32(m.recovery[i]))
		return gonvml.SUCCESS
	}
	d.GetSupportedEventTypesFunc = func() (uint64, gonvml.Return) {
		m.Lock()
		defer m.Unlock()
		if m.noEvents {
			return 0, gonvml.ERROR_NOT_SUPPORTED
		}
		return gonvml.EventTypeAll, gonvml.SUCCESS
	}
	d.RegisterEventsFunc = func(types uint64, _ gonvml.EventSet) gonvml.Return {
		require.Equal(t, uint64(gonvml.EventTypeXidCriticalError|gonvml.EventTypeDoubleBitEccError), types)
		return gonvml.SUCCESS
	}
	m.plug(t, i, "pci0000:15", "1\n")
}

// plug puts a card into sysfs.
func (m *machine) plug(t *testing.T, i int, root, numa string) {
	t.Helper()
	address := fmt.Sprintf("0000:%02x:00.0", 0x1b+i)
	device := filepath.Join(m.sysfs, "devices", root, "0000:15:01.0", address)
	require.NoError(t, os.MkdirAll(device, 0o750))
	require.NoError(t, os.WriteFile(filepath.Join(device, "numa_node"), []byte(numa), 0o600))
	links := filepath.Join(m.sysfs, "bus", "pci", "devices")
	require.NoError(t, os.MkdirAll(links, 0o750))
	require.NoError(t, os.RemoveAll(filepath.Join(links, address)))
	require.NoError(t, os.Symlink(filepath.Join("..", "..", "..", "devices", root, "0000:15:01.0", address), filepath.Join(links, address)))
}

func (m *machine) device(i int) *server.Device { return m.Devices[i].(*server.Device) }

func (m *machine) set(change func()) {
	m.Lock()
	defer m.Unlock()
	change()
}

func (m *machine) source(o nvml.Options) *nvml.Source {
	o.Open = func() gonvml.Interface { return m.Server }
	o.SysfsRoot = m.sysfs
	return nvml.New(o)
}

// xid is the event of an XID error.
func xid(d gonvml.Device, number uint64) event {
	return event{data: gonvml.EventData{Device: d, EventType: gonvml.EventTypeXidCriticalError, EventData: number}}
}

func list(t *testing.T, s *nvml.Source) []card.Card {
	t.Helper()
	cards, err := s.Cards(t.Context())
	require.NoError(t, err)
	return cards
}
