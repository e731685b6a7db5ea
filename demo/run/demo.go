// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

const (
	driverNamespace = "tranche-system"
	driverName      = "tranche-node"
	// cards that the local cluster simulates, see its fleet.
	cards = 2

	localCluster = "demo/clusters/local"
	threePods    = "demo/examples/three-pods-one-card"
	// oneOfThree prints what it is told of its share.
	oneOfThree = "part-a"
	fourthPod  = "demo/examples/two-containers-one-claim"
)

// whatToTry begins where the story ends: card 0 is full but for some memory, card
// 1 has one pod.
const whatToTry = `Try next:
  kubectl apply -f demo/examples/notebook     asks for memory only, and finds it on card 0
  kubectl apply -f demo/examples/whole-card   wants a card for itself, and waits
  kubectl delete pod pair                     ... until card 1 is empty
  %-41s   who holds what now
  kubectl get resourceslices -o yaml          the cards as they are published
  kubectl get resourceclaims -o yaml          the shares as they were granted
  kubectl -n tranche-system logs ds/tranche-node
                                              what the driver did
More examples are in demo/examples.`

const (
	leaveTheShell = "Leave the shell, and the cluster goes with it."
	// tryYourself is for a cluster that is about to go.
	tryYourself = "Try it yourself: make demo KEEP=1 leaves you a shell in such a cluster; demo/examples has more to apply."
	// limits is what must not be read into the story.
	limits = `What was shown is placing and telling. Nothing stops a process from using more than share.json says yet:
README.md, "What is enforced, and what is not".`
	// ledgers explains a column that nobody can guess.
	ledgers = `Amounts are free/total. CORES is percent of a card's compute; OFFLINE is a second ledger of it, for batch work
that runs while online work on the card idles.`
)

// errPlacement says that pods run on other cards than they ought to.
var errPlacement = errors.New("pods are not where they belong")

// demo tells the story. It has no state besides what is said.
type demo struct {
	client kubernetes.Interface
	// kubectl runs the command line tool in the repository's root.
	kubectl func(ctx context.Context, args ...string) ([]byte, error)
	say     *narrator
	// patience is how long a single wait may take.
	patience time.Duration
	// keep is set where the cluster outlives the story.
	keep bool
	// testCluster is set in the cluster of tests/cluster, which goes when its
	// command and the shell after it end.
	testCluster bool
	// program is how a reader calls this one.
	program string
}

func (d *demo) run(ctx context.Context) error {
	d.say.line("Tranche shares a card among pods: a percent of its compute and an amount of its memory for each.")
	if err := d.install(ctx); err != nil {
		return err
	}
	if err := d.share(ctx); err != nil {
		return err
	}
	if err := d.tell(ctx); err != nil {
		return err
	}
	if err := d.refuse(ctx); err != nil {
		return err
	}
	d.say.line("\nDone in %s.", d.say.total())
	d.end()
	return nil
}

// end says what the story does not show, and what to do next.
func (d *demo) end() {
	d.say.line("\n%s\n", limits)
	if !d.keep {
		d.say.line(tryYourself)
		return
	}
	d.say.line(whatToTry, d.program+" show")
	if d.testCluster {
		d.say.line(leaveTheShell)
	}
}

// install brings up the driver and shows the cards that it publishes.
func (d *demo) install(ctx context.Context) error {
	d.say.head(fmt.Sprintf("Install the driver, with %d simulated cards of 24 GiB.", cards), "kubectl apply -k "+localCluster)
	if _, err := d.kubectl(ctx, "apply", "-k", localCluster); err != nil {
		return fmt.Errorf("install the driver: %w", err)
	}
	if err := d.await(ctx, "the driver to be ready on every node", d.driverReady); err != nil {
		return err
	}
	d.say.done("the driver is ready")
	if err := d.await(ctx, "the cards to be published", d.cardsPublished); err != nil {
		return err
	}
	d.say.done("%d cards are published", cards)
	d.say.text(ledgers)
	return d.showCards(ctx)
}

// share starts three pods that fill one card, and one more.
func (d *demo) share(ctx context.Context) error {
	three, err := d.start(ctx, "Start three pods, which ask for 30, 30 and 40 % of a card.", threePods)
	if err != nil {
		return err
	}
	first, err := d.onOneCard(ctx, three)
	if err != nil {
		return err
	}
	d.say.line("   All three are on card %s, which has no compute left.", first.name)

	more, err := d.start(ctx, "Start another pod.", fourthPod)
	if err != nil {
		return err
	}
	second, err := d.onOneCard(ctx, more)
	if err != nil {
		return err
	}
	if second == first {
		return fmt.Errorf("look where the fourth pod is: %w: it is on card %s, which was full", errPlacement, first.name)
	}
	d.say.line("   It is on card %s, since card %s is full.", second.name, first.name)

	d.say.head("See which pod holds what on which card.", d.program+" show")
	snapshot, err := d.look(ctx)
	if err != nil {
		return err
	}
	return d.table(snapshot.WriteTables)
}

// tell shows what a container is told of its share.
func (d *demo) tell(ctx context.Context) error {
	d.say.head("See what a container is told of its share: this one prints the share.json that it finds.", "kubectl logs "+oneOfThree)
	var said []byte
	err := d.await(ctx, "pod "+oneOfThree+" to say what it holds", func(ctx context.Context) (string, error) {
		var err error
		if said, err = d.kubectl(ctx, "logs", oneOfThree); err == nil && len(said) == 0 {
			return "it has said nothing", nil
		}
		return "", err
	})
	if err != nil {
		return err
	}
	d.say.block(string(said))
	return nil
}

// start applies an example and waits until its pods run.
func (d *demo) start(ctx context.Context, title, example string) ([]types.NamespacedName, error) {
	d.say.head(title, "kubectl apply -f "+example)
	printed, err := d.kubectl(ctx, "apply", "-f", example, "-o", "json")
	if err != nil {
		return nil, fmt.Errorf("start example %s: %w", example, err)
	}
	pods, err := podsIn(printed)
	if err != nil {
		return nil, fmt.Errorf("start example %s: %w", example, err)
	}
	if err := d.await(ctx, "the pods of "+example+" to run", d.running(pods)); err != nil {
		return nil, err
	}
	d.say.done("running: %s", names(pods))
	return pods, nil
}

func names(pods []types.NamespacedName) string {
	words := make([]string, 0, len(pods))
	for _, p := range pods {
		words = append(words, p.Name)
	}
	slices.Sort(words)
	return strings.Join(words, ", ")
}
