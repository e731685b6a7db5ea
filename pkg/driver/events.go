// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"cmp"
	"context"
	"strings"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"

	"github.com/tranche-dra/tranche/pkg/labels"
	"github.com/tranche-dra/tranche/pkg/share"
)

const (
	// maxEventMessage is what the API server takes, in bytes.
	maxEventMessage = 1024
	// maxHealthMessage is what a pod's status takes, in bytes.
	maxHealthMessage = 1024
)

// ClusterEvents writes events to the API server. Equal ones are
// counted together and floods are cut by client-go. The recorder that writes
// events.k8s.io/v1 was not taken: it counts different messages as one.
type ClusterEvents struct {
	broadcaster record.EventBroadcaster
	recorder    record.EventRecorder
	node        *corev1.ObjectReference
}

// NewClusterEvents makes the events of one node. nodeUID may be empty. Close
// must be called.
func NewClusterEvents(ctx context.Context, client kubernetes.Interface, nodeName string, nodeUID types.UID) *ClusterEvents {
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client.CoreV1().Events("")})
	return &ClusterEvents{
		broadcaster: broadcaster,
		recorder:    broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "tranche-node", Host: nodeName}),
		// Kubelet names the node as its own UID, and "kubectl describe node" looks for that.
		node: &corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: nodeName, UID: cmp.Or(nodeUID, types.UID(nodeName))},
	}
}

// ReasonCeilingChanged is an event on a claim that is no warning.
const ReasonCeilingChanged = "BurstCeilingChanged"

// Claim tells the owner of a claim: a warning, but for what the owner wanted.
func (e *ClusterEvents) Claim(claim share.Claim, reason, message string) {
	kind := corev1.EventTypeWarning
	if reason == ReasonCeilingChanged {
		kind = corev1.EventTypeNormal
	}
	e.recorder.Event(&corev1.ObjectReference{
		APIVersion: "resource.k8s.io/v1", Kind: "ResourceClaim",
		Namespace: claim.Namespace, Name: claim.Name, UID: types.UID(claim.UID),
	}, kind, reason, shorten(message, maxEventMessage))
}

// Pod warns the owner of a pod.
func (e *ClusterEvents) Pod(pod types.NamespacedName, uid types.UID, reason, message string) {
	e.recorder.Event(&corev1.ObjectReference{
		APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: uid,
	}, corev1.EventTypeWarning, reason, shorten(message, maxEventMessage))
}

// Node tells the administrator of this node: a warning, but for good news.
func (e *ClusterEvents) Node(reason, message string) {
	kind := corev1.EventTypeWarning
	if reason == reasonRecovered || reason == labels.ReasonChanged {
		kind = corev1.EventTypeNormal
	}
	e.recorder.Event(e.node, kind, reason, shorten(message, maxEventMessage))
}

// Close stops writing.
func (e *ClusterEvents) Close() { e.broadcaster.Shutdown() }

// shorten cuts a text to at most limit bytes, between characters.
func shorten(text string, limit int) string {
	const more = "..."
	text = strings.ToValidUTF8(text, "?")
	if len(text) <= limit {
		return text
	}
	cut := limit - len(more)
	for cut > 0 && !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + more
}
