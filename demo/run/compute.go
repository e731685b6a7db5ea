// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"
)

const (
	// workSeconds is how long pods compute, in kernels of a millisecond.
	workSeconds = 3
	// whenReady is what the program tests/clients/work says before it waits for the word.
	whenReady, goOn = "ready\n", "go\n"
)

var endLine = regexp.MustCompile(`(?m)^end launches=(\d+)$`)

// computing is a pod of the example and what it asked for, in percent.
type computing struct {
	pod   string
	cores int
}

// compute shows how much of their card pods get: all that share it at once, then one
// of them alone.
func (d *demo) compute(ctx context.Context) error {
	three := []computing{{oneOfThree, 30}, {"part-b", 30}, {anotherOfThree, 40}}
	d.say.head(fmt.Sprintf("Let all three compute for %d seconds, as much as they can; then one of them alone.", workSeconds),
		fmt.Sprintf("kubectl exec -i %s -- work seconds=%d     # begins when it reads go", oneOfThree, workSeconds))
	together, err := d.work(ctx, three)
	if err != nil {
		return err
	}
	alone, err := d.work(ctx, three[:1])
	if err != nil {
		return err
	}
	d.say.line("   POD     ASKED FOR  GOT")
	for i, c := range three {
		d.say.line("   %-6s  %3d %%      %3.0f %%", c.pod, c.cores, together[i])
	}
	d.say.line("   %-6s  %3d %%      %3.0f %%, alone", three[0].pod, three[0].cores, alone[0])
	d.say.text(lent)
	return nil
}

// work has pods compute at the same time, and gives for what percent of it each had the
// card, going by the kernels of a millisecond that ended.
func (d *demo) work(ctx context.Context, pods []computing) ([]float64, error) {
	ctx, cancel := context.WithTimeout(ctx, d.patience)
	defer cancel()
	got, begin := make([]float64, len(pods)), make(chan struct{})
	var preparing sync.WaitGroup
	preparing.Add(len(pods))
	go func() {
		preparing.Wait()
		close(begin)
	}()
	working, ctx := errgroup.WithContext(ctx)
	for i, c := range pods {
		working.Go(func() error {
			said := listener{ready: sync.OnceFunc(preparing.Done)}
			defer said.ready() // nobody waits for one who has failed
			err := d.talk(ctx, &word{ctx, begin, strings.NewReader(goOn)}, &said, "exec", "-i", c.pod, "--", "work", fmt.Sprintf("seconds=%d", workSeconds))
			if err == nil {
				got[i], err = percent(said.said.String())
			}
			if err != nil {
				return fmt.Errorf("compute in pod %s: %w", c.pod, err)
			}
			return nil
		})
	}
	return got, working.Wait()
}

// percent of the time in which the kernels ran that the program work told of.
func percent(said string) (float64, error) {
	match := endLine.FindStringSubmatch(said)
	if match == nil {
		return 0, fmt.Errorf("find the number of launches: %w", errNotSaid)
	}
	launches, err := strconv.ParseFloat(match[1], 64)
	return launches / (10 * workSeconds), err
}

// word is what programs read that wait until all of them may begin.
type word struct {
	ctx   context.Context
	begin <-chan struct{}
	text  *strings.Reader
}

func (w *word) Read(p []byte) (int, error) {
	select {
	case <-w.begin:
		return w.text.Read(p)
	case <-w.ctx.Done():
		return 0, context.Cause(w.ctx)
	}
}

// listener hears what a program says, and calls ready when it is.
type listener struct {
	ready func()
	said  bytes.Buffer
}

func (l *listener) Write(p []byte) (int, error) {
	n, err := l.said.Write(p)
	if bytes.HasPrefix(l.said.Bytes(), []byte(whenReady)) {
		l.ready()
	}
	return n, err
}
