// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/tranche-dra/tranche/pkg/view"
)

func (d *demo) look(ctx context.Context) (view.Snapshot, error) { return look(ctx, d.client) }

// look asks the API server for what the view is made of.
func look(ctx context.Context, client kubernetes.Interface) (view.Snapshot, error) {
	slices, err := client.ResourceV1().ResourceSlices().List(ctx, metav1.ListOptions{})
	if err != nil {
		return view.Snapshot{}, fmt.Errorf("list slices: %w", err)
	}
	claims, err := client.ResourceV1().ResourceClaims(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return view.Snapshot{}, fmt.Errorf("list claims: %w", err)
	}
	pods, err := client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return view.Snapshot{}, fmt.Errorf("list pods: %w", err)
	}
	return view.Of(view.Objects{Slices: slices.Items, Claims: claims.Items, Pods: pods.Items}), nil
}

func (d *demo) showCards(ctx context.Context) error {
	snapshot, err := d.look(ctx)
	if err != nil {
		return err
	}
	return d.table(snapshot.WriteCards)
}

// table prints what write writes, set in.
func (d *demo) table(write func(io.Writer) error) error {
	var text bytes.Buffer
	if err := write(&text); err != nil {
		return err
	}
	d.say.block(text.String())
	return nil
}

// ready asks for a ready pod of a DaemonSet on every node, of the version applied.
func (d *demo) ready(name string) question {
	return func(ctx context.Context) (string, error) {
		set, err := d.client.AppsV1().DaemonSets(driverNamespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return "", fmt.Errorf("look for %s: %w", name, err)
		}
		s := set.Status
		switch {
		case s.ObservedGeneration < set.Generation || s.DesiredNumberScheduled == 0:
			return "its pods are not made yet", nil
		case s.UpdatedNumberScheduled < s.DesiredNumberScheduled || s.NumberReady < s.DesiredNumberScheduled:
			return fmt.Sprintf("%d of %d pods are ready", s.NumberReady, s.DesiredNumberScheduled), nil
		}
		return "", nil
	}
}

func (d *demo) cardsPublished(ctx context.Context) (string, error) {
	snapshot, err := d.look(ctx)
	if err != nil {
		return "", err
	}
	if len(snapshot.Cards) < cards {
		return fmt.Sprintf("%d of %d cards are published", len(snapshot.Cards), cards), nil
	}
	return "", nil
}

// running asks for all of the pods.
func (d *demo) running(pods []types.NamespacedName) question {
	return func(ctx context.Context) (string, error) {
		var missing []string
		for _, p := range pods {
			pod, err := d.client.CoreV1().Pods(p.Namespace).Get(ctx, p.Name, metav1.GetOptions{})
			switch {
			case apierrors.IsNotFound(err):
				missing = append(missing, fmt.Sprintf("%s is gone", p))
			case err != nil:
				return "", fmt.Errorf("look for pod %s: %w", p, err)
			case pod.Status.Phase != corev1.PodRunning:
				missing = append(missing, fmt.Sprintf("%s is %s", p, whyNotReady(pod)))
			}
		}
		return strings.Join(missing, ", "), nil
	}
}

// spot is one card of one node.
type spot struct{ node, name string }

// onOneCard finds the card that all of the pods share. It is an error where they
// are on several, or one of them is on none.
func (d *demo) onOneCard(ctx context.Context, pods []types.NamespacedName) (spot, error) {
	snapshot, err := d.look(ctx)
	if err != nil {
		return spot{}, err
	}
	return oneCard(snapshot, pods)
}

func oneCard(snapshot view.Snapshot, pods []types.NamespacedName) (spot, error) {
	found := map[types.NamespacedName]spot{}
	for _, s := range snapshot.Shares {
		at := spot{s.Node, s.Device}
		if s.Index != nil {
			at.name = strconv.Itoa(*s.Index)
		}
		for _, h := range s.Holders {
			pod := types.NamespacedName{Namespace: s.Namespace, Name: h.Name}
			if before, twice := found[pod]; twice && before != at {
				return spot{}, fmt.Errorf("look where pod %s is: %w: it is on cards %s and %s", pod, errPlacement, before.name, at.name)
			}
			found[pod] = at
		}
	}
	var card spot
	for i, p := range pods {
		at, holds := found[p]
		switch {
		case !holds:
			return spot{}, fmt.Errorf("look where pod %s is: %w: it holds no share", p, errPlacement)
		case i > 0 && at != card:
			return spot{}, fmt.Errorf("look where pod %s is: %w: it is on card %s, %s on card %s", p, errPlacement, at.name, pods[0], card.name)
		}
		card = at
	}
	return card, nil
}
