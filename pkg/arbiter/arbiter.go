// SPDX-License-Identifier: Apache-2.0

package arbiter

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"

	"github.com/tranche-dra/tranche/cdi"
	"github.com/tranche-dra/tranche/pkg/card"
	"github.com/tranche-dra/tranche/pkg/share"
)

// Recorder counts.
type Recorder interface {
	// Reaped takes how long it took to free the slot of a process from when its
	// end was noticed.
	Reaped(took time.Duration)
	// Found takes a finding of the watchdog, once for as long as it stands.
	Found(kind string)
	// Killed takes a process that the watchdog ended.
	Killed()
}

// Config of an Arbiter.
type Config struct {
	// Version of the program, for people.
	Version string
	// SharesDir has a directory for each share.
	SharesDir string
	// RunDir is for rosters and the lock, on a volatile file system.
	RunDir string
	// ContextEstimate in bytes is what a context is expected to take on a card
	// that does not say.
	ContextEstimate uint64
	// Rescan is how often all shares are looked at, whatever was noticed.
	Rescan   time.Duration
	Watchdog Watchdog

	// findLedger is another way to find the ledger of a process, in tests.
	findLedger func(pid int, ledger fileID) (fd int, err error)
	// oldKernel takes the kernel for one that waits for one futex at a time, in tests.
	oldKernel bool
}

// Dependencies of an Arbiter. All are required.
type Dependencies struct {
	// Cards and SimulatedCards tell what processes hold of real and of simulated
	// cards.
	Cards, SimulatedCards Usage
	Events                Events
	Recorder              Recorder
}

// ContextSizes is implemented by a Usage whose cards say what a context takes.
type ContextSizes interface {
	ContextBytes(id card.UUID) (uint64, error)
}

// Arbiter serves the shares of one node.
type Arbiter struct {
	config    Config
	cards     Usage
	simulated Usage
	events    Events
	recorder  Recorder
	boot      string
	room      room
	compute   *compute
	deaths    *deaths // set by Run
	// sharesMount is where SharesDir is on its file system.
	sharesMount mount
	// readings of cards that are under way.
	readings sync.WaitGroup
	// end of the readings, which outlive shares.
	ctx     context.Context // set by Run
	serving atomic.Bool
	standby atomic.Bool
	// started is closed when no other arbiter serves the node any more.
	started chan struct{}
	// pings are answered by the goroutine that follows the directories.
	pings chan struct{}

	mu sync.Mutex
	// Shares that are served, the cards that ever had one, and what was said of
	// shares that are not served; guarded by mu.
	shares map[share.Key]*served
	hosted map[card.UUID]*hostedCard
	told   map[share.Key]string
}

// bootIDFile holds an ID that the kernel makes at every boot.
const bootIDFile = "/proc/sys/kernel/random/boot_id"

// New makes an Arbiter. It does no I/O.
func New(config Config, d Dependencies) *Arbiter {
	if config.findLedger == nil {
		config.findLedger = ledgerOf
	}
	return &Arbiter{
		config: config, cards: d.Cards, simulated: d.SimulatedCards, events: d.Events, recorder: d.Recorder,
		shares: map[share.Key]*served{}, hosted: map[card.UUID]*hostedCard{}, told: map[share.Key]string{},
		compute: newCompute(), started: make(chan struct{}), pings: make(chan struct{}),
	}
}

// Run waits until no other arbiter serves the node, and then serves it until ctx
// ends. It returns nil then: tenants keep their pages and go on, and the next
// arbiter finds who they are. An error says that the arbiter cannot work. Run is
// called once.
func (a *Arbiter) Run(ctx context.Context) error {
	logger := klog.FromContext(ctx)
	boot, err := os.ReadFile(bootIDFile)
	if err != nil {
		return fmt.Errorf("read the kernel's boot ID: %w", err)
	}
	a.boot = strings.TrimSpace(string(boot))
	a.room.limit = connectionLimit()
	// Those who own the directories may have made them with other modes.
	if err := errors.Join(os.MkdirAll(a.config.SharesDir, 0o755), os.MkdirAll(a.config.RunDir, 0o700)); err != nil { //nolint:gosec // containers' mounts lead through it
		return fmt.Errorf("make directories: %w", err)
	}
	a.standby.Store(true)
	lock, err := a.lock(ctx)
	if err != nil || lock == nil {
		return err
	}
	a.standby.Store(false)
	close(a.started)
	defer lock.Close() //nolint:errcheck // frees the lock
	var cancel context.CancelFunc
	a.ctx, cancel = context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	watch, err := newWatch(a.config.SharesDir)
	if err != nil {
		return err
	}
	if a.sharesMount, err = sharesMount(a.config.SharesDir); err != nil {
		return errors.Join(err, watch.close())
	}
	if a.deaths, err = awaitDeaths(ctx); err != nil {
		return errors.Join(err, watch.close())
	}
	logger.Info("Serving shares", "dir", a.config.SharesDir, "run", a.config.RunDir)
	a.compute.start(ctx, !a.config.oldKernel && waitsForMany())
	var watchdog sync.WaitGroup
	watching, stop := context.WithCancel(ctx)
	watchdog.Go(func() { a.watchCards(watching) })
	err = a.follow(ctx, watch)
	stop()
	watchdog.Wait()
	a.serving.Store(false)
	a.compute.freeze()
	a.closeAll()
	a.compute.end()
	a.deaths.end()
	cancel()
	a.endReadings()
	logger.Info("Stopped serving shares; their processes go on with the limits that they know")
	return errors.Join(err, watch.close())
}

// Started is closed when this arbiter begins to serve: nobody else does from then on.
func (a *Arbiter) Started() <-chan struct{} { return a.started }

// Ready is nil when the arbiter serves, or stands by for one that does.
func (a *Arbiter) Ready() error {
	if a.serving.Load() || a.standby.Load() {
		return nil
	}
	return ErrNotServing
}

// aliveLimit is how long the arbiter may be busy with one thing.
const aliveLimit = 10 * time.Second

// Alive is nil when the arbiter gets on with its work, or stands by.
func (a *Arbiter) Alive(ctx context.Context) error {
	if a.standby.Load() || !a.serving.Load() {
		return nil // starting, ending: the process itself is what lives
	}
	limit := time.NewTimer(aliveLimit)
	defer limit.Stop()
	select {
	case a.pings <- struct{}{}:
		return a.computeAlive(ctx)
	case <-ctx.Done():
		return fmt.Errorf("ask the arbiter: %w", context.Cause(ctx))
	case <-limit.C:
		return ErrStuck
	}
}

// cardOf is the card of a share, known or new.
func (a *Arbiter) cardOf(document cdi.ShareDocument) *hostedCard {
	a.mu.Lock()
	defer a.mu.Unlock()
	id := document.Card.UUID
	if c, ok := a.hosted[id]; ok {
		return c
	}
	usage := a.cards
	if document.Card.Simulated {
		usage = a.simulated
	}
	c := &hostedCard{
		id: id, shares: map[share.Key]*served{}, byPID: map[int][]*attachment{}, estimate: a.config.ContextEstimate,
		meter: &meter{id: id, usage: usage, ctx: a.ctx, wait: &a.readings},
	}
	if sizes, ok := usage.(ContextSizes); ok {
		if bytes, err := sizes.ContextBytes(id); err == nil && bytes > 0 {
			c.estimate = bytes
		}
	}
	a.hosted[id] = c
	return c
}

// closeAll ends the service of all shares, which go on to exist.
func (a *Arbiter) closeAll() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for key, s := range a.shares {
		s.endSocket(false)
		s.close(false)
		delete(a.shares, key)
	}
}

// endReadings waits for readings of cards, but not for long: in a driver that
// hangs they do not return.
func (a *Arbiter) endReadings() {
	done := make(chan struct{})
	go func() {
		defer close(done)
		a.readings.Wait()
	}()
	limit := time.NewTimer(measureLimit)
	defer limit.Stop()
	select {
	case <-done:
	case <-limit.C:
	}
}

// lockName is the file that the arbiter which serves has locked.
const lockName = "lock"

// lockRetry is the pause between two tries while another arbiter serves.
const lockRetry = 20 * time.Millisecond

// lock waits until this arbiter is the only one, or gives nil when ctx ends. The
// kernel frees the lock when the process dies.
func (a *Arbiter) lock(ctx context.Context) (*os.File, error) {
	path := a.config.RunDir + "/" + lockName
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock arbiter: %w", err)
	}
	for told := false; ; {
		err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case err == nil:
			return file, nil
		case !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR):
			return nil, errors.Join(fmt.Errorf("lock arbiter: %w", err), file.Close())
		case !told:
			klog.FromContext(ctx).Info("Standing by: another arbiter serves this node", "lock", path)
			told = true
		}
		if pause(ctx, lockRetry); ctx.Err() != nil {
			return nil, file.Close()
		}
	}
}

// room is for connections of all shares together.
type room struct {
	mu          sync.Mutex
	limit, used int
}

// assured is how many connections a share may have whatever others have.
const assured = 64

// connectionLimit is how many connections this process has descriptors for: each
// takes one, and a process two more; some are needed for everything else.
func connectionLimit() int {
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
		return 1024
	}
	const others, each = 256, 3
	return max(int(min(files.Cur, 1<<24))-others, assured) / each
}

// take takes room for one more connection of a share that has some. The last
// quarter is kept for shares that have few: nobody can fill it alone.
func (r *room) take(has int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.used >= r.limit || has >= assured && r.used >= r.limit/4*3 {
		return false
	}
	r.used++
	return true
}

func (r *room) give() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.used--
}
