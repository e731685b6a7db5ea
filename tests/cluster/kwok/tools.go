// SPDX-License-Identifier: Apache-2.0

//go:build tools

// Package tools pins kwok, which plays kubelet for the nodes that do not exist.
//
// kwok has its own module so that what it needs does not choose versions for
// Kubernetes.
package tools

import _ "sigs.k8s.io/kwok/cmd/kwok"
