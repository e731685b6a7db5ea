// SPDX-License-Identifier: Apache-2.0

package arbiter

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/tranche-dra/tranche/pkg/wire"
)

// Seals of pages. All pages keep their size, so that nobody's access to them
// fails. What tenants may only read is sealed against mappings to come: the
// arbiter's own was made before, and no way of opening the page anew helps.
const (
	sealsWritable = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL
	sealsReadOnly = sealsWritable | unix.F_SEAL_FUTURE_WRITE
)

// Names of pages, as /proc/PID/maps shows them.
const (
	grantName  = "tranche-grant"
	ledgerName = "tranche-ledger"
	demandName = "tranche-demand"
)

// fileID tells files apart while they exist.
type fileID struct{ dev, ino uint64 }

// page is a page in memory that other processes can map.
type page[P wire.Page] struct {
	words  *P
	fd     int
	id     fileID
	memory []byte
}

// newPage makes a page; fill is called before anybody else can see it.
func newPage[P wire.Page](name string, size, seals int, fill func(*P)) (*page[P], error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|unix.MFD_NOEXEC_SEAL)
	if errors.Is(err, unix.EINVAL) { // before Linux 6.3
		fd, err = unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	}
	if err != nil {
		return nil, fmt.Errorf("make page %s: %w", name, err)
	}
	if err := unix.Ftruncate(fd, int64(size)); err != nil {
		return nil, errors.Join(fmt.Errorf("make page %s: %w", name, err), unix.Close(fd))
	}
	p, err := mapPage[P](fd, size)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make page %s: %w", name, err), unix.Close(fd))
	}
	fill(p.words)
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		p.close()
		return nil, fmt.Errorf("seal page %s: %w", name, err)
	}
	return p, nil
}

// mapPage maps a page, which then owns the descriptor. After an error it does not.
func mapPage[P wire.Page](fd, size int) (*page[P], error) {
	id, err := idOf(fd)
	if err != nil {
		return nil, err
	}
	memory, err := unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map: %w", err)
	}
	words, err := wire.In[P](memory)
	if err != nil {
		return nil, errors.Join(err, unix.Munmap(memory))
	}
	return &page[P]{words: words, fd: fd, id: id, memory: memory}, nil
}

func idOf(fd int) (fileID, error) {
	var info unix.Stat_t
	if err := unix.Fstat(fd, &info); err != nil {
		return fileID{}, fmt.Errorf("look at descriptor: %w", err)
	}
	return fileID{info.Dev, info.Ino}, nil
}

// close unmaps the page. Who else has it mapped keeps it.
func (p *page[P]) close() {
	if p == nil {
		return
	}
	_ = unix.Munmap(p.memory) // it is a mapping
	_ = unix.Close(p.fd)      // nothing is lost
}

func newGrant(card string, fill func(*wire.Grant)) (*page[wire.Grant], error) {
	return newPage(grantName, wire.GrantSize, sealsReadOnly, func(g *wire.Grant) {
		g.Magic, g.Version = wire.GrantMagic, wire.ContractVersion
		copy(g.CardUUID[:len(g.CardUUID)-1], card)
		fill(g)
	})
}

func newLedger() (*page[wire.Ledger], error) {
	return newPage(ledgerName, wire.LedgerSize, sealsWritable, label)
}

func newDemand() (*page[wire.Demand], error) {
	return newPage(demandName, wire.DemandSize, sealsWritable, func(d *wire.Demand) {
		d.Magic, d.Version = wire.DemandMagic, wire.ContractVersion
	})
}

// adoptLedger maps a ledger that an earlier arbiter made, which the result then
// owns. It must be the very file: what it says is the tenants' business, but
// not whether reading it can fail.
func adoptLedger(fd int, want fileID) (*page[wire.Ledger], error) {
	id, err := idOf(fd)
	if err != nil {
		return nil, err
	}
	if id != want {
		return nil, fmt.Errorf("adopt ledger: it is another file: %w", errNotOurs)
	}
	seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil {
		return nil, fmt.Errorf("adopt ledger: read its seals: %w", err)
	}
	const unwritable = unix.F_SEAL_WRITE | unix.F_SEAL_FUTURE_WRITE
	if seals&sealsWritable != sealsWritable || seals&unwritable != 0 {
		return nil, fmt.Errorf("adopt ledger: it has the seals %#x: %w", seals, errNotOurs)
	}
	var info unix.Stat_t
	if err := unix.Fstat(fd, &info); err != nil {
		return nil, fmt.Errorf("adopt ledger: %w", err)
	}
	if info.Size != int64(wire.LedgerSize) {
		return nil, fmt.Errorf("adopt ledger: it has %d bytes: %w", info.Size, errNotOurs)
	}
	p, err := mapPage[wire.Ledger](fd, wire.LedgerSize)
	if err != nil {
		return nil, fmt.Errorf("adopt ledger: %w", err)
	}
	label(p.words)
	return p, nil
}
