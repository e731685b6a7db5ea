// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

const (
	driverNamespace = "tranche-system"
	driverName      = "tranche-node"
	arbiterName     = "tranche-arbiter"
	// cards that the local cluster simulates, see its fleet.
	cards = 2

	localCluster = "demo/clusters/local"
	threePods    = "demo/examples/three-pods-one-card"
	// oneOfThree and anotherOfThree hold different amounts of memory, and print how
	// far they get.
	oneOfThree, anotherOfThree = "part-a", "part-c"
	fourthPod                  = "demo/examples/two-containers-one-claim"
	wholeCard                  = "demo/examples/whole-card"
)

// whatToTry begins where the story ends: card 0 is full but for some memory, card
// 1 has one pod, and another waits until it is empty.
const whatToTry = `Try next:
  kubectl apply -f demo/examples/notebook     asks for memory only, and finds it on card 0
  kubectl delete pod pair                     empties card 1: the pod that waits gets it
  %-41s   who holds what now
  kubectl get resourceslices -o yaml          the cards as they are published
  kubectl get resourceclaims -o yaml          the shares as they were granted
  kubectl exec part-b -- tranche-smi          what a monitoring program sees in that pod
  kubectl exec part-b -- fill vmm 512         memory by another way, up to the same limit
  kubectl -n tranche-system exec ds/tranche-arbiter -- /usr/bin/tranche-arbiter status
                                              who has the cards at the moment
  kubectl get nodes,resourceslices,resourceclaims,deviceclasses -A -o json |
    kubectl tranche simulate --cluster - --claims demo/examples/whole-card/pod.yaml
                                              why that pod waits, and what other policies would do
  kubectl -n tranche-system logs ds/tranche-node
                                              what the driver did
More examples are in demo/examples.`

const (
	leaveTheShell = "Leave the shell, and the cluster goes with it."
	// tryYourself is for a cluster that is about to go.
	tryYourself = "Try it yourself: make demo KEEP=1 leaves you a shell in such a cluster; demo/examples has more to apply."
	// lent explains what the pod that was alone got.
	lent = `While others want their part nobody gets more than his own. What idles is lent and handed back when its
owner has work again, where a share's policy allows that: README.md, "Classes and policies".`
	// contextsCost explains why nobody gets all of it.
	contextsCost = `The rest is what CUDA itself takes for a context, which counts as it does on a card of one's own, and less than
another block of 64 MiB.`
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
	// talk does so with standard input and output, while it runs.
	talk func(ctx context.Context, in io.Reader, out io.Writer, args ...string) error
	say  *narrator
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
	if err := d.noRoom(ctx); err != nil {
		return err
	}
	if err := d.tell(ctx); err != nil {
		return err
	}
	if err := d.compute(ctx); err != nil {
		return err
	}
	if err := d.refuse(ctx); err != nil {
		return err
	}
	d.say.line("\nDone in %s.", d.say.total())
	d.end()
	return nil
}

// end says what to do next.
func (d *demo) end() {
	d.say.line("")
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
	if err := d.await(ctx, "the driver to be ready on every node", d.ready(driverName)); err != nil {
		return err
	}
	if err := d.await(ctx, "the arbiter to be ready on every node", d.ready(arbiterName)); err != nil {
		return err
	}
	d.say.done("the driver is ready, and so is the arbiter, which keeps processes to their shares")
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

// tell shows what containers see of the card that they share, and how far they
// get.
func (d *demo) tell(ctx context.Context) error {
	d.say.head("See what two of the containers see of their card. Both ask NVML; then a CUDA program takes as much memory as it gets.", "")
	for _, pod := range []string{oneOfThree, anotherOfThree} {
		var said string
		err := d.await(ctx, "pod "+pod+" to say how far it got", func(ctx context.Context) (string, error) {
			raw, err := d.kubectl(ctx, "logs", pod)
			if said = string(raw); err == nil && !strings.Contains(said, whenFull) {
				return "it has not said", nil
			}
			return "", err
		})
		if err != nil {
			return err
		}
		d.say.line("   $ kubectl logs %s", pod)
		d.say.block(said)
		total, taken, err := howFar(said)
		if err != nil {
			return fmt.Errorf("look how far pod %s got: %w", pod, err)
		}
		d.say.line("   It was shown a card of %d MiB, took %d MiB, and was then told CUDA_ERROR_OUT_OF_MEMORY.\n", total, taken)
	}
	d.say.text(contextsCost)
	return nil
}

// start applies an example and waits until its pods run.
func (d *demo) start(ctx context.Context, title, example string) ([]types.NamespacedName, error) {
	pods, err := d.apply(ctx, title, example)
	if err != nil {
		return nil, err
	}
	if err := d.await(ctx, "the pods of "+example+" to run", d.running(pods)); err != nil {
		return nil, err
	}
	d.say.done("running: %s", names(pods))
	return pods, nil
}

// apply begins a step with an example, and gives the example's pods.
func (d *demo) apply(ctx context.Context, title, example string) ([]types.NamespacedName, error) {
	d.say.head(title, "kubectl apply -f "+example)
	printed, err := d.kubectl(ctx, "apply", "-f", example, "-o", "json")
	if err != nil {
		return nil, fmt.Errorf("start example %s: %w", example, err)
	}
	pods, err := podsIn(printed)
	if err != nil {
		return nil, fmt.Errorf("start example %s: %w", example, err)
	}
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
