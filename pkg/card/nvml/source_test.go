// SPDX-License-Identifier: Apache-2.0

package nvml_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxa100"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxb200"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxh100"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxh200"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/server"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dra/tranche/pkg/card"
	"github.com/tranche-dra/tranche/pkg/card/nvml"
)

func TestKnownMachines(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		server *server.Server
		want   card.Card
	}{
		"DGX A100": {dgxa100.New(), card.Card{
			ProductName: "Mock NVIDIA A100-SXM4-40GB", Architecture: "Ampere", ComputeCapability: "8.0",
			DriverVersion: "550.54.15", CUDAVersion: "12.4", Memory: 40960 - 600,
		}},
		"DGX H100": {dgxh100.New(), card.Card{
			ProductName: "NVIDIA H100 80GB HBM3", Architecture: "Hopper", ComputeCapability: "9.0",
			DriverVersion: "550.54.15", CUDAVersion: "12.4", Memory: 81920 - 600,
		}},
		"DGX H200": {dgxh200.New(), card.Card{
			ProductName: "NVIDIA H200 141GB HBM3e", Architecture: "Hopper", ComputeCapability: "9.0",
			DriverVersion: "550.54.15", CUDAVersion: "12.4", Memory: 144384 - 600,
		}},
		"DGX B200": {dgxb200.New(), card.Card{
			ProductName: "NVIDIA B200 180GB HBM3e", Architecture: "Blackwell", ComputeCapability: "10.0",
			DriverVersion: "560.28.03", CUDAVersion: "12.6", Memory: 184320 - 600,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cards := list(t, newMachine(t, tc.server).source(nvml.Options{}))
			require.Len(t, cards, 8)
			want := tc.want
			want.UUID, want.Index, want.Minor = "GPU-8f3c2a10-5b7e-4c21-9d0a-000000000003", 3, 3
			want.Vendor, want.PCIBusID, want.PCIeRoot, want.NUMANode = card.VendorNVIDIA, "00000000:1e:00.0", "pci0000:15", 1
			require.Equal(t, want, cards[3])
			require.True(t, cards[3].Shareable())
		})
	}
}

// A query that fails leaves out its own fact and nothing else.
func TestQueriesThatAreNotSupported(t *testing.T) {
	t.Parallel()
	const no = gonvml.ERROR_NOT_SUPPORTED
	for name, tc := range map[string]struct {
		damage func(*machine)
		want   func(*card.Card)
	}{
		"the minor number": {
			func(m *machine) { m.device(0).GetMinorNumberFunc = func() (int, gonvml.Return) { return 0, no } },
			func(c *card.Card) { c.Minor = card.Unknown },
		},
		"the name": {
			func(m *machine) { m.device(0).GetNameFunc = func() (string, gonvml.Return) { return "", no } },
			func(c *card.Card) { c.ProductName = "" },
		},
		"the architecture": {
			func(m *machine) {
				m.device(0).GetArchitectureFunc = func() (gonvml.DeviceArchitecture, gonvml.Return) { return 0, no }
			},
			func(c *card.Card) { c.Architecture = "" },
		},
		"the compute capability": {
			func(m *machine) {
				m.device(0).GetCudaComputeCapabilityFunc = func() (int, int, gonvml.Return) { return 0, 0, no }
			},
			func(c *card.Card) { c.ComputeCapability = "" },
		},
		"MIG": {
			func(m *machine) { m.device(0).GetMigModeFunc = func() (int, int, gonvml.Return) { return 1, 1, no } },
			func(*card.Card) {},
		},
		"the PCI address, and with it the place": {
			func(m *machine) {
				m.device(0).GetPciInfoFunc = func() (gonvml.PciInfo, gonvml.Return) { return gonvml.PciInfo{}, no }
			},
			func(c *card.Card) { c.PCIBusID, c.PCIeRoot, c.NUMANode = "", "", card.Unknown },
		},
		"a PCI address without content": {
			func(m *machine) {
				m.device(0).GetPciInfoFunc = func() (gonvml.PciInfo, gonvml.Return) { return gonvml.PciInfo{}, gonvml.SUCCESS }
			},
			func(c *card.Card) { c.PCIBusID, c.PCIeRoot, c.NUMANode = "", "", card.Unknown },
		},
		"the driver's version": {
			func(m *machine) { m.SystemGetDriverVersionFunc = func() (string, gonvml.Return) { return "", no } },
			func(c *card.Card) { c.DriverVersion = "" },
		},
		"the CUDA version": {
			func(m *machine) { m.SystemGetCudaDriverVersionFunc = func() (int, gonvml.Return) { return 0, no } },
			func(c *card.Card) { c.CUDAVersion = "" },
		},
		"what the driver keeps of the memory": {
			func(m *machine) {
				m.device(0).GetMemoryInfo_v2Func = func() (gonvml.Memory_v2, gonvml.Return) { return gonvml.Memory_v2{}, no }
			},
			func(c *card.Card) { c.Memory = 40960 },
		},
		"a library too old to know what the driver keeps": {
			func(m *machine) { m.missing["nvmlDeviceGetMemoryInfo_v2"] = true },
			func(c *card.Card) { c.Memory = 40960 },
		},
		"memory of any kind": {
			func(m *machine) {
				m.missing["nvmlDeviceGetMemoryInfo_v2"] = true
				m.device(0).GetMemoryInfoFunc = func() (gonvml.Memory, gonvml.Return) { return gonvml.Memory{}, no }
			},
			func(c *card.Card) { c.Memory = 0 },
		},
		"memory that makes no sense": {
			func(m *machine) { m.device(0).MemoryInfo.Total = reserved - 1 },
			func(c *card.Card) { c.Memory = 0 },
		},
		"memory that is not whole MiB": {
			func(m *machine) { m.device(0).MemoryInfo.Total = reserved + 5<<20 - 1 },
			func(c *card.Card) { c.Memory = 4 },
		},
		"sysfs that does not know the NUMA node": {
			func(m *machine) { m.sysfs = "/dev/null" },
			func(c *card.Card) { c.PCIeRoot, c.NUMANode = "", card.Unknown },
		},
		"health, all of it": {
			func(m *machine) {
				for _, symbol := range []string{"nvmlDeviceGetFieldValues", "nvmlDeviceGetRemappedRows", "nvmlDeviceGetTotalEccErrors"} {
					m.missing[symbol] = true
				}
			},
			func(*card.Card) {},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want := list(t, newMachine(t, dgxa100.New()).source(nvml.Options{}))
			m := newMachine(t, dgxa100.New())
			tc.damage(m)
			got := list(t, m.source(nvml.Options{}))
			tc.want(&want[0])
			require.Equal(t, want[0], got[0])
			require.Len(t, got, 8)
		})
	}
}

func TestPlaceOfACard(t *testing.T) {
	t.Parallel()
	m := newMachine(t, dgxa100.New())
	m.plug(t, 0, "pci0000:15", "-1\n")
	m.plug(t, 1, "pci0001:80", "3\n")
	m.plug(t, 2, "pci0000:15", "nonsense\n")
	numa := filepath.Join(m.sysfs, "bus", "pci", "devices", "0000:1e:00.0", "numa_node")
	require.NoError(t, os.Remove(numa))
	require.NoError(t, os.Mkdir(numa, 0o750)) // cannot be read, even by root
	cards := list(t, m.source(nvml.Options{}))
	for i, want := range []int{card.Unknown, 3, card.Unknown, card.Unknown, 1} {
		require.Equal(t, want, cards[i].NUMANode, "card %d", i)
	}
	require.Equal(t, "pci0001:80", cards[1].PCIeRoot)
	require.Equal(t, "pci0000:15", cards[3].PCIeRoot)
}

func TestArchitecturesHaveNames(t *testing.T) {
	t.Parallel()
	for number, want := range map[gonvml.DeviceArchitecture]string{
		gonvml.DEVICE_ARCH_KEPLER: "Kepler", gonvml.DEVICE_ARCH_MAXWELL: "Maxwell", gonvml.DEVICE_ARCH_PASCAL: "Pascal",
		gonvml.DEVICE_ARCH_VOLTA: "Volta", gonvml.DEVICE_ARCH_TURING: "Turing", gonvml.DEVICE_ARCH_AMPERE: "Ampere",
		gonvml.DEVICE_ARCH_ADA: "Ada", gonvml.DEVICE_ARCH_HOPPER: "Hopper", gonvml.DEVICE_ARCH_BLACKWELL: "Blackwell",
		gonvml.DEVICE_ARCH_RUBIN: "Rubin", gonvml.DEVICE_ARCH_UNKNOWN: "", 99: "Architecture99",
	} {
		m := newMachine(t, dgxa100.New())
		m.device(0).Config.Architecture = number
		require.Equal(t, want, list(t, m.source(nvml.Options{}))[0].Architecture)
	}
}

func TestMIGCardsAreWhole(t *testing.T) {
	t.Parallel()
	m := newMachine(t, dgxa100.New())
	m.device(2).MigMode = gonvml.DEVICE_MIG_ENABLE
	cards := list(t, m.source(nvml.Options{}))
	require.True(t, cards[2].WholeOnly)
	require.False(t, cards[2].Shareable())
	require.True(t, cards[1].Shareable())
}

func TestReserveOfTheNode(t *testing.T) {
	t.Parallel()
	m := newMachine(t, dgxa100.New())
	m.device(1).MemoryInfo.Total = reserved + 100<<20
	cards := list(t, m.source(nvml.Options{Reserve: 200}))
	require.Equal(t, card.MiB(40960-600-200), cards[0].Memory)
	require.Zero(t, cards[1].Memory)
}

// Both are listed: what is published of them is decided in one place for all
// vendors.
func TestTwoCardsOfOneUUID(t *testing.T) {
	t.Parallel()
	m := newMachine(t, dgxa100.New())
	m.device(5).UUID = m.device(0).UUID
	cards := list(t, m.source(nvml.Options{}))
	require.Len(t, cards, 8)
	require.Equal(t, cards[0].UUID, cards[5].UUID)
	require.NotEqual(t, cards[0].PCIBusID, cards[5].PCIBusID)
}

func TestMachinesWithoutCards(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*machine){
		"no library":            func(m *machine) { m.init = gonvml.ERROR_LIBRARY_NOT_FOUND },
		"no driver":             func(m *machine) { m.init = gonvml.ERROR_DRIVER_NOT_LOADED },
		"no card at the driver": func(m *machine) { m.init = gonvml.ERROR_GPU_NOT_FOUND },
		"an empty list":         func(m *machine) { m.Devices = nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t, dgxa100.New())
			devices := m.Devices
			source := m.source(nvml.Options{})
			change(m)
			for range 2 {
				require.Empty(t, list(t, source))
			}
			m.init, m.Devices = gonvml.SUCCESS, devices
			require.Len(t, list(t, source), 8, "cards may come later")
			require.GreaterOrEqual(t, m.inits, 3, "NVML finds them only when started anew")
		})
	}
}

func TestALibraryThatIsNotThereIsLookedForAgain(t *testing.T) {
	t.Parallel()
	m := newMachine(t, dgxa100.New())
	opened := 0
	source := nvml.New(nvml.Options{SysfsRoot: m.sysfs, Open: func() gonvml.Interface {
		opened++
		return m.Server
	}})
	m.init = gonvml.ERROR_LIBRARY_NOT_FOUND
	require.Empty(t, list(t, source))
	m.init = gonvml.ERROR_DRIVER_NOT_LOADED
	require.Empty(t, list(t, source))
	require.Empty(t, list(t, source))
	require.Equal(t, 2, opened, "a library that was found is kept")
}

func TestADriverThatDoesNotAnswerIsNotNoCards(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		damage func(*machine)
		ret    gonvml.Return
		says   string
	}{
		"it was replaced":      {func(m *machine) { m.init = gonvml.ERROR_LIB_RM_VERSION_MISMATCH }, gonvml.ERROR_LIB_RM_VERSION_MISMATCH, "restart this process"},
		"it cannot be started": {func(m *machine) { m.init = gonvml.ERROR_UNKNOWN }, gonvml.ERROR_UNKNOWN, "start NVML"},
		"it cannot count": {func(m *machine) {
			m.DeviceGetCountFunc = func() (int, gonvml.Return) { return 0, gonvml.ERROR_UNKNOWN }
		}, gonvml.ERROR_UNKNOWN, "count cards"},
		"it was unloaded under way":   {func(m *machine) { m.lost[0] = gonvml.ERROR_DRIVER_NOT_LOADED }, gonvml.ERROR_DRIVER_NOT_LOADED, "index 0"},
		"somebody else ended session": {func(m *machine) { m.lost[1] = gonvml.ERROR_UNINITIALIZED }, gonvml.ERROR_UNINITIALIZED, "index 1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t, dgxa100.New())
			source := m.source(nvml.Options{})
			tc.damage(m)
			_, err := source.Cards(t.Context())
			require.ErrorIs(t, err, nvml.ErrUnavailable)
			require.ErrorIs(t, err, tc.ret)
			require.ErrorContains(t, err, tc.says)

			m.init, m.lost = gonvml.SUCCESS, nil
			m.DeviceGetCountFunc = func() (int, gonvml.Return) { return 8, gonvml.SUCCESS }
			require.Len(t, list(t, source), 8)
			require.Equal(t, 2, m.inits, "a session that failed is begun anew")
		})
	}
}

func TestLostCards(t *testing.T) {
	t.Parallel()
	m := newMachine(t, dgxa100.New())
	source := m.source(nvml.Options{})
	well := list(t, source)

	m.lost[2] = gonvml.ERROR_GPU_IS_LOST
	m.device(3).GetUUIDFunc = func() (string, gonvml.Return) { return "", gonvml.ERROR_UNKNOWN }
	name := m.device(4).GetNameFunc
	m.device(4).GetNameFunc = func() (string, gonvml.Return) { return "", gonvml.ERROR_GPU_IS_LOST }
	for range 2 {
		ill := list(t, source)
		require.Len(t, ill, 8)
		require.Equal(t, []card.Fault{{Kind: nvml.FaultLost, Message: "NVML: " + gonvml.ERROR_GPU_IS_LOST.Error(), Evict: true}}, ill[2].Faults)
		require.Equal(t, []card.Fault{{Kind: nvml.FaultNotAnswering, Message: "NVML: " + gonvml.ERROR_UNKNOWN.Error()}}, ill[3].Faults)
		require.Equal(t, nvml.FaultLost, ill[4].Faults[0].Kind, "a card that is lost in the middle of the queries is lost")
		require.True(t, ill[5].Healthy())
		for i := range ill {
			ill[i].Faults = nil
		}
		require.Equal(t, well, ill, "lost cards are listed as last seen")
	}

	m.lost, m.device(4).GetNameFunc = nil, name
	m.device(3).SetMockFuncs()
	m.complete(t, 3, m.device(3))
	require.Equal(t, well, list(t, source), "cards that answer again are well")
	require.Greater(t, m.inits, 1, "NVML sees a reset only when started anew")
}

func TestACardThatNeverAnsweredIsLeftOut(t *testing.T) {
	t.Parallel()
	m := newMachine(t, dgxa100.New())
	m.lost[2] = gonvml.ERROR_GPU_IS_LOST
	cards := list(t, m.source(nvml.Options{}))
	require.Len(t, cards, 7, "the others go on working")
	require.Equal(t, 3, cards[2].Index)
}

func TestIndicesOfAnotherCountAreNotTrusted(t *testing.T) {
	t.Parallel()
	m := newMachine(t, dgxa100.New())
	source := m.source(nvml.Options{})
	require.Len(t, list(t, source), 8)
	m.Devices = m.Devices[1:]
	m.lost[0] = gonvml.ERROR_GPU_IS_LOST
	cards := list(t, source)
	require.Len(t, cards, 6, "the card at index 0 may be another than before")
}

func TestCloseEndsTheSession(t *testing.T) {
	t.Parallel()
	m := newMachine(t, dgxa100.New())
	source := m.source(nvml.Options{})
	source.Close()
	require.Zero(t, m.shutdowns)
	require.Len(t, list(t, source), 8)
	source.Close()
	source.Close()
	require.Equal(t, 1, m.shutdowns)
	require.Len(t, list(t, source), 8)
}

func TestAnEndedContextQueriesNothing(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	m := newMachine(t, dgxa100.New())
	_, err := m.source(nvml.Options{}).Cards(ctx)
	require.ErrorIs(t, err, context.Canceled)
	require.Zero(t, m.inits)
}

// The real library, on a machine that has none or under a root that has a file
// which is no library.
func TestRealLibraryThatIsNotThere(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	dir := filepath.Join(root, "usr", "lib64")
	require.NoError(t, os.MkdirAll(dir, 0o750))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "libnvidia-ml.so.1"), []byte("not ELF"), 0o600))
	require.Empty(t, list(t, nvml.New(nvml.Options{DriverRoot: root})))
	require.Equal(t, gonvml.ERROR_LIBRARY_NOT_FOUND, nvml.Library(root).Init())
}
