// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// failedScheduling is the reason of the events in which schedulers say why a pod waits.
const failedScheduling = "FailedScheduling"

// noRoom shows what the scheduler says of a pod that fits nowhere. The pod stays: it
// starts as soon as a card is empty.
func (d *demo) noRoom(ctx context.Context) error {
	pods, err := d.apply(ctx, "Start a pod that wants a whole card. It waits, and its event says what is missing.", wholeCard)
	if err != nil {
		return err
	}
	for _, pod := range pods {
		var said string
		err := d.await(ctx, "the scheduler to say why "+pod.String()+" waits", func(ctx context.Context) (missing string, err error) {
			said, err = d.whyItWaits(ctx, pod)
			if said == "" {
				missing = "it has no event " + failedScheduling
			}
			return missing, err
		})
		if err != nil {
			return err
		}
		d.say.done("event %s of pod %s:", failedScheduling, pod.Name)
		d.say.text(said)
	}
	return nil
}

// whyItWaits is empty as long as the scheduler has not said.
func (d *demo) whyItWaits(ctx context.Context, pod types.NamespacedName) (string, error) {
	events, err := d.client.CoreV1().Events(pod.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", fmt.Errorf("list events of pod %s: %w", pod, err)
	}
	var said string
	for i := range events.Items {
		if e := &events.Items[i]; e.Reason == failedScheduling && e.InvolvedObject.Kind == "Pod" && e.InvolvedObject.Name == pod.Name {
			said = e.Message
		}
	}
	return said, nil
}
