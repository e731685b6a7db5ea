// SPDX-License-Identifier: Apache-2.0

// Package node makes a Kubernetes node of the private namespaces that it runs in
// and runs a command there.
//
// Run owns everything that it starts; what it leaves running ends with the
// namespaces. Nothing outside the work directory and the cluster's cgroup is
// written to on the machine.
package node
