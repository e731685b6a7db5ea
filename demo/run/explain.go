// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// mostEvents and logLines are what fits on a screen.
	mostEvents = 15
	logLines   = 20
)

// explain collects what the cluster says about things that do not come: pods
// that do not run, warnings, and the driver's last words. What cannot be had is
// said in its place.
func (d *demo) explain(ctx context.Context) string {
	var text strings.Builder
	pods, err := d.client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Sprintf("(the cluster does not answer: %v)", err)
	}
	text.WriteString("Pods that do not run:\n")
	for i := range pods.Items {
		if pod := &pods.Items[i]; !isReady(pod) && pod.Status.Phase != corev1.PodSucceeded {
			fmt.Fprintf(&text, "  %s/%s: %s\n", pod.Namespace, pod.Name, whyNotReady(pod))
		}
	}
	text.WriteString("Warnings:\n")
	for _, line := range d.warnings(ctx) {
		fmt.Fprintf(&text, "  %s\n", line)
	}
	for i := range pods.Items {
		if pod := &pods.Items[i]; pod.Namespace == driverNamespace {
			fmt.Fprintf(&text, "Last lines of %s/%s:\n%s\n", pod.Namespace, pod.Name, d.lastLines(ctx, pod))
		}
	}
	return text.String()
}

func isReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// whyNotReady is what the pod's containers or, before there are any, its
// conditions say.
func whyNotReady(pod *corev1.Pod) string {
	words := []string{string(pod.Status.Phase)}
	for _, c := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		switch {
		case c.State.Waiting != nil:
			words = append(words, fmt.Sprintf("container %s waits: %s %s", c.Name, c.State.Waiting.Reason, c.State.Waiting.Message))
		case c.State.Terminated != nil:
			words = append(words, fmt.Sprintf("container %s ended: %s, exit code %d", c.Name, c.State.Terminated.Reason, c.State.Terminated.ExitCode))
		}
	}
	if len(words) == 1 {
		for _, c := range pod.Status.Conditions {
			if c.Status == corev1.ConditionFalse && c.Message != "" && !slices.Contains(words, c.Message) {
				words = append(words, c.Message)
			}
		}
	}
	return strings.Join(words, "; ")
}

// warnings are the latest events that are not normal, oldest first.
func (d *demo) warnings(ctx context.Context) []string {
	events, err := d.client.CoreV1().Events(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return []string{err.Error()}
	}
	wrong := slices.DeleteFunc(events.Items, func(e corev1.Event) bool { return e.Type == corev1.EventTypeNormal })
	slices.SortStableFunc(wrong, func(a, b corev1.Event) int { return lastSeen(&a).Compare(lastSeen(&b)) })
	var lines []string
	for _, e := range wrong[max(0, len(wrong)-mostEvents):] {
		lines = append(lines, fmt.Sprintf("%s %s/%s: %s: %s",
			e.InvolvedObject.Kind, cmp.Or(e.InvolvedObject.Namespace, "-"), e.InvolvedObject.Name, e.Reason, e.Message))
	}
	return lines
}

func lastSeen(e *corev1.Event) time.Time {
	if !e.LastTimestamp.IsZero() {
		return e.LastTimestamp.Time
	}
	return e.EventTime.Time
}

// lastLines of the pod's log, or those of its last life where it has none yet.
func (d *demo) lastLines(ctx context.Context, pod *corev1.Pod) string {
	lines := int64(logLines)
	var problem error
	for _, previous := range []bool{false, true} {
		raw, err := d.client.CoreV1().Pods(pod.Namespace).
			GetLogs(pod.Name, &corev1.PodLogOptions{TailLines: &lines, Previous: previous}).DoRaw(ctx)
		if err == nil && len(raw) > 0 {
			return string(raw)
		}
		problem = cmp.Or(problem, err)
	}
	if problem != nil {
		return fmt.Sprintf("(no log: %v)", problem)
	}
	return "(it has logged nothing)"
}
