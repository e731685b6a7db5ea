// SPDX-License-Identifier: Apache-2.0

package simcard

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/tranche-dra/tranche/pkg/card"
)

// Config is what a simulated card is: facts that never change. UUID and Memory
// are required. A zero elsewhere means the default, except where zero is an
// answer.
type Config struct {
	// UUID is "GPU-" and a UUID in lower case.
	UUID card.UUID
	// Memory is the card's total in bytes, a multiple of Frame.
	Memory uint64
	// DriverMemory is what the driver itself holds of it always. Default 0.
	DriverMemory uint64
	// Name is the product's name.
	Name string
	// PCIBusID is domain:bus:device.function with eight digits of domain. The
	// default depends on Index.
	PCIBusID string
	// DriverVersion defaults to 550.54.14, CUDAVersion (12040 is 12.4) to what
	// came with the driver.
	DriverVersion string
	CUDAVersion   int
	// Profile is 470, 535, 550 or 580: which functions the driver has. Default
	// by DriverVersion.
	Profile int
	// Index and Minor are zero by default.
	Index, Minor int
	// ComputeMajor and ComputeMinor are the compute capability, by default 8.6.
	// A major of 0 means the default.
	ComputeMajor, ComputeMinor int
	Multiprocessors            int
	ThreadsPerMultiprocessor   int
	// ContextBytes is what one context takes, a multiple of Frame. Default 256 MiB.
	ContextBytes uint64
	// TimeSlice is the length of a turn when several processes want the card.
	// Default 2 ms.
	TimeSlice time.Duration
	// CopyBytesPerSecond is the speed of copies and fills. Default 24 GB/s.
	CopyBytesPerSecond uint64
}

// profiles and the CUDA version of each one's driver.
func profiles() map[int]int { return map[int]int{470: 11040, 535: 12020, 550: 12040, 580: 13000} }

func (c Config) withDefaults() Config {
	c.Name = cmp.Or(c.Name, "Simulated GPU")
	c.PCIBusID = cmp.Or(c.PCIBusID, fmt.Sprintf("00000000:%02x:00.0", (8*c.Index+8)&0xff))
	c.DriverVersion = cmp.Or(c.DriverVersion, defaultDriver(c.Profile))
	c.Profile = cmp.Or(c.Profile, profileOf(c.DriverVersion))
	c.CUDAVersion = cmp.Or(c.CUDAVersion, profiles()[c.Profile])
	if c.ComputeMajor == 0 {
		c.ComputeMajor, c.ComputeMinor = 8, 6
	}
	c.Multiprocessors = cmp.Or(c.Multiprocessors, 72)
	c.ThreadsPerMultiprocessor = cmp.Or(c.ThreadsPerMultiprocessor, 1536)
	c.ContextBytes = cmp.Or(c.ContextBytes, 256<<20)
	c.TimeSlice = cmp.Or(c.TimeSlice, 2*time.Millisecond)
	c.CopyBytesPerSecond = cmp.Or(c.CopyBytesPerSecond, 24e9)
	return c
}

func defaultDriver(profile int) string {
	switch profile {
	case 470:
		return "470.256.02"
	case 535:
		return "535.183.06"
	case 580:
		return "580.65.06"
	default:
		return "550.54.14"
	}
}

// profileOf is the newest profile that is not newer than the driver.
func profileOf(driverVersion string) int {
	major, _, _ := strings.Cut(driverVersion, ".")
	number, _ := strconv.Atoi(major)
	best := 470
	for profile := range profiles() {
		if profile <= number && profile > best {
			best = profile
		}
	}
	return best
}

var (
	uuidForm    = regexp.MustCompile(`^GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)
	pciForm     = regexp.MustCompile(`^[0-9a-f]{8}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]$`)
	versionForm = regexp.MustCompile(`^[0-9]+(\.[0-9]+){1,3}$`)
)

// validate checks facts that have their defaults.
func (c Config) validate() error {
	var errs []error
	want := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	want(uuidForm.MatchString(string(c.UUID)), "UUID %q: want GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx in lower-case hexadecimal digits", c.UUID)
	want(c.Memory > 0 && c.Memory%Frame == 0, "memory of %d bytes: want a multiple of %d", c.Memory, Frame)
	want(c.Memory <= maxFrames*Frame, "memory of %d bytes: want at most %d", c.Memory, uint64(maxFrames*Frame))
	want(c.DriverMemory < c.Memory && c.DriverMemory%Frame == 0, "driver's memory of %d bytes: want a multiple of %d below the card's", c.DriverMemory, Frame)
	want(c.ContextBytes%Frame == 0, "context of %d bytes: want a multiple of %d", c.ContextBytes, Frame)
	want(len(c.Name) < len(factsLayout{}.name) && !strings.ContainsRune(c.Name, 0), "name %q: want at most %d bytes", c.Name, len(factsLayout{}.name)-1)
	want(pciForm.MatchString(c.PCIBusID), "PCI bus id %q: want one like 00000000:1b:00.0", c.PCIBusID)
	want(versionForm.MatchString(c.DriverVersion) && len(c.DriverVersion) < len(factsLayout{}.driverVersion), "driver version %q: want one like 550.54.14", c.DriverVersion)
	_, known := profiles()[c.Profile]
	want(known, "profile %d: want 470, 535, 550 or 580", c.Profile)
	for _, n := range []struct {
		what     string
		value    int
		min, max int
	}{
		{"CUDA version", c.CUDAVersion, 1000, 99990},
		{"index", c.Index, 0, 255},
		{"minor", c.Minor, 0, 255},
		{"compute capability's major", c.ComputeMajor, 1, 99},
		{"compute capability's minor", c.ComputeMinor, 0, 9},
		{"number of multiprocessors", c.Multiprocessors, 1, 1024},
		{"threads per multiprocessor", c.ThreadsPerMultiprocessor, 32, 4096},
	} {
		want(n.value >= n.min && n.value <= n.max, "%s %d: want %d to %d", n.what, n.value, n.min, n.max)
	}
	want(c.TimeSlice >= 10*time.Microsecond && c.TimeSlice <= time.Second, "time slice %s: want 10us to 1s", c.TimeSlice)
	want(c.CopyBytesPerSecond >= 1<<20, "%d bytes copied a second: want at least %d", c.CopyBytesPerSecond, 1<<20)
	if len(errs) > 0 {
		return fmt.Errorf("%w: %w", ErrConfig, errors.Join(errs...))
	}
	return nil
}

// FromCard are the facts of a simulated card as the node driver lists it. Its
// memory is rounded up to a frame, so that all that is published exists.
func FromCard(c card.Card) (Config, error) {
	if c.Memory <= 0 {
		return Config{}, fmt.Errorf("%w: the memory of card %s is not known", ErrConfig, c.UUID)
	}
	config := Config{
		UUID: c.UUID, Name: c.ProductName, PCIBusID: c.PCIBusID, DriverVersion: c.DriverVersion,
		Memory: (uint64(c.Memory.Bytes()) + Frame - 1) / Frame * Frame, //nolint:gosec // positive
		Index:  c.Index, Minor: c.Minor,
	}
	var err error
	if c.ComputeCapability != "" {
		if config.ComputeMajor, config.ComputeMinor, err = twoNumbers(c.ComputeCapability); err != nil {
			return Config{}, fmt.Errorf("%w: compute capability of card %s: %w", ErrConfig, c.UUID, err)
		}
	}
	if c.CUDAVersion != "" {
		major, minor, err := twoNumbers(c.CUDAVersion)
		if err != nil {
			return Config{}, fmt.Errorf("%w: CUDA version of card %s: %w", ErrConfig, c.UUID, err)
		}
		config.CUDAVersion = major*1000 + minor*10
	}
	config = config.withDefaults()
	return config, config.validate()
}

func twoNumbers(version string) (major, minor int, err error) {
	first, second, found := strings.Cut(version, ".")
	if !found {
		return 0, 0, fmt.Errorf("%q: want two numbers like 8.6", version)
	}
	major, err = strconv.Atoi(first)
	if err == nil {
		minor, err = strconv.Atoi(second)
	}
	if err != nil {
		return 0, 0, fmt.Errorf("%q: want two numbers like 8.6", version)
	}
	return major, minor, nil
}
