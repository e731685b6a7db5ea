// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/google/uuid"

	"github.com/tranche-dra/tranche/cdi"
	"github.com/tranche-dra/tranche/pkg/card"
	"github.com/tranche-dra/tranche/pkg/share"
	"github.com/tranche-dra/tranche/pkg/simcard"
	"github.com/tranche-dra/tranche/tests/sandbox"
)

// MiB is an amount in bytes.
const MiB = uint64(1 << 20)

// Flavour is which build of the C is used: release, asan or tsan. The
// environment's FLAVOUR says it.
func Flavour() string { return cmp.Or(os.Getenv("FLAVOUR"), "release") }

// Native is the directory with what make native built.
func Native() (string, error) {
	root, err := repository()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(root, "build", "native", Flavour())
	for _, name := range []string{"runtime/libcuda.so.1", "runtime/libnvidia-ml.so.1", "sim/libcuda-real.so.1", "sim/libnvidia-ml-real.so.1", "clients/fill"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			return "", fmt.Errorf("%w (make native FLAVOUR=%s makes it)", err, Flavour())
		}
	}
	return dir, nil
}

// repository is the directory that go.mod is in.
func repository() (string, error) {
	dir, err := os.Getwd()
	for err == nil {
		if _, found := os.Stat(filepath.Join(dir, "go.mod")); found == nil {
			return dir, nil
		}
		if dir == "/" {
			return "", errors.New("find the top of the repository: run this below it")
		}
		dir = filepath.Dir(dir)
	}
	return "", err
}

// Hollow is the directory with the driver that does nothing.
func Hollow() (string, error) {
	native, err := Native()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(native, "hollow")
	if _, err := os.Stat(filepath.Join(dir, "libcuda-real.so.1")); err != nil {
		return "", fmt.Errorf("%w (make bench-runtime makes it)", err)
	}
	return dir, nil
}

// Rig is the node.
type Rig struct {
	// Dir has everything that is the rig's; short, for sockets are in it.
	Dir string
	// ArbiterFlags are what arbiters get besides, such as another --v.
	ArbiterFlags []string

	native string

	mu      sync.Mutex
	cards   map[card.UUID]*simcard.Card
	tenants map[string][]Share // by the mount namespace of a box
	boxes   []*sandbox.Box
	arbiter *Arbiter
}

// New makes a rig without cards, shares or arbiter.
func New() (*Rig, error) {
	native, err := Native()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "rig-")
	if err != nil {
		return nil, err
	}
	r := &Rig{Dir: dir, native: native, cards: map[card.UUID]*simcard.Card{}, tenants: map[string][]Share{}}
	if err := errors.Join(os.Chmod(dir, 0o755), os.MkdirAll(r.sharesDir(), 0o755), os.MkdirAll(r.cardsDir(), 0o755)); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

func (r *Rig) stateDir() string  { return filepath.Join(r.Dir, "state") }
func (r *Rig) sharesDir() string { return filepath.Join(r.Dir, "state", "shares") }
func (r *Rig) cardsDir() string  { return filepath.Join(r.Dir, "run", "cards") }

// Client is a program of tests/clients as boxes have it.
func Client(name string) string { return filepath.Join(sandbox.ProgramDir, name) }

// Card makes a simulated card. A zero Config gives one with 8 GiB, contexts of 64 MiB
// and a UUID of its own.
func (r *Rig) Card(config simcard.Config) (*simcard.Card, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	config.UUID = cmp.Or(config.UUID, card.UUID("GPU-"+uuid.NewString()))
	config.Memory = cmp.Or(config.Memory, 8192*MiB)
	config.ContextBytes = cmp.Or(config.ContextBytes, 64*MiB)
	config.Index = len(r.cards)
	path, err := simcard.Create(r.cardsDir(), config)
	if err != nil {
		return nil, err
	}
	c, err := simcard.Open(path)
	if err != nil {
		return nil, err
	}
	r.cards[config.UUID] = c
	return c, nil
}

// Share is a share on one of the rig's cards.
type Share struct {
	Key  share.Key
	Card *simcard.Card
	// Limit in bytes; the card's memory where the share is whole.
	Limit uint64
	// Dir on the machine.
	Dir string
}

// Share makes a share as tranche-node does: complete, by a rename. Zero MiB is the
// whole card; otherwise it is a best-effort share of 10 %, unless changes say
// something else.
func (r *Rig) Share(on *simcard.Card, mib uint64, changes ...func(*share.Share)) (Share, error) {
	config := on.Config()
	of := card.Card{
		UUID: config.UUID, Index: config.Index, Minor: config.Minor, Vendor: card.VendorNVIDIA, ProductName: config.Name,
		PCIBusID: config.PCIBusID, Memory: card.FloorMiB(config.Memory - config.DriverMemory), Simulated: true,
	}
	s := share.Share{
		ID: share.ID{
			Claim:   share.Claim{UID: uuid.NewString(), Namespace: "rig", Name: "claim"},
			Request: "gpu", Pool: "rig", Device: strings.ToLower(string(config.UUID)), ShareID: uuid.NewString(),
		},
		Card: config.UUID, Policy: share.BestEffort, Class: share.NoClass, BurstCeiling: card.WholeCompute,
		Limits: share.Limits{Cores: 10, Memory: card.MiB(mib)},
	}
	if mib == 0 {
		s.Whole, s.Limits = true, share.Limits{Cores: card.WholeCompute, Memory: of.Memory}
	}
	for _, change := range changes {
		change(&s)
	}
	out := Share{Key: s.Key(), Card: on, Limit: uint64(s.Limits.Memory) * MiB, Dir: filepath.Join(r.sharesDir(), string(s.Key()))}
	return out, r.writeShare(out, s, of)
}

func (r *Rig) writeShare(out Share, s share.Share, of card.Card) error {
	content, err := cdi.ShareFile(s, of)
	if err != nil {
		return err
	}
	if err := os.Mkdir(out.Dir, 0o755); err != nil {
		return err
	}
	aside := filepath.Join(out.Dir, ".share.json")
	return errors.Join(os.WriteFile(aside, content, 0o444), os.Rename(aside, filepath.Join(out.Dir, "share.json")))
}

// BoxOptions are what boxes can differ in.
type BoxOptions struct {
	// Bare leaves the sharing runtime out: programs have the driver itself.
	Bare bool
	// Driver is a directory with another libcuda-real.so.1 than the simulated one.
	Driver string
	// Library is the file of another libcuda in the place of the sharing runtime.
	Library string
	// Cards that the box has besides those of its shares.
	Cards []*simcard.Card
	// HostPIDs leaves out the PID namespace.
	HostPIDs bool
}

// Box makes a box with shares, and the cards that they are on.
func (r *Rig) Box(options BoxOptions, shares ...Share) (*sandbox.Box, error) {
	simulated := filepath.Join(r.native, "sim")
	driver := cmp.Or(options.Driver, simulated)
	cuda, nvml := filepath.Join(r.native, "runtime", "libcuda.so.1"), filepath.Join(r.native, "runtime", "libnvidia-ml.so.1")
	if options.Bare || options.Library != "" {
		cuda, nvml = cmp.Or(options.Library, filepath.Join(driver, "libcuda-real.so.1")), filepath.Join(simulated, "libnvidia-ml-real.so.1")
	}
	library, err := r.library(cuda, nvml)
	if err != nil {
		return nil, err
	}
	config := sandbox.Config{
		Shares: map[string]string{}, Cards: map[string]string{}, Driver: driver,
		Library: library, Programs: filepath.Join(r.native, "clients"), HostPIDs: options.HostPIDs,
	}
	for _, s := range shares {
		config.Shares[string(s.Key)] = s.Dir
		config.Cards[string(s.Card.Config().UUID)] = s.Card.Path()
	}
	for _, c := range options.Cards {
		config.Cards[string(c.Config().UUID)] = c.Path()
	}
	box, err := sandbox.New(config)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.boxes = append(r.boxes, box)
	r.tenants[box.Namespace()] = shares
	return box, nil
}

// library makes the directory that stands for /usr/lib of a container: two
// libraries under the names that programs ask for, the versioned one of CUDA too. Each
// is a file of its own, as a mount is: no link leads out of a container.
func (r *Rig) library(cuda, nvml string) (string, error) {
	sum := sha256.Sum256([]byte(cuda))
	dir := filepath.Join(r.Dir, "library-"+hex.EncodeToString(sum[:4]))
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return "", err
	}
	for name, file := range map[string]string{"libcuda.so.1": cuda, "libcuda.so.550.54.14": cuda, "libnvidia-ml.so.1": nvml} {
		content, err := os.ReadFile(file)
		if err != nil {
			return "", err
		}
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o755); err != nil {
			return "", err
		}
	}
	return dir, nil
}

// Close ends everything and removes the rig's directory.
func (r *Rig) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var errs []error
	for _, box := range r.boxes {
		errs = append(errs, box.Close())
	}
	if r.arbiter != nil {
		errs = append(errs, r.arbiter.end())
	}
	for _, c := range r.cards {
		errs = append(errs, c.Close())
	}
	return errors.Join(append(errs, os.RemoveAll(r.Dir))...)
}
