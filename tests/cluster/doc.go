// SPDX-License-Identifier: Apache-2.0

// Command tranche-cluster runs a command in a real Kubernetes node of its own:
// etcd, the control plane, kubelet and containerd, in private namespaces of this
// machine, without Docker and without a registry.
//
//	tranche-cluster build                   build the programs, once
//	tranche-cluster run [flags] -- CMD...   run CMD in a new cluster
//	tranche-cluster image [flags] SRC=DST.. make an image from files
//	tranche-cluster ctl VERB COMPONENT      inside: stop, start, restart or kill a component
//
// See README.md.
package main
