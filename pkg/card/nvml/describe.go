// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"context"
	"fmt"
	"strings"

	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"
	"k8s.io/dynamic-resource-allocation/deviceattribute"
	"k8s.io/klog/v2"

	"github.com/tranche-dra/tranche/pkg/card"
)

// query asks a card, or the system, one thing after another. A thing that is
// not supported is left out; a card that is lost is lost for all of them.
type query struct {
	lib    gonvml.Interface
	logger klog.Logger
	lost   gonvml.Return
}

// ask gives the answer, and whether there was one. A symbol that an old library
// lacks must not be called: the dynamic linker would end the process.
func ask[T any](q *query, symbol string, call func() (T, gonvml.Return)) (T, bool) {
	var none T
	if q.lost != gonvml.SUCCESS {
		return none, false
	}
	if err := q.lib.Extensions().LookupSymbol(symbol); err != nil {
		q.logger.V(4).Info("The driver is too old for a query", "symbol", symbol)
		return none, false
	}
	answer, ret := call()
	switch ret {
	case gonvml.SUCCESS:
		return answer, true
	case gonvml.ERROR_GPU_IS_LOST:
		q.lost = ret
	default:
		q.logger.V(4).Info("A query gave no answer", "symbol", symbol, "reason", ret.Error())
	}
	return none, false
}

// systemFacts are those that all cards share.
func (s *Source) systemFacts(ctx context.Context, lib gonvml.Interface) card.Card {
	q := &query{lib: lib, logger: klog.FromContext(ctx)}
	c := card.Card{Vendor: card.VendorNVIDIA}
	c.DriverVersion, _ = ask(q, "nvmlSystemGetDriverVersion", lib.SystemGetDriverVersion)
	if v, ok := ask(q, "nvmlSystemGetCudaDriverVersion", lib.SystemGetCudaDriverVersion); ok && v > 0 {
		c.CUDAVersion = fmt.Sprintf("%d.%d", v/1000, v%1000/10)
	}
	return c
}

// describe queries one card. The return is not SUCCESS where the card does not
// answer at all; that a single query fails is no such case.
func (s *Source) describe(ctx context.Context, lib gonvml.Interface, index int, c card.Card) (card.Card, health, gonvml.Return) {
	device, ret := lib.DeviceGetHandleByIndex(index)
	if ret != gonvml.SUCCESS {
		return card.Card{}, health{}, ret
	}
	uuid, ret := device.GetUUID()
	if ret != gonvml.SUCCESS {
		return card.Card{}, health{}, ret
	}
	q := &query{lib: lib, logger: klog.FromContext(ctx).WithValues("card", uuid)}
	c.UUID, c.Index = card.UUID(uuid), index
	c.Minor = card.Unknown
	if minor, ok := ask(q, "nvmlDeviceGetMinorNumber", device.GetMinorNumber); ok {
		c.Minor = minor
	}
	c.ProductName, _ = ask(q, "nvmlDeviceGetName", device.GetName)
	if number, ok := ask(q, "nvmlDeviceGetArchitecture", device.GetArchitecture); ok {
		c.Architecture = architecture(number)
	}
	c.ComputeCapability, _ = ask(q, "nvmlDeviceGetCudaComputeCapability", func() (string, gonvml.Return) {
		major, minor, ret := device.GetCudaComputeCapability()
		return fmt.Sprintf("%d.%d", major, minor), ret
	})
	c.WholeOnly, _ = ask(q, "nvmlDeviceGetMigMode", func() (bool, gonvml.Return) {
		current, _, ret := device.GetMigMode()
		return current == gonvml.DEVICE_MIG_ENABLE, ret
	})
	c.Memory = s.memory(q, device)
	c.PCIBusID = pciBusID(q, device)
	s.topology(q, &c)
	h := healthOf(q, device)
	return c, h, q.lost
}

// memory is what containers may use: the total minus what the driver keeps,
// where it says so, and minus the node's own reserve. Zero is unknown, as on
// machines whose cards use the main memory.
func (s *Source) memory(q *query, device gonvml.Device) card.MiB {
	v2, ok := ask(q, "nvmlDeviceGetMemoryInfo_v2", device.GetMemoryInfo_v2)
	total, reserved := v2.Total, v2.Reserved
	if !ok {
		v1, _ := ask(q, "nvmlDeviceGetMemoryInfo", device.GetMemoryInfo)
		total, reserved = v1.Total, 0
	}
	if reserved > total {
		return 0
	}
	return max(card.FloorMiB(total-reserved)-s.opts.Reserve, 0)
}

func pciBusID(q *query, device gonvml.Device) string {
	info, ok := ask(q, "nvmlDeviceGetPciInfo_v3", device.GetPciInfo)
	if !ok {
		return ""
	}
	var id strings.Builder
	for _, b := range info.BusId {
		if b == 0 {
			break
		}
		id.WriteByte(byte(b)) //nolint:gosec // a C char
	}
	return strings.ToLower(id.String())
}

// topology is what sysfs tells about the card's place.
func (s *Source) topology(q *query, c *card.Card) {
	c.NUMANode = card.Unknown
	address := c.PCIBusID
	if domain, rest, _ := strings.Cut(address, ":"); len(domain) == 8 && strings.HasPrefix(domain, "0000") {
		address = domain[4:] + ":" + rest // as the kernel writes it
	}
	sysfs := deviceattribute.WithFSFromRoot(s.opts.SysfsRoot)
	root, err := deviceattribute.GetPCIeRootAttributeByPCIBusID(address, sysfs)
	if err == nil {
		c.PCIeRoot = *root.Value.StringValue
	} else {
		q.logger.V(4).Info("The card's PCIe root is not known", "reason", err.Error())
	}
	numa, err := deviceattribute.GetNUMANodeAttributeByPCIBusID(address, deviceattribute.ScalarAttribute, sysfs)
	if err == nil {
		c.NUMANode = int(*numa.Value.IntValue)
	} else {
		q.logger.V(4).Info("The card's NUMA node is not known", "reason", err.Error())
	}
}

// architecture names NVML's number as NVIDIA's marketing does. A number that is
// newer than this code stays a number, so that it can be selected on.
func architecture(number gonvml.DeviceArchitecture) string {
	switch number {
	case gonvml.DEVICE_ARCH_KEPLER:
		return "Kepler"
	case gonvml.DEVICE_ARCH_MAXWELL:
		return "Maxwell"
	case gonvml.DEVICE_ARCH_PASCAL:
		return "Pascal"
	case gonvml.DEVICE_ARCH_VOLTA:
		return "Volta"
	case gonvml.DEVICE_ARCH_TURING:
		return "Turing"
	case gonvml.DEVICE_ARCH_AMPERE:
		return "Ampere"
	case gonvml.DEVICE_ARCH_ADA:
		return "Ada"
	case gonvml.DEVICE_ARCH_HOPPER:
		return "Hopper"
	case gonvml.DEVICE_ARCH_BLACKWELL:
		return "Blackwell"
	case gonvml.DEVICE_ARCH_RUBIN:
		return "Rubin"
	case gonvml.DEVICE_ARCH_UNKNOWN:
		return ""
	default:
		return fmt.Sprintf("Architecture%d", number)
	}
}
