// SPDX-License-Identifier: Apache-2.0

// Package podresources asks kubelet which devices other plugins serve and which
// ResourceClaims running pods hold, through its PodResources API. The client
// holds no connection and no state between calls: kubelet may restart, or not
// offer the API at all, at any time. It is safe for concurrent use.
package podresources
