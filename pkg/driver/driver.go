// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/klog/v2"

	"github.com/tranche-dra/tranche/pkg/card"
	"github.com/tranche-dra/tranche/pkg/prepare"
	"github.com/tranche-dra/tranche/pkg/share"
	"github.com/tranche-dra/tranche/pkg/slices"
)

// Name of the driver, in slices, claims and kubelet's directories.
const Name = slices.DriverName

// Preparer does what a claim needs on this node. It is called concurrently, for
// the same claim too; an error with a method Transient that returns true asks
// for another try.
type Preparer interface {
	Prepare(ctx context.Context, claim *resourceapi.ResourceClaim) ([]prepare.Prepared, error)
	Unprepare(ctx context.Context, claim share.Claim) error
}

// DevicePlugins tells which devices other plugins of this node serve, by
// resource name.
type DevicePlugins interface {
	Allocatable(ctx context.Context) (map[string][]string, error)
}

// Events tells people, through the API server, what they should look at. It
// does not block and has no error: nothing depends on it.
type Events interface {
	Claim(claim share.Claim, reason, message string)
	Pod(pod types.NamespacedName, uid types.UID, reason, message string)
	Node(reason, message string)
}

// Recorder counts.
type Recorder interface {
	PrepareDone(took time.Duration, err error)
	UnprepareDone(took time.Duration, err error)
	PublishDone(err error)
	CardsListed(cards []card.Card, err error)
	CardsPublished(count int)
}

// Config of a Driver.
type Config struct {
	NodeName string
	// NodeUID may be empty; the node is looked up then.
	NodeUID types.UID
	// PodUID tells two instances during a rolling update apart; empty where
	// there is never more than one.
	PodUID types.UID
	// KubeletRoot is kubelet's directory, the same inside and outside of the
	// container.
	KubeletRoot string
	// Slots is the most shares that one card takes.
	Slots int
	// ForceSharing publishes shareable cards also where Kubernetes is too old
	// to allocate shares rightly.
	ForceSharing bool
	// Timing may be zero.
	Timing Timing
}

// Dependencies of a Driver. All are required.
type Dependencies struct {
	Client    kubernetes.Interface
	Watcher   card.Watcher
	Inventory *Inventory
	Preparer  Preparer
	Plugins   DevicePlugins
	Events    Events
	Recorder  Recorder
}

// Driver serves one node.
type Driver struct {
	config    Config
	timing    Timing
	client    kubernetes.Interface
	watcher   card.Watcher
	inventory *Inventory
	preparer  Preparer
	events    Events
	recorder  Recorder
	publisher *publisher
	sockets   sockets
	// calls of kubelet that are under way, and its connections to the DRA socket.
	calls, connections open

	registered atomic.Bool
	serving    atomic.Bool
	// draining is closed when the process is asked to end, lastTry when no more
	// tries fit into the time that is left.
	draining, lastTry chan struct{}
	// fail ends Run with an error; set before any goroutine starts.
	fail context.CancelCauseFunc
}

// New makes a Driver. It does no I/O; the error says that the configuration
// cannot work.
func New(config Config, d Dependencies) (*Driver, error) {
	if config.NodeName == "" {
		return nil, errors.New("make driver: the node's name is not known")
	}
	s, err := socketsFor(config.KubeletRoot, Name, config.PodUID)
	if err != nil {
		return nil, err
	}
	config.Timing = config.Timing.withDefaults()
	return &Driver{
		config: config, timing: config.Timing, client: d.Client, watcher: d.Watcher, inventory: d.Inventory,
		preparer: d.Preparer, events: d.Events, recorder: d.Recorder,
		publisher: newPublisher(config, d), sockets: s, draining: make(chan struct{}), lastTry: make(chan struct{}),
	}, nil
}

// Run serves kubelet and publishes the cards until ctx ends, and returns nil
// then: no socket is left, and no goroutine but those that the cards' driver
// does not return to. An error means that this process
// cannot do its work and must be started again. Run is called once.
func (d *Driver) Run(ctx context.Context) error {
	outer := ctx
	// Calls that are under way go on for a moment after ctx ended.
	ctx, d.fail = context.WithCancelCause(context.WithoutCancel(ctx))
	defer d.fail(nil)
	if err := d.sockets.makeDirs(); err != nil {
		return err
	}
	d.sockets.removeStale(ctx, Name, time.Now())
	helper, err := kubeletplugin.Start(ctx, plugin{d}, d.options()...)
	if err != nil {
		return fmt.Errorf("serve kubelet: %w", err)
	}
	d.serving.Store(true)
	klog.FromContext(ctx).Info("Serving kubelet", "socket", d.sockets.draPath(), "registration", d.sockets.registrationPath())

	var wg sync.WaitGroup
	working, stop := context.WithCancel(ctx)
	wg.Go(func() { d.publisher.run(working) })
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		d.watchCards(working)
	}()
	wg.Go(func() { d.sweepSockets(working) })
	select {
	case <-outer.Done():
		d.drain(ctx)
	case <-ctx.Done():
	}
	d.serving.Store(false)
	failure := context.Cause(ctx)
	stop()
	helper.Stop()
	wg.Wait()
	d.letGo(ctx, watched)
	if failure != nil {
		return failure
	}
	klog.FromContext(ctx).Info("Stopped serving kubelet")
	return nil
}

func (d *Driver) options() []kubeletplugin.Option {
	return []kubeletplugin.Option{
		kubeletplugin.DriverName(Name),
		kubeletplugin.KubeClient(d.client),
		kubeletplugin.NodeName(d.config.NodeName),
		kubeletplugin.NodeUID(d.config.NodeUID),
		kubeletplugin.PluginDataDirectoryPath(d.sockets.dataDir),
		kubeletplugin.PluginSocket(d.sockets.dra),
		kubeletplugin.PluginListener(d.listen),
		kubeletplugin.RegistrarDirectoryPath(d.sockets.registryDir),
		kubeletplugin.RegistrarSocketFilename(d.sockets.registration),
		kubeletplugin.Serialize(false), // the Preparer locks, across processes too
		kubeletplugin.GRPCInterceptor(plugin{d}.intercept),
	}
}

// HandleError takes errors of the helper's servers. What it does not call
// recoverable means that kubelet cannot reach us: only a new process can.
func (p plugin) HandleError(ctx context.Context, err error, msg string) {
	if errors.Is(err, kubeletplugin.ErrRecoverable) {
		klog.FromContext(ctx).Error(err, "Serving kubelet goes on after an error", "what", msg)
		return
	}
	p.fail(fmt.Errorf("%s: %w", msg, err))
}

// Ready is nil once kubelet has registered this process and its slices are
// published: from then on an older instance may go without a pod noticing. One
// that has never been able to list the cards publishes none and is not ready.
func (d *Driver) Ready() error {
	switch {
	case !d.serving.Load():
		return ErrNotServing
	case !d.registered.Load():
		return ErrNotRegistered
	case !d.publisher.published.Load():
		if known, _ := d.inventory.current(); known.err != nil && !d.inventory.listed() {
			return fmt.Errorf("%w: %w", ErrNotPublished, known.err)
		}
		return ErrNotPublished
	}
	return nil
}

// watchCards asks for a new listing whenever the source of cards says so.
func (d *Driver) watchCards(ctx context.Context) {
	logger := klog.FromContext(ctx)
	retry := d.timing.backoff()
	for ctx.Err() == nil {
		started := time.Now()
		err := d.watcher.Watch(ctx, func(e card.Event) {
			logger.V(2).Info("Cards may have changed", "reason", e.Reason, "card", e.Card)
			d.publisher.request(publishChanges)
		})
		if err == nil {
			continue
		}
		if time.Since(started) > d.timing.Relist {
			retry = d.timing.backoff()
		}
		pause := retry.Step()
		logger.Error(err, "Cannot watch cards, they are listed periodically until it works again", "retryAfter", pause)
		sleep(ctx, pause)
	}
}

// letGo waits for the watching of cards to end, but not for long: a call into a
// driver that hangs does not return.
func (d *Driver) letGo(ctx context.Context, watched <-chan struct{}) {
	limit := time.NewTimer(d.timing.LetGo)
	defer limit.Stop()
	select {
	case <-watched:
	case <-limit.C:
		klog.FromContext(ctx).Info("Watching cards does not end and is left behind", "waited", d.timing.LetGo)
	}
}

// sweepSockets removes what killed pods leave behind while this one runs.
func (d *Driver) sweepSockets(ctx context.Context) {
	ticker := time.NewTicker(d.timing.Sweep)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			d.sockets.removeStale(ctx, Name, now)
		}
	}
}

// sleep waits for a time or for the end of ctx.
func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
