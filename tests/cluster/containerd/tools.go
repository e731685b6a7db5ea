// SPDX-License-Identifier: Apache-2.0

//go:build tools

// Package tools pins the commands of containerd, and the CNI plugins that it
// calls, that the cluster builds.
//
// containerd has its own module because its dependencies and those of
// Kubernetes do not agree on one version each.
package tools

import (
	_ "github.com/containerd/containerd/v2/cmd/containerd"
	_ "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2"
	_ "github.com/containerd/containerd/v2/cmd/ctr"
	_ "github.com/containernetworking/plugins/plugins/ipam/host-local"
	_ "github.com/containernetworking/plugins/plugins/main/bridge"
)
